#!/usr/bin/env python3
"""tierkv against llama.cpp on the same model, text and threads, in interleaved pairs.

usage: compare.py MODEL.gguf TEXT [--tokens 512] [--generate 64] [--threads N] [--pairs 5]
                  [--kv exact] [--peer-kv f16] [--ram SIZE] [--peer-python .venv-peer/bin/python]

Machines are noisy, so each pair runs both engines one after the other, in turns first, and what
counts is the median of the pairs' ratios, not a time. Every run goes to bench/results/ as a line of
JSON; the summary is printed. Make the peer's Python once (this compiles llama.cpp):
    python3 -m venv .venv-peer && .venv-peer/bin/pip install -r bench/compare/requirements.txt
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PEER = pathlib.Path(__file__).with_name("peer_llamacpp.py")
RATES = ("prompt_per_second", "predicted_per_second")


def output_of(command):
    """What a command prints, as text. Its failure ends the comparison, with its own words."""
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}\n{result.stderr}failed: {result.returncode}")
    return result.stdout


def cut_text(args, path):
    """Writes the text of the first args.tokens tokens to `path`."""
    output_of(
        [args.peer_python, PEER, args.model, args.text, "--tokens", str(args.tokens), "--cut", path]
    )


def run_tierkv(args, text):
    command = [args.tierkv, "run", "-m", args.model, "-f", text, "--raw", "--json", "--temp", "0"]
    command += ["-n", str(args.generate), "--ignore-eos", "-t", str(args.threads), "--kv", args.kv]
    if args.ram:
        command += ["--ram", args.ram]
    report = json.loads(output_of(command))
    figures = {key: report["timings"][key] for key in ("prompt_n", "predicted_n") + RATES}
    return {
        "engine": "tierkv",
        "kv": args.kv,
        "isa": report.get("isa"),
        "threads": args.threads,
        "peak_rss_bytes": report["peak_rss_bytes"],
        **figures,
    }


def run_peer(args):
    command = [args.peer_python, PEER, args.model, args.text, "--tokens", str(args.tokens)]
    command += ["--generate", str(args.generate), "--threads", str(args.threads), "--kv", args.peer_kv]
    return json.loads(output_of(command))


def cpu_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def commit():
    git = ["git", "-C", ROOT, "describe", "--always", "--dirty"]
    return subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()


def median_and_range(values):
    return f"{statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def summary(pairs):
    """The lines to print: medians of both engines, and the median of the ratios."""
    for rate, name in zip(RATES, ("prefill", "decode")):
        ours, peers = ([run[rate] for run in runs] for runs in zip(*pairs))
        ratios = [a / b for a, b in zip(ours, peers)]
        yield (
            f"{name}: tierkv {statistics.median(ours):.1f}, llama.cpp {statistics.median(peers):.1f} "
            f"tokens/s; ratio {median_and_range(ratios)} over {len(pairs)} pairs"
        )
    ours, peers = ([run["peak_rss_bytes"] / 2**20 for run in runs] for runs in zip(*pairs))
    yield f"peak RSS: tierkv {statistics.median(ours):.0f}, llama.cpp {statistics.median(peers):.0f} MiB"


def measure_pairs(args, text, record):
    """[(ours, peer)], each also given to `record`."""
    pairs = []
    for index in range(args.pairs):
        runs = {}
        for engine in ("tierkv", "peer") if index % 2 == 0 else ("peer", "tierkv"):
            runs[engine] = run_tierkv(args, text) if engine == "tierkv" else run_peer(args)
            record({**runs[engine], "pair": index})
        pair = runs["tierkv"], runs["peer"]
        if any(pair[0][key] != pair[1][key] for key in ("prompt_n", "predicted_n")):
            print(f"note: token counts differ: {[(r['prompt_n'], r['predicted_n']) for r in pair]}")
        pairs.append(pair)
    return pairs


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("--tokens", type=int, default=512, help="of prompt")
    parser.add_argument("--generate", type=int, default=64, help="tokens to generate")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--kv", default="exact", help="tierkv's KV layout")
    parser.add_argument("--peer-kv", default="f16", help="llama.cpp's KV type: f16, q8_0, q4_0")
    parser.add_argument("--ram", help="tierkv's RAM ceiling")
    parser.add_argument("--tierkv", default=ROOT / "build/bin/tierkv")
    parser.add_argument("--peer-python", default=ROOT / ".venv-peer/bin/python")
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "bench/results")
    args = parser.parse_args()
    now = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0).isoformat()
    args.results.mkdir(parents=True, exist_ok=True)
    common = {
        "time": now,
        "commit": commit(),
        "cpu": cpu_name(),
        "model": pathlib.Path(args.model).name,
        "text": pathlib.Path(args.text).name,
    }
    path = args.results / f"compare-{now.replace(':', '')}.jsonl"
    with tempfile.TemporaryDirectory() as folder, open(path, "w", encoding="utf-8") as results:

        def record(run):
            results.write(json.dumps({**common, **run}) + "\n")
            results.flush()

        text = os.path.join(folder, "prompt.txt")
        cut_text(args, text)
        pairs = measure_pairs(args, text, record)
    print(f"{common['model']}, {args.tokens} + {args.generate} tokens, {args.threads} threads, {common['cpu']}")
    print("\n".join(summary(pairs)))
    print(f"runs: {path}")


if __name__ == "__main__":
    main()
