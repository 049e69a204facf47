#!/usr/bin/env python3
"""What the planner's freedoms are worth, measured: decode time of each rule's plan.

usage: ablation.py MODEL.gguf TEXT [--cells 155M/balanced,170M/high] [--tokens 48] [--rounds 3]

A cell is a RAM ceiling and a quality. For each rule of src/plan/ablation.h, `tierkv run --plan-by RULE` of the
same prompt and answer length, interleaved for some rounds on a machine that is idle otherwise: the median time
of a token, and the time and the KLD that the planner foretold. All rules keep within the same KLD; what a plan's
KLD really is, predicted.py measures.
"""

import argparse
import pathlib
import statistics
import tempfile

import evaluation

RULES = ("fixed", "uniform", "refined", "joint")


def run(args, file, ram, quality, rule):
    found = evaluation.tierkv(
        args, "run", "-m", args.model, "-f", file, "--raw", "--temp", 0, "-n", args.tokens, "--ignore-eos", "--ram", ram,
        "--quality", quality, "--plan-by", rule, "--no-history", "--profile", args.profile)
    return {
        "ms": found["timings"]["predicted_ms"] / found["timings"]["predicted_n"],
        "predicted_ms": found["plan"]["predicted_ms_per_token"],
        "predicted_kld": found["plan"]["predicted_kld"],
        **{key: found["tiers"][key] for key in ("n_exact", "n_compressed", "n_offloaded", "bits_per_element")},
    }


def measure(args, out, file, ram, quality):
    runs = {rule: [] for rule in RULES}
    for _ in range(args.rounds):
        for rule in RULES:
            runs[rule].append(run(args, file, ram, quality, rule))
    for rule in RULES:
        row = {**runs[rule][0], "ms": statistics.median(found["ms"] for found in runs[rule])}
        out.add({"ram": ram, "quality": quality, "rule": rule, **row})
        print(f"{ram:>6} {quality:>9} {rule:8} {row['ms']:7.2f} ms (foretold {row['predicted_ms']:7.2f})  "
              f"KLD foretold {row['predicted_kld']:.6f}  {row['n_exact']} exact, {row['n_compressed']} at "
              f"{row['bits_per_element']:.2f} bits, {row['n_offloaded']} on flash", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("--cells", default="155M/balanced,170M/balanced,170M/high")
    parser.add_argument("--characters", type=int, default=23000, help="of the text, that run reads")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=3)
    evaluation.add_options(parser)
    args = parser.parse_args()
    out = evaluation.new_results("ablation", args, text=pathlib.Path(args.text).stem)
    text = pathlib.Path(args.text).read_text(encoding="utf-8")[: args.characters]
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        for cell in args.cells.split(","):
            measure(args, out, file.name, *cell.split("/"))


if __name__ == "__main__":
    main()
