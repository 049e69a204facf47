#!/bin/bash
# Every measurement of docs/accuracy.md, then its tables: some hours on two CPUs. Interrupted, it keeps what it
# has. PEER_PYTHON: a Python with llama-cpp-python (bench/compare/requirements.txt). More options go to all
# scripts but the peer's, such as --tierkv FILE or --profile FILE.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
S=models/smollm2-135m-instruct-q4_1.gguf G=models/gemma-3-270m-q4_k_m.gguf
policy=models/texts/policy.txt devref=models/texts/devref.txt perl=models/texts/perl.txt
here=bench/accuracy

"$here/recall.py" "$S" "$policy" --layouts balanced@31M,3.5 "$@"
"$here/recall.py" "$S" "$policy" --layouts balanced@31M --before "$@"
"$here/harm.py" "$S" "$policy" "$devref" "$perl" --requests 60 "$@"
"$here/underprediction.py" "$S" "$policy" "$@"
"${PEER_PYTHON:-.venv-peer/bin/python}" "$here/peer_kld.py" "$S" "$policy" "$devref"
"$here/kld.py" "$S" "$policy" "$devref" --activations int8 --layouts k8v8,balanced,k4v3 "$@"
"$here/kld.py" "$S" "$policy" "$devref" "$perl" "$@"
"$here/kld.py" "$G" "$policy" "$devref" "$perl" "$@"
for prefix in 2048 6144; do
  "$here/kld.py" "$S" "$policy" --prefix "$prefix" --layouts balanced,k5v4,k4v3 "$@"
done
"$here/report.py"
