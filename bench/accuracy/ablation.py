#!/usr/bin/env python3
"""What the planner's freedoms are worth, measured: decode time and KLD of each rule's plan.

usage: ablation.py MODEL.gguf TEXT... [--cells 155M/balanced,170M/high] [--tokens 96] [--rounds 3]

A cell is a RAM ceiling and a quality. For each rule of src/plan/ablation.h, `tierkv run --plan-by RULE` of the
first text's beginning and an answer of --tokens, interleaved for some rounds on a machine that is idle otherwise: the
median time of a token. Then `tierkv eval` with as much RAM for KV, prompt and answer of the same lengths, on each of
the texts: the mean KLD, and how many of these plans had the tiers of the run.
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
        "prompt": found["timings"]["prompt_n"],
        "kv_budget": found["bytes"]["kv_budget"],
        "predicted_ms": found["plan"]["predicted_ms_per_token"],
        "predicted_kld": found["plan"]["predicted_kld"],
        **{key: found["tiers"][key] for key in ("n_exact", "n_compressed", "n_offloaded", "bits_per_element")},
    }


def measured_kld(args, row, quality, rule):
    """The mean over the texts, and how many of the plans had the tiers of the run's."""
    klds, same = [], 0
    for text in args.texts:
        found = evaluation.tierkv(
            args, "eval", "-m", args.model, "-f", text, "--prefix", row["prompt"], "--tokens", args.tokens, "--expect",
            args.tokens, "--kv-ram", row["kv_budget"], "--quality", quality, "--plan-by", rule, "--profile", args.profile)
        klds.append(found["kld"])
        same += all(abs(found[key] - row[key]) <= 1e-6 for key in ("n_compressed", "n_offloaded", "bits_per_element"))
    return statistics.mean(klds), same


def measure(args, out, file, ram, quality):
    runs = {rule: [] for rule in RULES}
    for _ in range(args.rounds):
        for rule in RULES:
            runs[rule].append(run(args, file, ram, quality, rule))
    for rule in RULES:
        row = {**runs[rule][0], "ms": statistics.median(found["ms"] for found in runs[rule])}
        row["kld"], row["same_tiers"] = measured_kld(args, row, quality, rule)
        out.add({"ram": ram, "quality": quality, "rule": rule, "tokens": args.tokens, "rounds": args.rounds, **row})
        print(f"{ram:>6} {quality:>9} {rule:8} {row['ms']:7.2f} ms (foretold {row['predicted_ms']:7.2f})  "
              f"KLD {row['kld']:.6f} (foretold {row['predicted_kld']:.6f}; {row['same_tiers']} of {len(args.texts)} with "
              f"the run's tiers)  {row['n_exact']} exact, {row['n_compressed']} at {row['bits_per_element']:.2f} bits, "
              f"{row['n_offloaded']} on flash", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("model")
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--cells", default="155M/balanced,170M/balanced,170M/high")
    parser.add_argument("--characters", type=int, default=23000, help="of the text, that run reads")
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=3)
    evaluation.add_options(parser)
    args = parser.parse_args()
    out = evaluation.new_results("ablation", args, texts=[pathlib.Path(text).stem for text in args.texts])
    text = pathlib.Path(args.texts[0]).read_text(encoding="utf-8")[: args.characters]
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        for cell in args.cells.split(","):
            measure(args, out, file.name, *cell.split("/"))


if __name__ == "__main__":
    main()
