#!/usr/bin/env python3
"""What means hide: on how many of many different requests does a compressed cache do material harm?

usage: harm.py MODEL.gguf TEXT... [--layout balanced] [--kv-ram SIZE] [--requests 64] [--tokens 32]

Each request is a passage of a text and an instruction of one of eight kinds, which stands before the
passage, after it, or at both ends. The exact cache answers it greedily; then that very answer is read by
teacher forcing under the layout and under the exact cache. A request is materially harmed if the layout
gives the exact cache's answer less than e^-0.5 of its probability a token (HARM_NATS), geometric mean over
the answer. Prints that share with its 95 % interval (Wilson), and how KLD spreads over requests. Activations
are int8, as the model runs.
"""

import argparse
import math
import pathlib
import random
import sys
import tempfile

import evaluation

HARM_NATS = 0.5
KINDS = {
    "summary": "Summarise the text in one sentence.",
    "keywords": "List the five most important terms of the text.",
    "title": "Give the text a title.",
    "question": "What must a reader of the text do, and what must he never do?",
    "first": "Quote the first sentence of the text.",
    "explain": "Explain the text to a child.",
    "german": "Translate the beginning of the text into German.",
    "json": 'Write a JSON object with the keys "topic" and "names" for the text.',
}
ORDERS = {
    "before": "{ask}\n\n{text}\n\nAnswer:",
    "after": "{text}\n\n{ask}\nAnswer:",
    "both": "{ask}\n\n{text}\n\n{ask}\nAnswer:",
}


def make_requests(args):
    """(kind, order, text's name, prompt): every kind in every order, passages from all over the texts."""
    rng = random.Random(args.seed)
    texts = [(pathlib.Path(path).stem, pathlib.Path(path).read_text(encoding="utf-8")) for path in args.texts]
    cases = [(kind, order) for kind in KINDS for order in ORDERS]
    rng.shuffle(cases)
    for i in range(args.requests):
        kind, order = cases[i % len(cases)]
        name, text = texts[i % len(texts)]
        start = text.index("\n\n", rng.randrange(len(text) - 3 * args.characters)) + 2
        passage = text[start : start + args.characters].rsplit(maxsplit=1)[0]
        yield kind, order, name, ORDERS[order].format(ask=KINDS[kind], text=passage)


def measure(args, prompt):
    """Figures of one request. An answer of two tokens or fewer is refused: there is nothing to compare."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.write(prompt)
        file.flush()
        options = [
            "-m",
            args.model,
            "-f",
            file.name,
            "--raw",
            "--temp",
            0,
            "--kv",
            "exact",
            "-n",
            args.tokens,
        ]
        answer = evaluation.tierkv(args, "run", *options, "--no-history")
        file.write(answer["text"])
        file.flush()
        prefix, tokens = answer["timings"]["prompt_n"], answer["timings"]["predicted_n"] - 1
        more = ["--kv-ram", args.kv_ram] if args.kv_ram else []
        return evaluation.evaluate(
            args, file.name, args.layout, prefix, tokens, *more, "--activations", args.activations
        )


def report(lost, klds):
    harmed = sum(nats > HARM_NATS for nats in lost)
    low, high = evaluation.wilson(harmed, len(lost))
    klds = sorted(klds)
    print(
        f"{harmed} of {len(lost)} materially harmed, 95 % interval {100 * low:.1f} to {100 * high:.1f} %; "
        f"KLD median {klds[len(klds) // 2]:.5f}, most {klds[-1]:.5f}; most lost {max(lost):.3f} nats a token"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("model")
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--layout", default="balanced")
    parser.add_argument("--kv-ram", default="", help="RAM for the KV under the layout (default: no ceiling)")
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--skip", type=int, default=0, help="of these requests, from the first")
    parser.add_argument("--tokens", type=int, default=32, help="of each answer")
    parser.add_argument("--characters", type=int, default=4000, help="of each passage")
    parser.add_argument("--activations", default="int8")
    parser.add_argument("--seed", type=int, default=1)
    evaluation.add_options(parser)
    args = parser.parse_args()
    out = evaluation.new_results("harm", args, profile=evaluation.profile_name(args), kv_ram=args.kv_ram)
    lost, klds = [], []
    for i, (kind, order, name, prompt) in enumerate(list(make_requests(args))[args.skip :], args.skip):
        try:
            figures = measure(args, prompt)
        except evaluation.RunFailed as failure:
            print(f"{kind}, {order}: left out: {failure}", file=sys.stderr)
            continue
        lost.append(math.log(figures["ppl"] / figures["ppl_exact"]))
        klds.append(figures["kld"])
        case = {"request": i, "kind": kind, "order": order, "text": name, "layout": args.layout}
        out.add({**case, "activations": args.activations, "lost_nats": lost[-1], **figures})
        print(
            f"{kind:9} {order:7} {name:7} lost {lost[-1]:+.4f} nats a token, KLD {klds[-1]:.5f}", flush=True
        )
    report(lost, klds)


if __name__ == "__main__":
    main()
