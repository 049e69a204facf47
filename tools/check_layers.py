#!/usr/bin/env python3
"""Holds the sources to the layering of docs/architecture.md and to what each layer may use.

usage: tools/check_layers.py [ROOT]     prints file:line: sentence; exits with 1 if there are any.
"""
import pathlib
import re
import sys

# Which folders of src/ a folder may include, besides itself.
MAY_INCLUDE = {
    "base": set(),
    "gguf": {"base"},
    "kernels": {"base"},
    "plan": {"base"},
    "tokenizer": {"base", "gguf"},
    "kv": {"base", "kernels", "plan"},
    "model": {"base", "gguf", "kernels", "kv"},
    "runtime": {"base", "gguf", "tokenizer", "kernels", "kv", "plan", "model"},
    "capi": {"runtime", "base"},
    "apps": {"runtime", "base"},
}

# Where only some headers of a folder are open to another: (from, to) -> headers.
ONLY_HEADERS = {
    ("kv", "plan"): {"plan/plan.h"},
    ("model", "kv"): {"kv/kv_cache.h"},
}

# Includes that a layer may not have: kernels never allocate, lock or log; plan knows no clock and
# no files.
KERNEL_FILE = re.compile(r"(\.inc|_(scalar|avx2|avx512|neon\w*)\.cc)$")
KERNEL_FORBIDDEN = {"mutex", "thread", "condition_variable", "vector", "iostream", "cstdio"}
PLAN_FORBIDDEN = {"chrono", "ctime", "fstream", "filesystem", "base/file.h", "base/process.h"}

# The library never prints, aborts or exits.
PRINTING = re.compile(
    r"\bstd::(?:cout|cerr|clog)\b|(?<![\w.>])(?:std::)?(?:v?f?printf|f?puts|putchar|perror)\s*\("
)
ENDING = re.compile(r"(?<![\w.>])(?:std::)?(?:abort|_?exit|quick_exit|terminate)\s*\(")

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')
NOT_CODE = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\'', re.DOTALL
)


def code_lines(text):
    """The lines with comments and literals blanked out."""
    return NOT_CODE.sub(lambda m: "\n" * m[0].count("\n"), text).split("\n")


def folder_of(path):
    """The layer of a path relative to the root: src/kv/x.h -> kv, apps/cli/main.cc -> apps."""
    return path.parts[1] if path.parts[0] == "src" else path.parts[0]


def include_fault(path, folder, header):
    """What is wrong with this file including this header, or None."""
    is_test = path.name.endswith("_test.cc")
    other = header.split("/")[0] if "/" in header else folder
    if other in MAY_INCLUDE and other != folder:
        if other not in MAY_INCLUDE[folder]:
            return f"{folder} may not include {other}/"
        allowed = ONLY_HEADERS.get((folder, other))
        if allowed and header not in allowed and not is_test:
            return f"of {other}/ {folder} may include only {', '.join(sorted(allowed))}"
    if folder == "kernels" and KERNEL_FILE.search(path.name) and header in KERNEL_FORBIDDEN:
        return f"kernels never allocate, lock or log: no {header} here"
    if folder == "plan" and not is_test and header in PLAN_FORBIDDEN:
        return f"plan is numbers in, numbers out: no {header} here"
    return None


def faults(root, path):
    """(line number, sentence) for each fault of one file."""
    folder = folder_of(path)
    text = (root / path).read_text(encoding="utf-8", errors="replace")
    if folder not in MAY_INCLUDE:
        yield 1, f"src/{folder} is not in the table of tools/check_layers.py"
        return
    for number, line in enumerate(text.split("\n"), 1):
        match = INCLUDE.match(line)
        fault = match and include_fault(path, folder, match[1])
        if fault:
            yield number, fault
    if folder == "apps" or path.name.endswith("_test.cc"):
        return
    for number, line in enumerate(code_lines(text), 1):
        if PRINTING.search(line):
            yield number, "the library never prints: return it, or a Status"
        if ENDING.search(line):
            yield number, "the library never aborts or exits: return a Status"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1])
    paths = sorted(
        path.relative_to(root)
        for top in ("src", "apps")
        for path in (root / top).rglob("*")
        if path.suffix in (".h", ".cc", ".inc", ".cpp", ".c")
    )
    if not paths:
        sys.exit(f"check_layers: no sources under {root}/src and {root}/apps")
    n_faults = 0
    for path in paths:
        for number, sentence in faults(root, path):
            print(f"{path}:{number}: {sentence}")
            n_faults += 1
    print(f"check_layers: {len(paths)} files, {n_faults} faults")
    sys.exit(n_faults > 0)


if __name__ == "__main__":
    main()
