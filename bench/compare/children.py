"""Child processes of a measurement: one that is measured, and those that only keep CPUs busy."""

import contextlib
import dataclasses
import os
import subprocess
import sys
import tempfile
import threading
import time

# Ends by itself when the parent is gone, so that a killed measurement leaves no CPU spinning.
SPIN = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
parent = os.getppid()
print(flush=True)
while os.getppid() == parent:
    for _ in range(1 << 20):
        pass
"""


class ChildFailed(Exception):
    """A child that ended with an error or was too slow; says so in one line."""


@dataclasses.dataclass(frozen=True)
class Finished:
    stdout: str
    seconds: float  # from before exec until it was reaped
    peak_rss_bytes: int  # of this child, as the kernel counted it


def last_words(text):
    """The last two lines: programs differ in which of them says what went wrong."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " ".join(lines[-2:]) or "no message"


def run(command, timeout):
    """Runs a command to its end. A child of its own tells its own peak RSS: wait4 is what reports it."""
    command = [str(word) for word in command]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        start = time.monotonic()
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        killer = threading.Timer(timeout, child.kill)
        killer.start()
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.monotonic() - start
        killer.cancel()
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if child.returncode != 0:
            late = f"stopped after {timeout} s" if seconds >= timeout else f"exit {child.returncode}"
            raise ChildFailed(f"{late}: {last_words(err.read().decode(errors='replace'))}")
        return Finished(out.read().decode(errors="replace"), seconds, usage.ru_maxrss * 1024)


@contextlib.contextmanager
def busy(count):
    """While this lasts, CPUs 0 to count-1 each have a neighbour process that never stops computing."""
    spinners = []
    try:
        for cpu in range(count):
            command = [sys.executable, "-c", SPIN, str(cpu)]
            spinners.append(subprocess.Popen(command, stdout=subprocess.PIPE))
            spinners[-1].stdout.readline()  # it's on its CPU
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.communicate()
