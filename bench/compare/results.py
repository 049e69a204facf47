"""Where measurements go: a line of JSON for each run, with what is needed to understand it later."""

import datetime
import json
import pathlib
import platform
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "bench/results"


def cpu_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def commit():
    git = ["git", "-C", ROOT, "describe", "--always", "--dirty"]
    return subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()


class Results:
    """A new file of results. Each line is written at once: an interrupted run keeps what it has."""

    def __init__(self, folder, kind, **common):
        now = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0).isoformat()
        self.common = {"time": now, "commit": commit(), "cpu": cpu_name(), **common}
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{kind}-{now.replace(':', '')}.jsonl"

    def add(self, run):
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps({**self.common, **run}) + "\n")


def read(paths):
    """All runs of these files, in their order."""
    for path in paths:
        for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines():
            yield json.loads(line)
