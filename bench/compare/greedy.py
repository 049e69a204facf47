#!/usr/bin/env python3
"""Do tierkv and llama.cpp choose the same tokens? Greedy continuations of passages of the texts.

usage: greedy.py MODEL.gguf TEXT... [--copy [TIMES]] [--self] [--prompts 40] [--generate 48] [--gap 0.25]
                 [--peer-python PYTHON]

Both engines round activations to int8, each in its own way, and that moves logits by about 0.1: where
the two best tokens lie closer than that, either may win, and everything after differs. So, beside the
share of equal answers, this prints the gap between llama.cpp's two best logits where answers part, and
the share among prompts whose answer llama.cpp decides by at least --gap at every token.

--copy takes prompts that have an answer: a passage twice (or more often), then its beginning, so that
going on means copying. There the best token stands out, and engines that compute the same function agree.

--self asks the same of llama.cpp alone, which is the yardstick: how many answers stay equal when only its
way of computing changes and not what it computes (VARIATIONS). Prompts on which all of its ways agree are
called stable; on these tierkv has to agree too. One thread everywhere, so that every run gives the same.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BASE = "flash attention off, micro-batch 512, float16 KV"
VARIATIONS = {  # what changes against BASE; q8_0 KV needs flash attention, and changes what is stored
    "flash attention": {"flash": True},
    "prompt fed one token at a time": {"ubatch": 1},
    "weights not repacked": {"repack": False},
    "q8_0 KV, flash attention": {"kv": "q8_0", "flash": True},
}


def passages(texts, count):
    """`count` pieces of about 700 characters, evenly spread over the texts, whole paragraphs first."""
    each = (count + len(texts) - 1) // len(texts)
    for path in texts:
        text = pathlib.Path(path).read_text(encoding="utf-8")
        for i in range(each):
            start = text.index("\n\n", i * (len(text) - 3000) // each) + 2
            yield text[start : start + 700]


def copy_task(passage, copies):
    """The passage so many times and its first 100 characters, which end with a word."""
    return f"{passage}\n\n" * copies + passage[:100].rsplit(maxsplit=1)[0]


def two_best(llama, context, n_vocab):
    """(the best token, how far its logit is above the second)."""
    import numpy as np

    logits = np.ctypeslib.as_array(llama.llama_cpp.llama_get_logits_ith(context, -1), shape=(n_vocab,))
    second, best = np.sort(logits[np.argpartition(logits, -2)[-2:]])
    return int(logits.argmax()), float(best - second)


def peer_answers(path, prompts, n, repack=True, **context_options):
    """llama.cpp's greedy ids and the gaps of its two best logits, one object for each prompt."""
    import peer_llamacpp as llama

    model = llama.load_model(path, repack)
    context = llama.make_context(model, 2048, 1, **{"flash": False, **context_options})
    n_vocab = llama.vocab_size(model)
    for prompt in prompts:
        llama.clear(context)
        llama.decode(context, llama.tokenize(model, prompt))
        ids, gaps = [], []
        for _ in range(n):
            token, gap = two_best(llama, context, n_vocab)
            ids.append(token)
            gaps.append(gap)
            llama.decode(context, [token])
        yield {"ids": ids, "gaps": gaps}
    llama.llama_cpp.llama_free(context)
    llama.llama_cpp.llama_model_free(model)


def peer_main(args, prompts):
    """Runs inside the peer's Python: prints {way of computing: answers} as JSON."""
    import peer_llamacpp as llama

    llama.start()
    answers = {}
    for name, options in {BASE: {}, **(VARIATIONS if args.self else {})}.items():
        print(f"llama.cpp: {name}", file=sys.stderr)
        answers[name] = list(peer_answers(args.model, prompts, args.generate, **options))
    json.dump(answers, sys.stdout)


def ask_peer(args):
    command = [args.peer_python, __file__, *sys.argv[1:], "--peer"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def our_answer(args, prompt):
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.write(prompt)
        file.flush()
        command = [args.tierkv, "run", "-m", args.model, "-f", file.name, "--raw", "--temp", "0", "--json"]
        command += ["--ignore-eos", "--kv", "exact", "-t", "1", "-n", str(args.generate)]
        return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["tokens"]


def parts_at(answer, other):
    """Where two answers first differ; None if they don't."""
    return next((i for i, (a, b) in enumerate(zip(answer, other)) if a != b), None)


def print_agreement(args, ours, base):
    """tierkv against llama.cpp, and where they part."""
    parts = [parts_at(our, theirs["ids"]) for our, theirs in zip(ours, base)]
    decided = [at for at, theirs in zip(parts, base) if min(theirs["gaps"]) >= args.gap]
    gaps = sorted(round(theirs["gaps"][at], 4) for at, theirs in zip(parts, base) if at is not None)
    equal = f"{parts.count(None)} of {len(parts)} answers of {args.generate} tokens equal"
    clear = f"{decided.count(None)} of the {len(decided)} that llama.cpp always decides by {args.gap} or more"
    print(f"{pathlib.Path(args.model).name}: {equal}; {clear}")
    print(f"gaps where the others part, ascending: {gaps}")


def print_variations(ours, answers):
    """llama.cpp against itself and tierkv against it, as a table; then the stable prompts."""
    base, *varied = [[answer["ids"] for answer in way] for way in answers.values()]
    print(f"\n| against llama.cpp with {BASE} | equal | tokens before they part, median |\n|---|---|---|")
    for name, ids in zip([*VARIATIONS, "tierkv"], [*varied, ours]):
        parts = [parts_at(a, b) for a, b in zip(ids, base)]
        shown = [len(base[0]) if at is None else at for at in parts]
        print(f"| {name} | {parts.count(None)} of {len(parts)} | {statistics.median(shown):g} |")
    stable = [i for i, ids in enumerate(base) if all(way[i] == ids for way in varied)]
    agreed = sum(ours[i] == base[i] for i in stable)
    print(
        f"\nall of llama.cpp's ways agree on {len(stable)} of {len(base)}; tierkv agrees on {agreed} of these"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("model")
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--prompts", type=int, default=40)
    parser.add_argument("--generate", type=int, default=48)
    parser.add_argument("--gap", type=float, default=0.25)
    parser.add_argument("--copy", type=int, nargs="?", const=2, help="prompts to be gone on with by copying")
    parser.add_argument("--self", action="store_true", help="llama.cpp against itself as well")
    parser.add_argument("--tierkv", default=str(ROOT / "build/bin/tierkv"))
    parser.add_argument("--peer-python", default=str(ROOT / ".venv-peer/bin/python"))
    parser.add_argument("--peer", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    prompts = list(passages(args.texts, args.prompts))[: args.prompts]
    if args.copy:
        prompts = [copy_task(passage, args.copy) for passage in prompts]
    if args.peer:
        peer_main(args, prompts)
        return
    answers = ask_peer(args)
    ours = [our_answer(args, prompt) for prompt in prompts]
    print_agreement(args, ours, answers[BASE])
    if args.self:
        print_variations(ours, answers)


if __name__ == "__main__":
    main()
