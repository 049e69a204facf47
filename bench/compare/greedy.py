#!/usr/bin/env python3
"""Do tierkv and llama.cpp choose the same tokens? Greedy continuations of passages of the texts.

usage: greedy.py MODEL.gguf TEXT... [--prompts 40] [--generate 48] [--gap 0.25] [--peer-python PYTHON]

Both engines round activations to int8, each in its own way, and that moves logits by about 0.1: where
the two best tokens lie closer than that, either may win, and everything after differs. So, beside the
share of equal answers, this prints the gap between llama.cpp's two best logits where answers part, and
the share among prompts whose answer llama.cpp decides by at least --gap at every token.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def passages(texts, count):
    """`count` pieces of about 700 characters, evenly spread over the texts, whole paragraphs first."""
    each = (count + len(texts) - 1) // len(texts)
    for path in texts:
        text = pathlib.Path(path).read_text(encoding="utf-8")
        for i in range(each):
            start = text.index("\n\n", i * (len(text) - 3000) // each) + 2
            yield text[start : start + 700]


def peer_answers(model, prompts, n):
    """llama.cpp's greedy ids and the gaps of its two best logits, one list for each prompt."""
    import llama_cpp as L
    import numpy as np

    llama = L.Llama(model, n_ctx=2048, n_batch=512, n_threads=1, n_threads_batch=1, verbose=False)
    context, n_vocab = llama._ctx.ctx, llama.n_vocab()

    def decode(ids):
        array = (L.llama_token * len(ids))(*ids)
        assert L.llama_decode(context, L.llama_batch_get_one(array, len(ids))) == 0
        return np.ctypeslib.as_array(L.llama_get_logits_ith(context, -1), shape=(n_vocab,)).copy()

    for prompt in prompts:
        L.llama_memory_clear(L.llama_get_memory(context), True)
        logits = decode(llama.tokenize(prompt.encode(), add_bos=True, special=True))
        ids, gaps = [], []
        for _ in range(n):
            second, best = np.sort(logits[np.argpartition(logits, -2)[-2:]])
            ids.append(int(logits.argmax()))
            gaps.append(float(best - second))
            logits = decode(ids[-1:])
        yield {"ids": ids, "gaps": gaps}


def our_answer(args, prompt):
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.write(prompt)
        file.flush()
        command = [args.tierkv, "run", "-m", args.model, "-f", file.name, "--raw", "--temp", "0", "--json",
                   "--ignore-eos", "-n", str(args.generate)]
        return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["tokens"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--prompts", type=int, default=40)
    parser.add_argument("--generate", type=int, default=48)
    parser.add_argument("--gap", type=float, default=0.25)
    parser.add_argument("--tierkv", default=str(ROOT / "build/bin/tierkv"))
    parser.add_argument("--peer-python", default=str(ROOT / ".venv-peer/bin/python"))
    parser.add_argument("--peer", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    prompts = list(passages(args.texts, args.prompts))
    if args.peer:
        json.dump(list(peer_answers(args.model, prompts, args.generate)), sys.stdout)
        return
    peer = json.loads(subprocess.run([args.peer_python, __file__, *sys.argv[1:], "--peer"], check=True,
                                     stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)
    equal = decided = decided_equal = 0
    parted = []
    for prompt, theirs in zip(prompts, peer):
        ours = our_answer(args, prompt)
        at = next((i for i, (a, b) in enumerate(zip(ours, theirs["ids"])) if a != b), None)
        clear = min(theirs["gaps"]) >= args.gap
        equal += at is None
        decided += clear
        decided_equal += clear and at is None
        if at is not None:
            parted.append(round(theirs["gaps"][at], 4))
    print(f"{pathlib.Path(args.model).name}: {equal} of {len(prompts)} answers of {args.generate} tokens equal; "
          f"{decided_equal} of the {decided} that llama.cpp decides by {args.gap} or more at every token")
    print(f"gaps where the others part, ascending: {sorted(parted)}")


if __name__ == "__main__":
    main()
