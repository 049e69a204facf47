#!/usr/bin/env python3
"""A prompt many times what RAM can hold, against the same prompt with all the RAM it wants.

usage: beyond_ram.py MODEL TEXT [--tokens N] [--above SIZE_MIB] [-n ANSWER] [--flash DIR]

The model's packed weights plus --above is the RAM ceiling; with it, everything but the first and the most
recent tokens goes to flash, in a cgroup that allows no more memory than that where one can be made. Then
the same request without a ceiling, all in RAM. Both must come to the same tokens, and at the last one to the
same logits, bit for bit. Peak RSS is what the system says of the ended process. A JSON line for each run goes to bench/results/beyond-ram-TIME.jsonl.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "bench/compare"))

import results  # noqa: E402  (bench/compare/results.py)

MIB = 1 << 20
CGROUPS = (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max"))


def make_cgroup(limit):
    """A folder whose cgroup.procs may be written, or None."""
    for root, name in CGROUPS:
        group = pathlib.Path(root) / f"tierkv-beyond-{os.getpid()}"
        try:
            group.mkdir()
            (group / name).write_text(str(limit))
            return group
        except OSError:
            if group.exists():
                group.rmdir()
    return None


def run(args, *options, group=None):
    """What `tierkv run` reports, with the peak RSS the system saw."""
    command = [args.tierkv, "run", "-m", args.model, "--raw", "--temp", "0", "--ignore-eos", "--json",
               "--no-history", "-n", str(args.n), "--expect", str(args.n), *options]
    enter = (lambda: (group / "cgroup.procs").write_text(str(os.getpid()))) if group else None
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=enter)
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"exit code {process.returncode}: {out}")
    return {**json.loads(out), "outside_peak_rss_bytes": usage.ru_maxrss * 1024}


def packed_bytes(args):
    out = subprocess.run([args.tierkv, "inspect", "-m", args.model, "--json"], capture_output=True, text=True, check=True)
    return json.loads(out.stdout)["weight_bytes"]


def cut(args, folder):
    """A file of about args.tokens tokens of args.text, repeated as often as needed; never fewer."""
    text = pathlib.Path(args.text).read_text(encoding="utf-8")
    sample = folder / "sample.txt"
    sample.write_text(text[:4000], encoding="utf-8")
    n = run(argparse.Namespace(**{**vars(args), "n": 1}), "-f", str(sample), "--kv", "exact")["timings"]["prompt_n"]
    wanted = int(args.tokens * 4000 / n * 1.03)
    path = folder / "document.txt"
    path.write_text((text * (wanted // len(text) + 1))[:wanted], encoding="utf-8")
    return path


def summary(out):
    keep = ("tiers", "bytes", "timings", "flash", "outside_peak_rss_bytes", "ram_budget_bytes", "logits_crc32c",
            "tokens")
    return {key: out[key] for key in keep}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("--tokens", type=int, default=40960)
    parser.add_argument("--above", type=int, default=128, help="MiB above the packed weights")
    parser.add_argument("-n", type=int, default=32, help="tokens of answer")
    parser.add_argument("--flash", default=str(pathlib.Path.home() / ".cache/tierkv"))
    parser.add_argument("--tierkv", default=str(ROOT / "build/bin/tierkv"))
    args = parser.parse_args()

    weights = packed_bytes(args)
    ram_mib = -(-weights // MIB) + args.above
    log = results.Results(results.FOLDER, "beyond-ram", model=pathlib.Path(args.model).name, packed_bytes=weights)
    with tempfile.TemporaryDirectory() as name:
        document = cut(args, pathlib.Path(name))
        group = make_cgroup(ram_mib * MIB)
        spilled = run(args, "-f", str(document), "--kv", "flash", "--ram", f"{ram_mib}M", "--flash", args.flash, group=group)
        if group:
            group.rmdir()
        log.add({"arm": "flash, under the ceiling", "cgroup": group is not None, **summary(spilled)})
        free = run(args, "-f", str(document), "--kv", "exact")
        log.add({"arm": "RAM, no ceiling", **summary(free)})
    same = all(spilled[what] == free[what] for what in ("tokens", "logits_crc32c"))
    print(f"{spilled['timings']['prompt_n']} tokens, {args.n} of answer, {'bit-identical' if same else 'DIFFERENT'}; "
          f"peak RSS {spilled['outside_peak_rss_bytes'] / MIB:.1f} of {ram_mib} MiB"
          f"{' in a cgroup of that size' if group else ''}, without a ceiling {free['outside_peak_rss_bytes'] / MIB:.1f}")
    sys.exit(not same or spilled["outside_peak_rss_bytes"] > ram_mib * MIB)


if __name__ == "__main__":
    main()
