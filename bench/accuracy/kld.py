#!/usr/bin/env python3
"""What layouts of the cache change: KLD, its 99th percentile, same top token and perplexity against exact.

usage: kld.py MODEL.gguf TEXT... [--layouts k5v4,4.25,balanced] [--prefix 3072,6144] [--tokens 512]
              [--profile FILE] [--activations int8]

The setting of docs/decisions.md, "How accuracy is measured": --prefix tokens read exactly and settled,
--tokens more by teacher forcing, float32 activations (int8 only to compare with engines that have nothing
else). A layout is a codec, planned bits an element, or a quality, for which the planner has no RAM ceiling
and chooses for speed. What the program refuses is left out.
"""

import argparse
import pathlib
import sys

import evaluation

LAYOUTS = "k8v8,k6v4,k5v4,k5v3,k4v3,4.75,4.25,3.75,3.5,3.25,lr75,lr50,high,balanced,compact"


def measure(args, out, text, layout, prefix):
    try:
        figures = evaluation.evaluate(
            args, text, layout, prefix, args.tokens, "--activations", args.activations
        )
    except evaluation.RunFailed as refusal:
        print(f"{layout} is left out: {refusal}", file=sys.stderr)
        return
    name = pathlib.Path(text).stem
    out.add({"text": name, "layout": layout, "prefix": prefix, "tokens": args.tokens, **figures})
    print(
        f"{name:8} {prefix:5} {layout:9} {figures['kld']:.6f} at {figures['bits_per_element']:.2f} bits",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("model")
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--layouts", default=LAYOUTS)
    parser.add_argument("--prefix", default="3072")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--activations", default="f32", choices=["f32", "int8"])
    evaluation.add_options(parser)
    args = parser.parse_args()
    kind = "kld" if args.activations == "f32" else "kld-int8"
    out = evaluation.new_results(kind, args, profile=evaluation.profile_name(args))
    for prefix in args.prefix.split(","):
        for layout in args.layouts.split(","):
            for text in args.texts:
                measure(args, out, text, layout, int(prefix))


if __name__ == "__main__":
    main()
