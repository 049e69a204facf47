#!/usr/bin/env python3
"""How long from starting an engine to its first generated token?

usage: startup.py MODEL.gguf [--peers ik,llamacpp,openvino] [--threads N] [--pairs 5] [--cold]

Each engine reads "Hello" (or as many tokens) and computes one token, in interleaved rounds. What is timed:
  tierkv     the whole process, exec to exit: `tierkv run -p Hello --raw -n 1`
  ik         the whole process, exec to exit: `llama-bench -p 1 -n 0 -r 1 -w 0`: no text to tokenise, no token
             to print, and a context of one token
  llamacpp, openvino
             from the moment that Python has imported the library until the token is known. So what a program
             would need for exec, for linking its libraries and for its exit is left out; it's printed as
             "around it", most of which is Python.
Each difference is in the peers' favour. Warm: the model is in the page cache. --cold: the model's pages are
dropped before each run (programs and libraries stay warm); the share that stayed all the same is recorded.
"""

import argparse
import ctypes
import json
import mmap
import os
import pathlib
import statistics

import children
import peers
import results

STARTED = ("ik", "llamacpp", "openvino")
TIMES = ("start_seconds", "around_seconds")


def tierkv_command(args):
    command = [args.tierkv, "run", "-m", args.model, "-p", "Hello", "--raw", "-n", 1, "--temp", 0, "-q"]
    return command + ["-t", args.threads, "--kv", "exact"]


def ik_command(args):
    return [
        args.ik,
        "-m",
        args.model,
        "-p",
        1,
        "-n",
        0,
        "-r",
        1,
        "-w",
        0,
        "-t",
        args.threads,
        *args.ik_flags.split(),
    ]


def command_of(engine, args):
    if isinstance(engine, peers.ScriptPeer):
        script = peers.HERE / engine.script
        return [engine.program(), script, args.model, "--start", "--threads", args.threads]
    return tierkv_command(args) if engine.name == "tierkv" else ik_command(args)


def start_once(engine, args):
    """What is timed, the rest of the process, and the share of the model that was in memory before."""
    if args.cold:
        drop_from_cache(args.model)
    cached = cached_share(args.model)
    finished = children.run(command_of(engine, args), args.timeout)
    start = finished.seconds
    if isinstance(engine, peers.ScriptPeer):
        start = json.loads(finished.stdout.splitlines()[-1])["start_seconds"]
    return {"start_seconds": start, "around_seconds": finished.seconds - start, "model_cached": cached}


def drop_from_cache(path):
    """Asks the kernel to forget the file's pages; those that another process has mapped stay."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def cached_share(path):
    """The share of a file's pages that are in memory."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE) as view:
        pages = (ctypes.c_ubyte * -(-len(view) // mmap.PAGESIZE))()
        start = ctypes.c_char.from_buffer(
            view
        )  # MAP_PRIVATE lets ctypes have the address; nothing is written
        failed = libc.mincore(ctypes.addressof(start), len(view), pages)
        del start
        if failed:
            raise OSError(ctypes.get_errno(), "mincore failed")
        return sum(page & 1 for page in pages) / len(pages)


def measure_rounds(args, engines, record):
    """{engine: its runs}. The first start of each is thrown away: it warms programs and libraries."""
    runs = {engine: [] for engine in engines}
    for index in range(-1, args.pairs):
        for engine in list(runs)[:: -1 if index % 2 else 1]:
            try:
                run = start_once(engine, args)
            except children.ChildFailed as error:
                if engine.name == "tierkv":
                    raise SystemExit(f"tierkv failed: {error}") from error
                print(f"{engine.name} failed: {error}")
                del runs[engine]
                continue
            if index >= 0:
                runs[engine].append(run)
                record({"engine": engine.name, "what": "start", "round": index, **run})
    return runs


def table(runs):
    yield "| engine | start, ms | around it, ms | it ÷ tierkv |\n|---|---|---|---|"
    (ours,) = (own for engine, own in runs.items() if engine.name == "tierkv")
    for engine, own in runs.items():
        start, around = (statistics.median(run[key] for run in own) * 1000 for key in TIMES)
        ratios = [b["start_seconds"] / a["start_seconds"] for a, b in zip(ours, own)]
        spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
        yield f"| {engine.name} | {start:.0f} | {around:.0f} | {spread} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("model")
    parser.add_argument("--peers", default=",".join(STARTED))
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--cold", action="store_true", help="the model comes from disk each time")
    parser.add_argument("--results", type=pathlib.Path, default=results.FOLDER)
    peers.add_options(parser)
    args = parser.parse_args()
    unknown = set(args.peers.split(",")) - set(STARTED)
    if unknown:
        parser.error(f"{', '.join(unknown)}: not one of {', '.join(STARTED)}")
    chosen = [peers.TierKv(args, "exact")]
    chosen += peers.installed(peers.PEERS[name](args, "f16") for name in args.peers.split(","))
    model = pathlib.Path(args.model).name
    out = results.Results(args.results, "startup", model=model, cold=args.cold, threads=args.threads)
    runs = measure_rounds(args, chosen, out.add)
    how = "cold" if args.cold else "warm"
    where = f"{args.threads} threads, {out.common['cpu']}"
    print(f"{model}, {how}, {where}, {args.pairs} rounds; runs in {out.path}\n")
    print("\n".join(table(runs)))
    stayed = max(run["model_cached"] for own in runs.values() for run in own)
    if args.cold and stayed > 0.02:
        print(
            f"not cold: up to {stayed:.0%} of the model stayed in memory; does another process have it open?"
        )


if __name__ == "__main__":
    main()
