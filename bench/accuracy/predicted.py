#!/usr/bin/env python3
"""How good predictions are: random budgets, qualities and lengths, predicted against measured.

usage: bench/accuracy/predicted.py MODEL TEXT... [--cases 50] [--profile FILE] [--out FILE]
       bench/accuracy/predicted.py MODEL TEXT... --what run

kld: `tierkv eval` with the tiers that the planner chooses for a random amount of RAM for KV, a random
--quality, prompt and answer; the KLD that the plan predicts, and the one that was measured. Only cases
with something in Tier-1 count.
run: `tierkv run --json` with a random --ram; the KV bytes of the plan, and those in use at the end; the
time of a token that the plan predicts, and the mean of the answer's (on a machine that is idle otherwise).
Writes a JSON line a case; prints the share of cases within the bounds.
"""
import argparse
import json
import math
import os
import pathlib
import random
import subprocess
import sys
import tempfile

BYTES_PER_TOKEN = 3.4  # of the texts, at most: how much text a case needs


def log_uniform(chance, low, high):
    return math.exp(chance.uniform(math.log(low), math.log(high)))


class Bench:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.texts = [pathlib.Path(text).read_bytes() for text in options.texts]
        inspect = json.loads(self.tierkv("inspect").stdout)
        self.kv_bytes_per_token = inspect["kv_bytes_per_token"]
        self.n_context = inspect["n_context"]
        self.weight_bytes = inspect["weight_bytes"]

    def tierkv(self, command, *arguments):
        flags = ["--profile", self.options.profile] if self.options.profile else []
        return subprocess.run([self.options.tierkv, command, "-m", self.options.model, "--json", *flags,
                               *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def passage(self, chance, n_tokens):
        """A file with a random part of a random text."""
        which = chance.randrange(len(self.texts))
        n_bytes = int(n_tokens * 8)
        begin = chance.randrange(max(1, len(self.texts[which]) - n_bytes))
        path = self.folder / "passage.txt"
        path.write_text(self.texts[which][begin:begin + n_bytes].decode(errors="ignore"))
        return path, pathlib.Path(self.options.texts[which]).name, begin

    def kld_case(self, chance):
        prefix = int(log_uniform(chance, 1000, min(7000, self.n_context - 600)))
        tokens = int(log_uniform(chance, 64, 512))
        quality = log_uniform(chance, 2e-4, 1e-2)
        exact = self.kv_bytes_per_token * (prefix + tokens)
        ram = int(exact * chance.uniform(0.25, 1.05)) + (1 << 20)
        path, name, begin = self.passage(chance, prefix + tokens)
        process = self.tierkv("eval", "-f", path, "--prefix", prefix, "--tokens", tokens, "--quality", quality,
                              "--kv-ram", ram, "--expect", tokens, "--flash", self.folder)
        case = {"bench": "predicted_kld", "text": name, "begin": begin, "prefix": prefix, "tokens": tokens,
                "quality": quality, "kv_ram": ram}
        if process.returncode != 0:
            return {**case, "error": process.stderr.strip().splitlines()[-1]}
        out = json.loads(process.stdout)
        keys = ("kld", "predicted_kld", "bits_per_element", "n_exact", "n_compressed", "n_offloaded")
        return {**case, **{key: out[key] for key in keys}}

    def run_case(self, chance):
        n_prompt = int(log_uniform(chance, 1000, min(7000, self.n_context - 600)))
        n_answer = int(log_uniform(chance, 16, 128))
        exact = self.kv_bytes_per_token * (n_prompt + n_answer)
        ram = int(self.weight_bytes + (45 << 20) + exact * chance.uniform(0.05, 1.1))
        path, name, begin = self.passage(chance, n_prompt)
        text = path.read_text()[:int(n_prompt * BYTES_PER_TOKEN)]
        path.write_text(text)
        process = self.tierkv("run", "-f", path, "--raw", "-n", n_answer, "--ignore-eos", "--temp", 0, "--ram", ram,
                              "--no-history", "--quality", log_uniform(chance, 2e-4, 1e-2), "--flash", self.folder)
        case = {"bench": "predicted_run", "text": name, "begin": begin, "answer": n_answer, "ram": ram}
        if process.returncode != 0:
            return {**case, "error": process.stderr.strip().splitlines()[-1]}
        out = json.loads(process.stdout)
        used = out["bytes"]["tier0"] + out["bytes"]["tier1"] + out["bytes"]["staging"]
        return {**case, "prompt": out["timings"]["prompt_n"], "predicted": out["plan"]["predicted_kv_bytes"],
                "used": used, "predicted_ms": out["plan"]["predicted_ms_per_token"],
                "ms": out["timings"]["predicted_ms"] / out["timings"]["predicted_n"],
                "stall_share": out["flash"]["predicted"]["stall_share"], **{key: out["tiers"][key] for key in ("n_exact", "n_compressed", "n_offloaded")}}


def report(cases):
    kld = [c for c in cases if c["bench"] == "predicted_kld" and c.get("n_compressed", 0) > 0]
    if kld:
        ratios = sorted(c["predicted_kld"] / c["kld"] for c in kld)
        within = sum(0.5 <= r <= 2 for r in ratios)
        print(f"KLD: {len(kld)} cases with a Tier-1, {within} ({100 * within / len(kld):.0f} %) within a factor of 2; "
              f"predicted / measured: median {ratios[len(ratios) // 2]:.2f}, least {ratios[0]:.2f}, most {ratios[-1]:.2f}")
    runs = [c for c in cases if c["bench"] == "predicted_run" and "used" in c]
    for what, ours, measured, bound in (("RAM", "predicted", "used", .02), ("time", "predicted_ms", "ms", .2)):
        if not runs:
            break
        ratios = sorted(c[measured] / c[ours] for c in runs)
        within = sum(abs(r - 1) <= bound for r in ratios)
        print(f"{what}: {len(runs)} cases, {within} ({100 * within / len(runs):.0f} %) within {100 * bound:.0f} %; "
              f"measured / predicted: median {ratios[len(ratios) // 2]:.3f}, least {ratios[0]:.3f}, most {ratios[-1]:.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--what", choices=("kld", "run"), default="kld")
    parser.add_argument("--cases", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--profile", default="", help="a file or none; default: the one beside the model")
    parser.add_argument("--tierkv", default=os.environ.get("TIERKV", "build/bin/tierkv"))
    parser.add_argument("--out", help="file that the JSON lines are added to")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    cases = []
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, pathlib.Path(folder))
        n_counted = 0
        while n_counted < options.cases and len(cases) < 4 * options.cases:
            case = bench.kld_case(chance) if options.what == "kld" else bench.run_case(chance)
            cases.append(case)
            n_counted += "error" not in case and (options.what == "run" or case["n_compressed"] > 0)
            print(json.dumps(case), file=sys.stderr, flush=True)
            if options.out:
                with open(options.out, "a", encoding="utf-8") as file:
                    file.write(json.dumps(case) + "\n")
    report(cases)


if __name__ == "__main__":
    main()
