#!/usr/bin/env python3
"""OpenVINO GenAI on a GGUF file, measured the way that compare.py measures tierkv.

usage: peer_openvino.py MODEL.gguf [--prompt N] [--depth N] [--generate N] [--threads N] [--kv f16|q8_0]
       peer_openvino.py MODEL.gguf --start [--threads N]

Random tokens. Prefill is the time to the first token, once other --prompt tokens were read; decode is the
mean time of each token after it.
--start: instead, how long loading the model and answering "Hello" with one token takes, imports left out.
OpenVINO's GGUF reader knows few architectures (llama and qwen) and weight types: others fail with a message,
and compare.py reports that.
Install: python3 -m venv .venv-peer/openvino &&
    .venv-peer/openvino/bin/pip install -r bench/compare/requirements-openvino.txt
"""

import importlib.metadata
import json
import random
import time

import numpy as np
import openvino
import openvino_genai

import peer_arguments

KV_TYPES = {"f16": "f16", "q8_0": "u8"}  # llama.cpp's name: OpenVINO's nearest


def generate(pipeline, ids, n):
    """The metrics of reading `ids` and generating n tokens greedily past any end of text."""
    config = openvino_genai.GenerationConfig(max_new_tokens=n, ignore_eos=True)
    inputs = np.array([ids], dtype=np.int64)
    tensors = (openvino.Tensor(array) for array in (inputs, np.ones_like(inputs)))
    return pipeline.generate(openvino_genai.TokenizedInputs(*tensors), config).perf_metrics


def make_pipeline(args):
    options = {"INFERENCE_NUM_THREADS": args.threads, "KV_CACHE_PRECISION": KV_TYPES[args.kv]}
    return openvino_genai.LLMPipeline(args.model, "CPU", **options)


def start_seconds(args):
    """From nothing but the library's code in memory until one token is known."""
    start = time.perf_counter()
    make_pipeline(args).generate("Hello", max_new_tokens=1, ignore_eos=True, apply_chat_template=False)
    return time.perf_counter() - start


def measure_rates(args):
    pipeline = make_pipeline(args)
    vocab = range(len(pipeline.get_tokenizer().get_vocab()))
    first, ids = (random.Random(seed).choices(vocab, k=max(args.prompt, args.depth, 1)) for seed in (1, 2))
    # Compiles kernels for both shapes. Other ids, since what was read before may be kept and reused.
    generate(pipeline, first if args.prompt else first[:32], 2)
    rates = {}
    if args.prompt:
        rates["prompt_per_second"] = args.prompt / generate(pipeline, ids, 1).get_ttft().mean * 1000
    if args.generate:
        rates["predicted_per_second"] = 1000 / generate(pipeline, ids, args.generate + 1).get_tpot().mean
    return rates


def main():
    args = peer_arguments.parse(__doc__, KV_TYPES)
    figures = {"start_seconds": start_seconds(args)} if args.start else measure_rates(args)
    version = "OpenVINO GenAI " + importlib.metadata.version("openvino-genai")
    print(json.dumps({"version": version, "kv": KV_TYPES[args.kv], **figures}))


if __name__ == "__main__":
    main()
