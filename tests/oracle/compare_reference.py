#!/usr/bin/env python3
"""Perplexity and KL divergence between two raw float32 files of logits [rows, vocab].

usage: compare_reference.py REFERENCE.bin OTHER.bin IDS.json --vocab N [--first POSITION]
                            [--max-kld NATS] [--max-ppl-ratio R]
Row i of both files belongs to position FIRST + i of IDS.json and predicts the token after it; without
--first the last row belongs to the last id. Prints one JSON object: ppl_reference, ppl, kld (mean
KL(reference || other), nats a token), kld_p99, kld_max, top1 (share of rows with the same most likely
token), rows. Exits with 1 if a bound is passed.
"""
import argparse
import json
import sys

import numpy as np

ROW_BLOCK = 128


def log_softmax(z):
    """Over the last dimension, in float64."""
    z = z.astype(np.float64)
    z -= z.max(axis=-1, keepdims=True)
    return z - np.log(np.exp(z).sum(axis=-1, keepdims=True))


def open_logits(path, vocab):
    """A memory map [rows, vocab]."""
    flat = np.memmap(path, dtype="<f4", mode="r")
    if len(flat) % vocab:
        raise SystemExit(f"{path}: {len(flat)} floats are not rows of {vocab} logits")
    return flat.reshape(-1, vocab)


def compare(reference, other, following):
    """The figures of two arrays [rows, vocab]. `following` are the tokens after the rows' positions;
    the last may be missing."""
    rows = len(reference)
    kld, same, nll = np.empty(rows), 0, np.zeros(2)
    for begin in range(0, rows, ROW_BLOCK):
        p = log_softmax(reference[begin : begin + ROW_BLOCK])
        q = log_softmax(other[begin : begin + ROW_BLOCK])
        kld[begin : begin + len(p)] = (np.exp(p) * (p - q)).sum(axis=-1)
        same += int((p.argmax(axis=-1) == q.argmax(axis=-1)).sum())
        targets = following[begin : begin + len(p)]
        at = np.arange(len(targets))
        nll -= p[at, targets].sum(), q[at, targets].sum()
    ppl = np.exp(nll / max(1, len(following)))
    return {
        "ppl_reference": float(ppl[0]),
        "ppl": float(ppl[1]),
        "kld": float(kld.mean()),
        "kld_p99": float(np.quantile(kld, 0.99)),
        "kld_max": float(kld.max()),
        "top1": same / rows,
        "rows": rows,
    }


def passed_bounds(figures, args):
    """Sentences about the bounds that were passed."""
    if figures["kld"] > args.max_kld or not np.isfinite(figures["kld"]):
        yield f"mean KLD {figures['kld']:.6f} is above {args.max_kld}"
    ratio = figures["ppl"] / figures["ppl_reference"]
    if abs(np.log(ratio)) > np.log(args.max_ppl_ratio) or not np.isfinite(ratio):
        yield f"perplexity is {ratio:.6f} times the reference's; allowed {args.max_ppl_ratio}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("reference")
    parser.add_argument("other")
    parser.add_argument("ids")
    parser.add_argument("--vocab", type=int, required=True)
    parser.add_argument("--first", type=int, help="position of the first row")
    parser.add_argument("--max-kld", type=float, default=np.inf)
    parser.add_argument("--max-ppl-ratio", type=float, default=np.inf)
    args = parser.parse_args()
    with open(args.ids, encoding="utf-8") as file:
        ids = json.load(file)
    reference, other = (open_logits(path, args.vocab) for path in (args.reference, args.other))
    rows = len(reference)
    first = len(ids) - rows if args.first is None else args.first
    if len(other) != rows or first < 0 or first + rows > len(ids):
        raise SystemExit(f"{rows} and {len(other)} rows from position {first} of {len(ids)} tokens")
    figures = compare(reference, other, np.array(ids[first + 1 : first + 1 + rows]))
    print(json.dumps(figures))
    faults = list(passed_bounds(figures, args))
    for fault in faults:
        print(f"{args.other}: {fault}", file=sys.stderr)
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
