#!/usr/bin/env python3
"""What planned precision costs: KLD of `--kv BITS` from the exact cache, over texts.

usage: bench/accuracy/planned.py MODEL TEXT... --bits 4.75,4.25,3.75,3.5 [--profile FILE] [--out FILE]

The setting of docs/decisions.md, "How accuracy is measured". Writes a JSON line a run, then prints a table:
measured and predicted KLD, means over the texts.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys


def evaluate(options, text, bits):
    command = [options.tierkv, "eval", "-m", options.model, "-f", text, "--kv", bits, "--json",
               "--prefix", str(options.prefix), "--tokens", str(options.tokens)]
    if options.profile:
        command += ["--profile", options.profile]
    out = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return {"bench": "planned", "model": pathlib.Path(options.model).name, "text": pathlib.Path(text).name,
            "kv": bits, "profile": options.profile != "none", "prefix": options.prefix, "tokens": options.tokens,
            **{key: out[key] for key in ("bits_per_element", "kld", "kld_p99", "top1", "predicted_kld", "ppl",
                                         "ppl_exact", "n_compressed")}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--bits", default="4.75,4.25,3.75,3.5", help="or codecs such as k5v4")
    parser.add_argument("--profile", default="", help="a file or none; default: the one beside the model")
    parser.add_argument("--prefix", type=int, default=3072)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--tierkv", default=os.environ.get("TIERKV", "build/bin/tierkv"))
    parser.add_argument("--out", help="file that the JSON lines are added to")
    options = parser.parse_args()
    means = {}
    for text in options.texts:
        for bits in options.bits.split(","):
            row = evaluate(options, text, bits)
            means.setdefault(bits, []).append(row)
            print(f"{row['text']:12} {bits:>6}  {row['kld']:.6f}  predicted {row['predicted_kld']:.6f}",
                  file=sys.stderr, flush=True)
            if options.out:
                with open(options.out, "a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
    print("| kv | bits per element | KLD | predicted | same top token |\n|---|---|---|---|---|")
    for bits, rows in means.items():
        mean = {key: sum(row[key] for row in rows) / len(rows) for key in ("bits_per_element", "kld", "predicted_kld",
                                                                           "top1")}
        print(f"| {bits} | {mean['bits_per_element']:.2f} | {mean['kld']:.5f} | {mean['predicted_kld']:.5f} "
              f"| {100 * mean['top1']:.1f} % |")


if __name__ == "__main__":
    main()
