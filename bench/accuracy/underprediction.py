#!/usr/bin/env python3
"""An answer much longer than expected: what it costs in accuracy, and whether RAM stays within its ceiling.

usage: underprediction.py MODEL.gguf TEXT [--expect 8,600] [--prefix 2048] [--tokens 608] [--kv-ram 24M]
                          [--ram 150M]

For each number of tokens expected, two runs. `tierkv eval` with --kv-ram for the layout under test: KLD of
the tokens from the exact cache's, while they move between tiers as in a run that expected so many. And
`tierkv run` of as long a prompt and answer with --ram for the process: its peak resident memory, which must
be below.
"""

import argparse
import pathlib
import tempfile

import evaluation


def run_within(args, expect):
    """Peak resident bytes and budget of a process that answers with so many tokens."""
    text = pathlib.Path(args.text).read_text(encoding="utf-8")[: args.characters]
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        options = ["-m", args.model, "-f", file.name, "--raw", "--temp", 0, "-n", args.tokens, "--ignore-eos"]
        options += ["--ram", args.ram, "--expect", expect, "--no-history", "--profile", args.profile]
        found = evaluation.tierkv(args, "run", *options)
    return {
        "run_prompt": found["timings"]["prompt_n"],
        "run_tokens": found["timings"]["predicted_n"],
        "run_replans": found["plan"]["n_replans"],
        "run_tiers": found["tiers"],
        "run_peak_rss_bytes": found["peak_rss_bytes"],
        "ram_budget_bytes": found["ram_budget_bytes"],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("--expect", default="8,600")
    parser.add_argument("--prefix", type=int, default=2048)
    parser.add_argument("--tokens", type=int, default=608)
    parser.add_argument("--kv-ram", default="24M")
    parser.add_argument("--ram", default="150M")
    parser.add_argument("--characters", type=int, default=8500, help="of the text, as the prompt under --ram")
    evaluation.add_options(parser)
    args = parser.parse_args()
    out = evaluation.new_results("underprediction", args, profile=evaluation.profile_name(args))
    for expect in args.expect.split(","):
        options = ["--expect", expect, "--kv-ram", args.kv_ram]
        figures = evaluation.evaluate(args, args.text, "balanced", args.prefix, args.tokens, *options)
        within = run_within(args, expect)
        case = {"text": pathlib.Path(args.text).stem, "expect": int(expect), "kv_ram": args.kv_ram}
        out.add({**case, "prefix": args.prefix, "tokens": args.tokens, "ram": args.ram, **within, **figures})
        print(
            f"expecting {expect}: KLD {figures['kld']:.5f}, {figures['n_replans']} new plans; peak "
            f"{within['run_peak_rss_bytes'] / 2**20:.1f} of {within['ram_budget_bytes'] / 2**20:.1f} MiB",
            flush=True,
        )


if __name__ == "__main__":
    main()
