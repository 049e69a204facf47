"""`tierkv eval` and `tierkv run` as functions, and where their figures go.

Every script here writes a line of JSON for each run into bench/results/accuracy-KIND-TIME.jsonl, as soon as
it has it, so that an interrupted run keeps what it measured; report.py makes docs/accuracy.md of these.
"""

import json
import math
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "bench/compare"))

import results  # noqa: E402  (bench/compare/results.py)

F16_BITS = 16
EVAL_FIGURES = (
    "kld kld_p99 kld_max top1 ppl ppl_exact delta_ppl bits_per_element n n_exact n_compressed n_offloaded "
    "n_replans predicted_kld plan_ram_bytes peak_rss_bytes"
).split()


class RunFailed(Exception):
    """tierkv refused or failed; its own sentence says why."""


def add_options(parser):
    parser.add_argument("--tierkv", default=str(ROOT / "build/bin/tierkv"))
    parser.add_argument("--profile", default="none", help="accuracy profile to plan with (default: none)")
    parser.add_argument("--threads", type=int, default=0, help="threads (default: tierkv's own)")


def tierkv(args, command, *options, stdin=None):
    """Runs a subcommand with --json; what it printed."""
    words = [args.tierkv, command, "--json", *(str(option) for option in options)]
    if args.threads:
        words += ["-t", str(args.threads)]
    ran = subprocess.run(words, input=stdin, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise RunFailed((ran.stdout + ran.stderr).strip().splitlines()[-1])
    return json.loads(ran.stdout)


def layout_options(layout):
    """The flags of a layout: a quality's name, or anything that --kv takes."""
    is_quality = layout in ("high", "balanced", "compact")
    return ["--quality" if is_quality else "--kv", layout]


def evaluate(args, text, layout, prefix, tokens, *more):
    """The figures of one layout on the text file's first prefix + tokens tokens."""
    options = ["-m", args.model, "-f", text, "--prefix", prefix, "--tokens", tokens]
    found = tierkv(args, "eval", *options, *layout_options(layout), "--profile", args.profile, *more)
    return {key: found[key] for key in EVAL_FIGURES}


def resident_ratio(figures):
    """How many times smaller the KV in RAM is than all of it in float16, from the tokens in each tier.
    Scales are in the bits; staging buffers for flash are not here but in plan_ram_bytes."""
    tokens = figures["n_exact"] + figures["n_compressed"] + figures["n_offloaded"]
    share = figures["bits_per_element"] / F16_BITS
    return tokens / (figures["n_exact"] + figures["n_compressed"] * share)


def wilson(failures, n, z=1.96):
    """95 % interval of a share of which `failures` of n were seen (Wilson 1927)."""
    share = failures / n
    middle = share + z * z / (2 * n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)


def new_results(kind, args, **common):
    model = pathlib.Path(args.model).stem
    return results.Results(results.FOLDER, f"accuracy-{kind}", bench=kind, model=model, **common)


def profile_name(args):
    return "none" if args.profile == "none" else pathlib.Path(args.profile).name
