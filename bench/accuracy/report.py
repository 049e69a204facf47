#!/usr/bin/env python3
"""Makes the tables of docs/accuracy.md, and docs/accuracy.svg, of what the other scripts measured.

usage: report.py [RESULTS.jsonl...]

Without files: all of bench/results/accuracy-*.jsonl. A table stands between <!-- NAME --> and <!-- /NAME
-->; a table for which nothing was measured says so. Of a case that was measured twice the newest counts.
"""

import argparse
import collections
import pathlib
import re

import evaluation
import tables
from results import FOLDER, read  # found by way of evaluation

DOCUMENT = evaluation.ROOT / "docs/accuracy.md"
PLOT = evaluation.ROOT / "docs/accuracy.svg"
CASE = "bench model profile text layout prefix tokens expect before seed request kv_ram activations".split()


def newest(runs):
    """One run a case, in the order in which cases came up first. Requests that share kind, order and text
    differ in their passage: their `request` tells them apart."""
    found = {}
    for run in sorted(runs, key=lambda run: run["time"]):
        found[tuple(run.get(key) for key in CASE)] = run
    return list(found.values())


def fill(document, name, lines):
    """The document with new lines between a table's markers."""
    body = "\n".join(lines) or "Not measured yet: `bench/accuracy/all.sh` does."
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    if not pattern.search(document):
        raise SystemExit(f"{DOCUMENT} has no place for {name}")
    return pattern.sub(lambda match: f"{match[1]}{body}\n{match[2]}", document)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    args = parser.parse_args()
    runs = newest(read(args.files or sorted(FOLDER.glob("accuracy-*.jsonl"))))
    by_bench = collections.defaultdict(list)
    for run in runs:
        by_bench[run["bench"]].append(run)
    document = DOCUMENT.read_text(encoding="utf-8")
    for name, make in tables.TABLES.items():
        document = fill(document, name, list(make(by_bench)))
    DOCUMENT.write_text(document, encoding="utf-8")
    PLOT.write_text("\n".join(tables.draw(by_bench["kld"])) + "\n", encoding="utf-8")
    print(f"{DOCUMENT} and {PLOT}: {len(runs)} measurements")


if __name__ == "__main__":
    main()
