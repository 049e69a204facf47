#!/usr/bin/env python3
"""How well answers' lengths are predicted from the history: requests of ten kinds, in mixed order, online.

    predictor.py collect --smollm2 MODEL --gemma MODEL TEXT...   runs them: a table in bench/results
    predictor.py analyse TABLE...                                replays the rule over tables

Each prediction knows earlier requests only. Two sums count: tokens reserved that the answer did not need, and tokens
of answers beyond what was predicted, both relative to predicting the mean of all earlier lengths.

chat: SmolLM2, an instruct model, gets the request through its chat template, and ends its answers or not; Gemma 3 270M,
a base model that does not end any, gets two examples of the request's kind first, and its answer ends where it begins
to ask a next question (--stop). app: both get the examples, and a line's end ends what shall be a line.
Needs numpy (tests/oracle/requirements.txt).
"""
import argparse
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import rule
import workload

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "compare"))
import results  # noqa: E402

CAPS = {"smollm2": 400, "gemma": 256}  # -n
TIERKV = os.environ.get("TIERKV", "build/bin/tierkv")


def run(model, text, seed, history, *arguments):
    command = [TIERKV, "run", "-m", model, "-f", "-", "-s", str(seed), "--json", "--history", history, *arguments]
    return json.loads(subprocess.run(command, input=text.encode(), stdout=subprocess.PIPE, check=True).stdout)


def fingerprint(history):
    """Of the newest request."""
    command = [TIERKV, "history", "export", "--fingerprints", "--history", history]
    lines = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.splitlines()
    return json.loads(lines[-1])["fingerprint"]


def ask(name, model, request, options, tail, entropy):
    """One request: what the table tells of it."""
    shown = name == "gemma" or options.workload == "app"
    text = workload.few_shot(options.workload, request) if shown else request["text"]
    stop = workload.stop_string(options.workload, request["kind"])
    more = [f"--stop={stop}", "--raw"] if shown else []
    run(model, text, request["seed"], entropy, "-n", "1", "--fingerprint", "entropy", *more)
    out = run(model, text, request["seed"], tail, "-n", str(CAPS[name]), *options.sampling, *more)
    return {"prompt_n": out["timings"]["prompt_n"], "prediction": out["prediction"],
            "output_n": out["timings"]["predicted_n"], "cut_off": out["stop"] == "length",
            "fingerprint": [round(x, 4) for x in fingerprint(tail)],
            "entropy_fingerprint": [round(x, 4) for x in fingerprint(entropy)]}


def collect(options):
    texts = [pathlib.Path(path).read_text(errors="ignore") for path in options.texts]
    table = results.Results(results.FOLDER, "predictor", each=options.each)
    for name, model in (("smollm2", options.smollm2), ("gemma", options.gemma)):
        if model is None:
            continue
        with tempfile.TemporaryDirectory() as folder:
            tail, entropy = f"{folder}/tail.db", f"{folder}/entropy.db"
            for i, request in enumerate(workload.requests(options.workload, texts, options.each)):
                if i >= options.start:
                    row = ask(name, model, request, options, tail, entropy)
                    table.add({"workload": options.workload, "model": name, "cap": CAPS[name], "i": i, "kind": request["kind"],
                               "sampling": " ".join(options.sampling), "settings": dataclasses.asdict(rule.Settings()),
                               **row})
                    print(f"{name} {i}: {request['kind']}, prompt {row['prompt_n']}, answer {row['output_n']}"
                          f"{' cut off' if row['cut_off'] else ''}, predicted {row['prediction']['tokens']} "
                          f"({row['prediction']['source']})", flush=True)
    print(table.path)


def replay(rows, predict):
    """Tokens reserved beyond need, and needed beyond what was reserved."""
    over = under = 0
    for i, row in enumerate(rows):
        predicted = min(predict(rows[:i], row), row["cap"])
        over += max(0, predicted - row["output_n"])
        under += max(0, row["output_n"] - predicted)
    return over, under


def by_kind(earlier, row, settings):
    """What the rule would say if the kinds were known: no fingerprint can be expected to do much better."""
    same = [other for other in earlier if other["kind"] == row["kind"]]
    return rule.predict_history(same or earlier, settings)


def with_fingerprint(rows, key):
    return [{**row, "fingerprint": row[key]} for row in rows]


def check(rows):
    """The program's own predictions must be the replay's, with the settings that the program had."""
    same = 0
    for i, row in enumerate(rows):
        predicted = rule.predict(rows[:i], row, rule.Settings(**row["settings"]))[0]
        want = row["cap"] if i == 0 else min(predicted, row["cap"])
        same += want == row["prediction"]["tokens"]
    print(f"the program predicted what the replay does for {same} of {len(rows)} requests")


def report(name, rows, show_settings):
    mean = replay(rows, lambda earlier, _: rule.predict_mean(earlier))
    print(f"\n{name}: {len(rows)} requests, {sum(row['cut_off'] for row in rows)} cut off at {rows[0]['cap']}, "
          f"mean {rule.predict_mean(rows):.0f} tokens; the static mean reserves {mean[0]:.0f} too many in all, "
          f"and {mean[1]:.0f} too few")

    def line(label, sums):
        print(f"  {label:44} reserved {sums[0] / mean[0]:.2f}   overflow {sums[1] / mean[1]:.2f}   "
              f"sum {(sums[0] + sums[1]) / (mean[0] + mean[1]):.2f}")
    line("static mean", mean)
    for quantile in (0.5, 0.55, 0.6, 0.8) if show_settings else (rule.Settings.quantile,):
        settings = rule.Settings(quantile=quantile)
        line(f"history, quantile {quantile}", replay(rows, lambda e, _, s=settings: rule.predict_history(e, s)))
        line(f"kinds known, quantile {quantile}", replay(rows, lambda e, r, s=settings: by_kind(e, r, s)))
    variants = [("tail", "fingerprint", {})]
    if show_settings:
        variants += [("entropy", "entropy_fingerprint", {}), ("tail, not centred", "fingerprint", {"centred": False})]
        variants += [(f"tail, {k} neighbours", "fingerprint", {"neighbours": k}) for k in (5, 12)]
        variants += [(f"tail, similarity^{p}", "fingerprint", {"power": p}) for p in (0, 4)]
        variants += [(f"tail, prompt length {b}", "fingerprint", {"by_prompt": b}) for b in (0.05, 0.2)]
        variants += [(f"tail, least similarity {s}", "fingerprint", {"least_similarity": s}) for s in (0.01, 0.1, 0.4)]
        variants += [(f"tail, quantile {q}", "fingerprint", {"quantile": q}) for q in (0.5, 0.6, 0.65, 0.7, 0.8)]
        variants += [(f"entropy, quantile {q}", "entropy_fingerprint", {"quantile": q}) for q in (0.5, 0.6, 0.8)]
    for label, key, changes in variants:
        settings = rule.Settings(**changes)
        line(label, replay(with_fingerprint(rows, key),
                           lambda e, r, s=settings: rule.predict(e, r, s)[0]))


def analyse(options):
    rows = list(results.read(options.tables))
    def setting(row):
        return row.get("workload", "chat"), row["model"], row["sampling"]

    for which in dict.fromkeys(map(setting, rows)):
        chosen = [row for row in rows if setting(row) == which]
        if options.check and not (which[0] == "chat" and which[1] == "gemma"):  # whose answers were cut afterwards
            check(chosen)
        report(" ".join(which), chosen, options.settings)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("collect")
    command.add_argument("texts", nargs="+")
    command.add_argument("--smollm2")
    command.add_argument("--gemma")
    command.add_argument("--workload", choices=workload.WORKLOADS, default="chat")
    command.add_argument("--each", type=int, default=18, help="requests of each kind")
    command.add_argument("--start", type=int, default=0,
                         help="requests to leave out, to go on with a table that was interrupted")
    command.add_argument("--sampling", nargs="*", default=[], help="as in --sampling=--temp=0 (default: the program's)")
    command.set_defaults(do=collect)
    command = commands.add_parser("analyse")
    command.add_argument("tables", nargs="+")
    command.add_argument("--settings", action="store_true", help="other settings of the rule, too")
    command.add_argument("--check", action="store_true", help="compare with the program's own predictions")
    command.set_defaults(do=analyse)
    options = parser.parse_args()
    options.do(options)


if __name__ == "__main__":
    main()
