#!/usr/bin/env python3
"""tierkv against other engines on the same model and threads, in interleaved rounds.

usage: compare.py MODEL.gguf [--peers ik,llamacpp,llamacpp-node,openvino] [--what prefill,decode]
                  [--tokens 512,4096] [--generate 32] [--threads 1,2] [--pairs 5] [--kv exact,k5v4]
                  [--peer-kv f16,q8_0] [--busy N]

Machines are noisy, so each round runs every engine once, forwards and backwards in turns, and what counts is
the median over the rounds of tierkv's rate divided by the other's, not a rate. Prefill is the reading of a
prompt of --tokens; decode is the generation of --generate tokens after so many. --busy keeps N CPUs busy with
a process each. Every run goes to bench/results/ as a line of JSON; the table is printed. A peer that isn't
installed is left out, with a line that says how to get it.
"""

import argparse
import itertools
import os
import pathlib
import statistics

import children
import peers
import results


def commas(kind):
    """For argparse: a list of `kind`, separated by commas."""
    return lambda text: [kind(word) for word in text.split(",")]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("model")
    parser.add_argument("--peers", type=commas(str), default=list(peers.PEERS), help=",".join(peers.PEERS))
    parser.add_argument("--what", type=commas(str), default=list(peers.RATES), help="prefill,decode")
    parser.add_argument("--tokens", type=commas(int), default=[512, 4096], help="of prompt, or before decode")
    parser.add_argument("--generate", type=int, default=32, help="tokens of a decode measurement")
    parser.add_argument("--threads", type=commas(int), default=[os.cpu_count()])
    parser.add_argument("--pairs", type=int, default=5, help="rounds for each point")
    parser.add_argument("--kv", type=commas(str), default=["exact"], help="tierkv's KV layouts")
    parser.add_argument("--peer-kv", type=commas(str), default=["f16"], help="peers' KV types: f16, q8_0")
    parser.add_argument("--busy", type=int, default=0, help="CPUs that a neighbour process keeps busy")
    parser.add_argument("--results", type=pathlib.Path, default=results.FOLDER)
    peers.add_options(parser)
    args = parser.parse_args()
    for word, known in [
        *((name, peers.PEERS) for name in args.peers),
        *((what, peers.RATES) for what in args.what),
    ]:
        if word not in known:
            parser.error(f"{word}: not one of {', '.join(known)}")
    return args


def engines_of(args):
    """tierkv first, with each of its layouts; then the peers that are there."""
    ours = [peers.TierKv(args, kv) for kv in args.kv]
    if not ours[0].is_installed():
        raise SystemExit(f"no {ours[0].program()}: build it with {ours[0].install}")
    found = peers.installed(peers.PEERS[name](args, args.peer_kv[0]) for name in args.peers)
    return ours + [type(peer)(args, kv) for peer in found for kv in args.peer_kv]


def points_of(args):
    for what, threads, tokens in itertools.product(args.what, args.threads, args.tokens):
        yield peers.Point(args.model, what, tokens, args.generate, threads)


def measure_rounds(args, engines, point, record):
    """{engine: its runs, one a round}. An engine that fails is reported and left out of this point."""
    runs = {engine: [] for engine in engines if point.what in engine.measures}
    for index in range(args.pairs):
        for engine in list(runs)[:: -1 if index % 2 else 1]:
            try:
                run = engine.measure(point)
            except children.ChildFailed as error:
                print(f"{engine.name} {engine.kv} failed, {point}: {error}")
                del runs[engine]
                continue
            record({**run, "round": index})
            runs[engine].append(run)
    return runs


def ratio_cell(ours, theirs, rate):
    """The median of the rounds' ratios and their range."""
    ratios = [a[rate] / b[rate] for a, b in zip(ours, theirs)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"


def table_rows(runs, point, layouts):
    """A line of the table for each engine: its medians, and tierkv's rate divided by its own."""
    rate = peers.RATES[point.what]
    by_layout = {engine.kv: own for engine, own in runs.items() if engine.name == "tierkv"}
    for engine, own in runs.items():
        speed = statistics.median(run[rate] for run in own)
        peak = statistics.median(run["peak_rss_bytes"] for run in own) / 2**20
        ratios = [ratio_cell(by_layout[kv], own, rate) if kv in by_layout else "" for kv in layouts]
        cells = [point.what, point.tokens, point.threads, engine.name, own[0]["kv"]]
        cells += [f"{speed:.1f}", f"{peak:.0f}", *ratios]
        yield "| " + " | ".join(map(str, cells)) + " |"


def table_head(layouts):
    titles = ["what", "tokens", "threads", "engine", "KV", "tokens/s", "peak RSS, MiB"]
    titles += [f"tierkv {kv} ÷ it" for kv in layouts]
    return "| " + " | ".join(titles) + " |\n" + "|---" * len(titles) + "|"


def main():
    args = parse_arguments()
    engines = engines_of(args)
    model = pathlib.Path(args.model).name
    out = results.Results(args.results, "compare", model=model, busy=args.busy)
    rows = []
    with children.busy(args.busy):
        for point in points_of(args):
            rows += table_rows(measure_rounds(args, engines, point, out.add), point, args.kv)
    busy = f", busy neighbour processes: {args.busy}" if args.busy else ""
    print(f"{model}, {out.common['cpu']}, {args.pairs} rounds{busy}; runs in {out.path}\n")
    print("\n".join([table_head(args.kv), *rows]))


if __name__ == "__main__":
    main()
