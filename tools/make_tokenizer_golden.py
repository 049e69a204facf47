#!/usr/bin/env python3
"""Writes the golden token ids that the tokenizer's tests compare with.

    python3 tools/make_tokenizer_golden.py --smollm2 FILE.gguf --gemma3 FILE.gguf [--out tests/data]

Each tokenizer is rebuilt from the vocabulary in the GGUF file with a library that shares no code with
ours: Hugging Face `tokenizers` for SmolLM2, Google's `sentencepiece` for Gemma 3. Pieces of the
pre-tokenisers come from `tokenizers` too, with the patterns as the models' authors publish them. If
`llama_cpp` is installed its ids are compared and differences are printed; the golden files follow the models' own
libraries. Known: llama.cpp takes Gemma's "</s>" (HTML's strike-through) for a control token.

Needs: pip install gguf tokenizers sentencepiece protobuf, and optionally llama-cpp-python.
"""
import argparse
import json
import os

import gguf
import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)

ENGLISH = [
    "Hello, world!",
    "The quick brown fox jumps over the lazy dog.",
    " leading space",
    "trailing space ",
    "  two leading, two trailing  ",
    "I'm sure they've said it's what we'll do; he'd agree, they're right, don't you think?",
    "I'M SURE THEY'VE SAID IT'S WHAT WE'LL DO; HE'D AGREE, THEY'RE RIGHT",
    "rock'n'roll 'tis 'twas y'all'd've",
    "it\u2019s a \u201cquoted\u201d word \u2014 with dashes\u2026",
    "Antidisestablishmentarianism and pneumonoultramicroscopicsilicovolcanoconiosis",
    "aAaAaA BBBbbb CamelCaseWords snake_case_words kebab-case-words SCREAMING_CASE",
    "e.g. i.e. etc. U.S.A. Dr. Smith's Ph.D.",
    "a b c d e f g h i j k l m n o p q r s t u v w x y z",
    "x",
    "",
    " ",
]
NUMBERS = [
    "0 1 12 123 1234 12345 123456 1234567",
    "3.14159265358979 -1.5e-10 +42 0x1F 1,000,000.00",
    "2024-01-31T23:59:59Z 12:30 1st 2nd 3rd 100% $9.99 \u20ac5",
    "\u0661\u0662\u0663 \u0967\u0968\u0969 \u00bd \u00b2 \u2167 \u2460 \u3007\u4e00",
    "abc123def456 v1.2.3-rc4",
    "7777777777777777777777777777777777",
]
WHITESPACE = [
    "a  b   c    d     e",
    "\n", "\n\n", "\n\n\n\n\n", "\r\n\r\n", "\t", "\t\t\t", " \n \n ", "  \n", "\n  x",
    "line one\nline two\r\nline three\rline four\n\nline six   \n\n\n  indented",
    "tabs\tand\t\tmore\t \ttabs",
    "a\u00a0b\u2003c\u3000d\u2028e\u2029f\u0085g\u200bh\u1680i",
    " " * 40 + "x" + " " * 33,
    "x" + "\n" * 40 + "y",
    "\t" * 35 + "z",
    "a \u180e! \u180e b",
    "\x0b\x0c\x1f \x00 nul\x00inside",
]
CODE = [
    "def f(x: int) -> int:\n    return x ** 2  # square\n",
    "for (int i = 0; i < n; ++i) {\n\tsum += a[i] * b[i];\n}\n",
    "#include <vector>\nstd::vector<std::pair<int, int>> v{{1, 2}};",
    "SELECT * FROM t WHERE a = 'b''c' AND d != 3;",
    "{\"key\": [1, 2.5, null, true], \"s\": \"\\u00e9\\n\"}",
    "<div class=\"x\"><h1>Title</h1><table><tr><td>1</td></tr></table></div>",
    "https://example.com/path?q=1&r=a%20b#frag user@example.org",
    "$ ls -la | grep '^d' && echo \"done\" >> /tmp/x 2>&1",
    "=> -> != == === <= >= && || ?? ... ::: ### *** ___ ``` ~~~",
    "\\frac{a}{b} \\sum_{i=0}^{n} x_i^2 \\in \\mathbb{R}",
    "if x:\n        if y:\n                pass\n",
]
LANGUAGES = [
    "\u00dcber stra\u00dfe na\u00efve caf\u00e9 \u0141\u00f3d\u017a \u00e7a va fa\u00e7ade",
    "cafe\u0301 e\u0301\u0302 A\u030a n\u0303",  # combining marks
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u041a\u0430\u043a \u0434\u0435\u043b\u0430?",
    "\u0393\u03b5\u03b9\u03ac \u03c3\u03bf\u03c5 \u039a\u03cc\u03c3\u03bc\u03b5",
    "\u4f60\u597d\uff0c\u4e16\u754c\uff01\u4eca\u5929\u5929\u6c14\u5f88\u597d\u3002",
    "\u3053\u3093\u306b\u3061\u306f\u4e16\u754c\u3002\u30ab\u30bf\u30ab\u30ca\uff76\uff85",
    "\uc548\ub155\ud558\uc138\uc694 \uc138\uacc4 \u1112\u1161\u11ab",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645\u061f",
    "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd \u05d0\u05b7",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01",
    "\u10d2\u10d0\u10db\u10d0\u10e0\u10ef\u10dd\u10d1\u10d0 \u0532\u0561\u0580\u0587 \u12a0\u121b\u122d\u129b",
    "Ti\u1ebfng Vi\u1ec7t c\u00f3 d\u1ea5u",
    "\u202eright to left\u202c \u200f\u200e",
    "mixed \u4e2d\u6587 and English \u0440\u0443\u0441\u0441\u043a\u0438\u0439 123 \u0639\u0631\u0628\u064a",
    "\u17a2\u17c1 \u0b95\u0bc1 \u13a3 \U00010400 \U0001d54f \U00020000 \ue000",
]
EMOJI = [
    "\U0001f600\U0001f602 \U0001f44d\U0001f3fd",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 family",
    "\u2764\ufe0f \U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7 \U0001f3f4\U000e0067\U000e0062\U000e007f 1\ufe0f\u20e3",
    "\u221e \u2264 \u2260 \u2211 \u221a \u2192 \u2190 \u00a9 \u00ae \u2122 \u00a7",
    "\ufffd \ufeffbom \ufff9 \u0301alone",
]
CONTROL_LIKE = [
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n",
    "<|im_start|><|im_start|> <|im_end|>x<|im_end|>",
    "<|im_end", "<<|im_end|>>", "<|im_<|im_end|>end|>", "<|endoftext|><eos></s><s><pad>",
    "<unused0><unused99> <mask> [multimodal]", "<0x0A><0x41>\u2581x",
    "<start_of_turn> <end_of_turn", "<repo_name><reponame><file_sep><filename>",
]
TEXTS = ENGLISH + NUMBERS + WHITESPACE + CODE + LANGUAGES + EMOJI + CONTROL_LIKE

CONTRACTIONS = r"'s|'t|'re|'ve|'m|'ll|'d"
GPT2 = CONTRACTIONS + r"| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CL100K = (r"(?i:" + CONTRACTIONS + r")|[^\r\n\p{L}\p{N}]?\p{L}+|%s"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
PATTERNS = {
    "gpt-2": [GPT2],
    "smollm": [r"\p{N}", GPT2],
    "llama-bpe": [CL100K % r"\p{N}{1,3}"],
    "qwen2": [CL100K % r"\p{N}"],
}


def isolated(pattern):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def byte_alphabet():
    """Byte -> character, as OpenAI's GPT-2 encoder defines it."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    return {**{b: chr(b) for b in printable}, **{b: chr(256 + i) for i, b in enumerate(others)}}


class Vocabulary:
    def __init__(self, path):
        fields = gguf.GGUFReader(path).fields

        def get(key, default=None):
            return fields[key].contents() if key in fields else default

        self.path = path
        self.tokens = get("tokenizer.ggml.tokens")
        self.kinds = get("tokenizer.ggml.token_type")
        self.scores = get("tokenizer.ggml.scores")
        self.merges = get("tokenizer.ggml.merges")
        self.bos = get("tokenizer.ggml.bos_token_id") if get("tokenizer.ggml.add_bos_token") else None
        self.unk = get("tokenizer.ggml.unknown_token_id")

    def special(self, kinds):
        return [t for t, kind in zip(self.tokens, self.kinds) if kind in kinds]


class HuggingFace:
    """Byte-level BPE through `tokenizers`."""

    def __init__(self, vocabulary, patterns):
        self.plain = self.build(vocabulary, patterns, [USER_DEFINED])
        self.parsing = self.build(vocabulary, patterns, [USER_DEFINED, CONTROL, UNKNOWN])

    @staticmethod
    def build(v, patterns, special):
        merges = [tuple(m.split(" ", 1)) for m in v.merges]
        tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(v.tokens)}, merges))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [isolated(p) for p in patterns]
            + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        tokenizer.add_tokens([AddedToken(t, normalized=False) for t in v.special(special)])
        return tokenizer

    def encode(self, text, parse_special):
        return (self.parsing if parse_special else self.plain).encode(text).ids


class SentencePiece:
    """SentencePiece BPE through `sentencepiece`, with control tokens as user-defined symbols where
    the text's own are to be parsed: its C++ API has no other way to take them from text."""

    def __init__(self, vocabulary):
        self.plain = self.build(vocabulary, False)
        self.parsing = self.build(vocabulary, True)

    @staticmethod
    def build(v, parse_special):
        proto = sentencepiece_model_pb2.ModelProto()
        proto.trainer_spec.model_type = sentencepiece_model_pb2.TrainerSpec.BPE
        proto.trainer_spec.byte_fallback = True
        proto.normalizer_spec.name = "identity"
        proto.normalizer_spec.add_dummy_prefix = False
        proto.normalizer_spec.remove_extra_whitespaces = False
        proto.normalizer_spec.escape_whitespaces = True
        for i, (token, score, kind) in enumerate(zip(v.tokens, v.scores, v.kinds)):
            if i == v.unk:
                kind = UNKNOWN
                proto.trainer_spec.unk_piece = token
            elif kind == CONTROL and parse_special:
                kind = USER_DEFINED
            text = token.replace(" ", "\u2581") if kind == USER_DEFINED else token
            proto.pieces.add(piece=text, score=score, type=kind)
        return sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())

    def encode(self, text, parse_special):
        return (self.parsing if parse_special else self.plain).encode(text)


def compare_with_llama_cpp(vocabulary, cases):
    try:
        import llama_cpp
    except ImportError:
        print("llama_cpp is not installed: not compared")
        return
    model = llama_cpp.Llama(vocabulary.path, vocab_only=True, verbose=False)
    differences = 0
    for case in cases:
        theirs = model.tokenize(case["text"].encode(), add_bos=case["add_special"],
                                special=case["parse_special"])
        if theirs != case["ids"]:
            differences += 1
            print(f"  llama.cpp differs: {case['text']!r} parse_special={case['parse_special']}\n"
                  f"    library   {case['ids']}\n    llama.cpp {theirs}")
    print(f"  llama.cpp: {differences} of {len(cases)} differ")


def golden(vocabulary, library):
    cases = []
    for text in TEXTS:
        for parse_special in [False] + ([True] if text in CONTROL_LIKE else []):
            ids = library.encode(text, parse_special)
            cases.append({"text": text, "parse_special": parse_special, "add_special": False,
                          "ids": ids})
    with_bos = dict(cases[0], add_special=True)
    if vocabulary.bos is not None:
        with_bos["ids"] = [vocabulary.bos] + with_bos["ids"]
    return cases + [with_bos]


def pieces(text, patterns):
    """Pieces as the tokenizers library cuts them, in the text's own characters."""
    split = pre_tokenizers.Sequence([isolated(p) for p in patterns])
    return [piece for piece, _ in split.pre_tokenize_str(text)]


def write(path, value):
    with open(path, "w", encoding="ascii") as out:
        items = ",\n".join(json.dumps(item) for item in value)
        out.write(f"[\n{items}\n]\n")
    print(f"{path}: {len(value)} cases")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--smollm2", required=True)
    parser.add_argument("--gemma3", required=True)
    parser.add_argument("--out", default="tests/data")
    args = parser.parse_args()

    smollm2, gemma3 = Vocabulary(args.smollm2), Vocabulary(args.gemma3)
    for name, vocabulary, library in [
        ("smollm2", smollm2, HuggingFace(smollm2, PATTERNS["smollm"])),
        ("gemma3", gemma3, SentencePiece(gemma3)),
    ]:
        cases = golden(vocabulary, library)
        write(os.path.join(args.out, f"tokenizer_{name}.json"), cases)
        compare_with_llama_cpp(vocabulary, cases)
    write(os.path.join(args.out, "pretokenizer.json"),
          [{"pre": pre, "text": text, "pieces": pieces(text, patterns)}
           for pre, patterns in PATTERNS.items() for text in TEXTS if text])


if __name__ == "__main__":
    main()
