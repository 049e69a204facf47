"""The engines that are compared, behind one interface: a command to run and how to read what it prints.

Each measurement is a process of its own, so that its peak memory is its own, and reads random tokens where
the engine takes ids: speed doesn't depend on which. Before a prompt is timed, each engine reads one as long:
memory is touched and threads run. Decode needs no such thing, as it follows a prompt. Flash attention is on
where it is a choice.
"""

import dataclasses
import json
import pathlib
import shutil

import children

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
HOME = ROOT / ".venv-peer"  # where peers are looked for, unless options say otherwise
RATES = {"prefill": "prompt_per_second", "decode": "predicted_per_second"}


@dataclasses.dataclass(frozen=True)
class Point:
    """What is measured: a prompt of `tokens`, or `generate` tokens that follow so many."""

    model: str
    what: str  # a key of RATES
    tokens: int
    generate: int
    threads: int

    def __str__(self):
        return f"{self.what} at {self.tokens} tokens, {self.threads} threads"


class Engine:
    """One engine with one KV type. Subclasses say what to run and how to read it."""

    name = ""
    install = ""  # how to get it
    measures = ("prefill", "decode")

    def __init__(self, args, kv):
        self.args = args
        self.kv = kv

    def program(self):
        """What has to be there for this engine to be measured."""
        raise NotImplementedError

    def command(self, point):
        raise NotImplementedError

    def read(self, stdout, point):
        """{RATES[point.what]: tokens a second, perhaps "version" and more}."""
        raise NotImplementedError

    def is_installed(self):
        return shutil.which(self.program()) is not None

    def measure(self, point):
        """The figures of one run. Raises ChildFailed."""
        finished = children.run(self.command(point), self.args.timeout)
        try:
            figures = self.read(finished.stdout, point)
        except (ValueError, LookupError) as error:
            raise children.ChildFailed(f"printed no figures: {error!r}") from error
        return {
            "engine": self.name,
            "kv": self.kv,
            "what": point.what,
            "tokens": point.tokens,
            "generate": point.generate if point.what == "decode" else 0,
            "threads": point.threads,
            "peak_rss_bytes": finished.peak_rss_bytes,
            **figures,
        }


class ScriptPeer(Engine):
    """A peer_*.py beside this file: it prints the figures as they are wanted."""

    script = ""

    def command(self, point):
        size = ["--prompt", point.tokens]
        if point.what == "decode":
            size = ["--depth", point.tokens, "--generate", point.generate]
        return [
            self.program(),
            HERE / self.script,
            point.model,
            *size,
            "--threads",
            point.threads,
            "--kv",
            self.kv,
        ]

    def read(self, stdout, point):
        return json.loads(stdout.splitlines()[-1])


def bench_row(stdout):
    """The only row of a llama-bench-like program's JSON, which may follow other lines."""
    (row,) = json.loads(stdout[stdout.index("[") :])
    return row


class TierKv(Engine):
    name = "tierkv"
    install = "cmake -B build -G Ninja && cmake --build build"

    def program(self):
        return self.args.tierkv

    def command(self, point):
        size = ["-p", point.tokens, "-n", 0]
        if point.what == "decode":
            size = ["-p", 0, "-n", point.generate, "-d", point.tokens]
        command = [self.program(), "bench", "-m", point.model, *size, "-r", 1, "-o", "json", "--no-roofs"]
        return command + ["-t", point.threads, "--kv", self.kv]

    def read(self, stdout, point):
        row = bench_row(stdout)
        return {RATES[point.what]: row["avg_ts"], "isa": row["isa"]}


class IkLlama(Engine):
    name = "ik"
    install = (
        "git clone https://github.com/ikawrakow/ik_llama.cpp .venv-peer/ik && cmake -S .venv-peer/ik -B "
        ".venv-peer/ik/build -DGGML_NATIVE=ON && cmake --build .venv-peer/ik/build --target llama-bench"
    )

    def program(self):
        return self.args.ik

    def command(self, point):
        size = ["-p", point.tokens, "-r", 2]  # its own warm-up is one token: the first repetition is ours
        if point.what == "decode":
            size = ["-p", 0, "-gp", f"{point.tokens},{point.generate}", "-r", 1]
        command = [self.program(), "-m", point.model, *size, "-n", 0, "-o", "json", "-fa", 1]
        return command + ["-t", point.threads, "-ctk", self.kv, "-ctv", self.kv, *self.args.ik_flags.split()]

    def read(self, stdout, point):
        row = bench_row(stdout)
        return {RATES[point.what]: row["samples_ts"][-1], "version": f"ik_llama.cpp {row['build_commit']}"}


class LlamaCpp(ScriptPeer):
    name = "llamacpp"
    install = (
        "python3 -m venv .venv-peer && .venv-peer/bin/pip install -r bench/compare/requirements.txt "
        "(compiles llama.cpp, about 15 minutes)"
    )
    script = "peer_llamacpp.py"

    def program(self):
        return self.args.peer_python


class LlamaCppNode(Engine):
    name = "llamacpp-node"
    install = "npm install --prefix .venv-peer/node node-llama-cpp@3.21.1"
    measures = ("prefill",)

    def program(self):
        return "node"

    def modules(self):
        return pathlib.Path(self.args.node_modules) / "node_modules"

    def is_installed(self):
        return super().is_installed() and (self.modules() / "node-llama-cpp").is_dir()

    def command(self, point):
        script = HERE / "peer_llamacpp_node.mjs"
        return [self.program(), script, point.model, point.tokens, point.threads, self.kv, self.modules()]

    def read(self, stdout, point):
        return json.loads(stdout.splitlines()[-1])


class OpenVino(ScriptPeer):
    name = "openvino"
    install = (
        "python3 -m venv .venv-peer/openvino && .venv-peer/openvino/bin/pip install "
        "-r bench/compare/requirements-openvino.txt"
    )
    script = "peer_openvino.py"

    def program(self):
        return self.args.openvino_python


PEERS = {peer.name: peer for peer in (IkLlama, LlamaCpp, LlamaCppNode, OpenVino)}


def add_options(parser):
    """Where the engines are."""
    parser.add_argument("--tierkv", default=ROOT / "build/bin/tierkv")
    parser.add_argument("--peer-python", default=HOME / "bin/python", help="Python of llamacpp")
    parser.add_argument(
        "--node-modules", default=HOME / "node", help="folder of llamacpp-node's node_modules"
    )
    parser.add_argument("--ik", default=HOME / "ik/build/bin/llama-bench", help="ik_llama.cpp's llama-bench")
    parser.add_argument("--ik-flags", default="", help="more flags for it, such as '-rtr 1'")
    parser.add_argument("--openvino-python", default=HOME / "openvino/bin/python", help="Python of openvino")
    parser.add_argument("--timeout", type=float, default=900, help="seconds that a run may take")


def installed(engines):
    """Those that are there; says of each other how to get it."""
    for engine in engines:
        if engine.is_installed():
            yield engine
        else:
            print(f"{engine.name} is left out: no {engine.program()}. Get it: {engine.install}")
