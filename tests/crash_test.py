#!/usr/bin/env python3
"""Kills the program at random moments while it saves a session, and looks at what is left.

usage: crash_test.py [--crashes N] [--seed S] [--real]

Runs that had ended before they were killed don't count. After each crash the session must verify, and the
same request, gone on with from it, must get the answer that an uninterrupted run without a session gets.
`--real`: SmolLM2 instead of two tiny models, one of them with window-only layers. Environment: TIERKV,
TIERKV_MODELS. The last line is a summary; the exit code is 0 when nothing was wrong.
"""
import argparse
import collections
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

import tiny_model

TIERKV = os.environ.get("TIERKV", "build/bin/tierkv")
MODELS = pathlib.Path(os.environ.get("TIERKV_MODELS", "models"))
os.environ.setdefault("XDG_STATE_HOME", "/nonexistent")  # no history
WORDS = "river stone lamp paper green seven walk under house glass winter signal bread".split()


class Subject:
    """A model with its session, its document and the answers that are right."""

    def __init__(self, name, model, folder, n_words, arguments, chance):
        self.name, self.model, self.session = name, model, folder / f"{name}.tkv"
        self.document = folder / f"{name}.txt"
        self.document.write_text(" ".join(chance.choice(WORDS) for _ in range(n_words)))
        self.arguments = ["-n", "24", "--no-history", "--costs", "default", "--ignore-eos", "--temp", "0", "--json", *arguments]
        self.questions = ["What is under the house?", "Name a colour.", "How many stones are there, and where?"]
        self.right, self.seconds = {}, 0
        for question in self.questions:
            start = time.time()
            self.right[question] = self.run(self.of_document(question))["tokens"]
            self.seconds = max(self.seconds, time.time() - start)

    def of_document(self, question):
        return ["-f", str(self.document), "-p", question]

    def command(self, request, saved):
        session = ["--session", str(self.session), "--session-every", "16"] if saved else []
        return [TIERKV, "run", "-m", str(self.model), *request, *session, *self.arguments]

    def run(self, request, saved=False):
        process = subprocess.run(self.command(request, saved), capture_output=True)
        if process.returncode != 0:
            raise RuntimeError(process.stderr.decode(errors="replace"))
        return json.loads(process.stdout)

    def kill_once(self, chance):
        """Starts a request and kills it; True if it was still running."""
        request = self.of_document(chance.choice(self.questions))
        if self.session.exists() and chance.random() < 0.2:
            request = ["-p", "And then?"]  # a next turn, if there is an answer to go on after
        process = subprocess.Popen(self.command(request, True), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait = chance.uniform(0, self.seconds)
        time.sleep(wait)
        process.send_signal(signal.SIGKILL)
        if process.wait() == -signal.SIGKILL:
            return True
        self.seconds = wait  # it takes no longer than this
        return False

    def verify(self):
        return subprocess.run([TIERKV, "session", "verify", str(self.session), "-m", str(self.model)],
                              capture_output=True, text=True)


def crash(subject, chance, counts):
    if not subject.kill_once(chance):
        counts["ended before"] += 1
        return
    counts["crashes"] += 1
    if subject.session.exists():
        verified = subject.verify()
        if verified.returncode != 0:
            counts["refused"] += 1
            if str(subject.session) not in verified.stderr:
                counts["wrong"] += 1
            print(f"refused: {verified.stderr.strip()}", flush=True)
            subject.session.unlink()
            return
        counts["verified"] += 1
    else:
        counts["nothing saved yet"] += 1
    question = chance.choice(subject.questions)
    start = time.time()
    out = subject.run(subject.of_document(question), saved=True)
    subject.seconds = max(subject.seconds, time.time() - start)
    counts["resumed"] += out["session"]["n_resumed"] > 0
    if out["tokens"] != subject.right[question] or out["session"]["error"]:
        counts["wrong"] += 1
        print(f"WRONG after {counts['crashes']} crashes, {subject.name}: {out['session']}", flush=True)
    if chance.random() < 0.1:
        subject.session.unlink()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--crashes", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--real", action="store_true")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    counts = collections.Counter()
    with tempfile.TemporaryDirectory(dir=os.environ.get("TIERKV_CRASH_DIR")) as name:
        folder = pathlib.Path(name)
        if options.real:
            model = MODELS / "smollm2-135m-instruct-q4_1.gguf"
            subjects = [Subject("smollm2", model, folder, 480, [], chance)]
        else:
            llama = tiny_model.write(folder / "llama.gguf", "llama")
            gemma = tiny_model.write(folder / "gemma.gguf", "gemma3")
            subjects = [Subject("llama", llama, folder, 260, [], chance),
                        Subject("compressed", llama, folder, 260, ["--kv", "k5v4"], chance),
                        Subject("flash", llama, folder, 260, ["--kv", "flash"], chance),
                        Subject("windows", gemma, folder, 260, [], chance)]
        while counts["crashes"] < options.crashes:
            crash(subjects[counts["crashes"] % len(subjects)], chance, counts)
    counts["refused"] += 0
    counts["wrong"] += 0
    print(", ".join(f"{key} {value}" for key, value in counts.items()))
    sys.exit(counts["wrong"] > 0 or counts["refused"] > 0)


if __name__ == "__main__":
    main()
