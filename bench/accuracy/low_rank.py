#!/usr/bin/env python3
"""What the low-rank codec costs at each rank, and the bytes that rotated integers need for the same.

usage: low_rank.py MODEL.gguf TEXT... [--layouts lr75,lr50,lr50i8] [--ladder 4.25,3.75,3.5] [--profile FILE]
       low_rank.py --table FILE.jsonl...

The setting of docs/decisions.md, "How accuracy is measured". The ladder is `--kv BITS`, planned precision with
the profile; between its measured rungs log(KLD) is taken as linear in bits. --table prints the tables of
results from before.
"""

import argparse
import math
import pathlib
import sys

import evaluation
import tables

LAYOUTS = "lr75,lr75i8,lr50,lr50i8,lr37.5,lr37.5i8,lr25,lr25i8"
LADDER = "4.25,3.75,3.5,3.25,3"
REFERENCES = ("lr75", "lr50")
BASIS = "bits_per_element_with_basis"


def measure(args, out, text, layout):
    options = ["-m", args.model, "-f", text, "--prefix", args.prefix, "--tokens", args.tokens, "--kv", layout]
    try:
        found = evaluation.tierkv(args, "eval", *options, "--profile", args.profile)
    except evaluation.RunFailed as refusal:
        print(f"{layout} is left out: {refusal}", file=sys.stderr)
        return None
    kept = {key: found[key] for key in (*evaluation.EVAL_FIGURES, BASIS, "basis_bytes")}
    run = {"text": pathlib.Path(text).stem, "layout": layout, "prefix": args.prefix, "tokens": args.tokens, **kept}
    out.add(run)
    print(f"{run['text']:8} {layout:9} {run['kld']:.6f} at {run['bits_per_element']:.2f} bits", flush=True)
    return {**out.common, **run}


def is_low_rank(layout):
    return layout.startswith("lr")


def bits_for(kld, rungs):
    """Bits at which the ladder (bits, KLD) has this KLD; None beyond its ends."""
    rungs = sorted(rungs)
    for (less, worse), (more, better) in zip(rungs, rungs[1:]):
        if better <= kld <= worse:
            share = math.log(worse / kld) / math.log(worse / better) if worse > better else 0
            return less + share * (more - less)
    return None


def rank_table(runs):
    yield from tables.table(
        "model", "codec", "bits", "with basis", "KLD", "99th percentile", "same top token", "texts"
    )
    for (model, layout), found in tables.grouped(runs, "model", "layout").items():
        shown = layout if is_low_rank(layout) or found[0]["profile"] == "none" else f"{layout}, profile"
        yield tables.row(
            tables.name_of(model),
            shown,
            f"{tables.mean(found, 'bits_per_element'):.2f}",
            f"{tables.mean(found, BASIS):.2f}" if is_low_rank(layout) else "",
            tables.nats(tables.mean(found, "kld")),
            tables.nats(tables.mean(found, "kld_p99")),
            tables.percent(tables.mean(found, "top1")),
            ", ".join(run["text"] for run in found),
        )


def ladder_table(runs):
    """How many times the bytes of the ladder a rank takes, at equal KLD."""
    yield from tables.table("model", "codec", "KLD", "its bits", "the ladder's bits", "times fewer", "with basis")
    for (model,), of_model in tables.grouped(runs, "model").items():
        by_layout = tables.grouped(of_model, "layout")
        rungs = [
            (tables.mean(found, "bits_per_element"), tables.mean(found, "kld"))
            for (layout,), found in by_layout.items()
            if not is_low_rank(layout)
        ]
        for layout in REFERENCES:
            found = by_layout.get((layout,))
            kld = tables.mean(found, "kld") if found else 0
            bits = bits_for(kld, rungs) if found else None
            if bits is None:
                continue
            own, basis = tables.mean(found, "bits_per_element"), tables.mean(found, BASIS)
            yield tables.row(
                tables.name_of(model),
                layout,
                tables.nats(kld),
                f"{own:.2f}",
                f"{bits:.2f}",
                f"{own / bits:.2f}",
                f"{basis / bits:.2f}",
            )


def print_tables(runs):
    print("\n".join(rank_table(runs)) + "\n\n" + "\n".join(ladder_table(runs)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("model", nargs="?")
    parser.add_argument("texts", nargs="*")
    parser.add_argument("--layouts", default=LAYOUTS)
    parser.add_argument("--ladder", default=LADDER)
    parser.add_argument("--prefix", type=int, default=3072)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--table", action="store_true", help="the arguments are results from before")
    evaluation.add_options(parser)
    args = parser.parse_args()
    if args.table:
        print_tables(list(evaluation.results.read([args.model, *args.texts])))
        return
    out = evaluation.new_results("low-rank", args, profile=evaluation.profile_name(args))
    layouts = [layout for layout in f"{args.layouts},{args.ladder}".split(",") if layout]
    runs = [measure(args, out, text, layout) for layout in layouts for text in args.texts]
    print_tables([run for run in runs if run is not None])


if __name__ == "__main__":
    main()
