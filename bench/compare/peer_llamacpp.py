#!/usr/bin/env python3
"""llama.cpp through llama-cpp-python, measured the way that compare.py measures tierkv.

usage: peer_llamacpp.py MODEL.gguf [--prompt N] [--depth N] [--generate N] [--threads N] [--kv f16|q8_0|q4_0]
       peer_llamacpp.py MODEL.gguf --start [--threads N]

Reads --prompt random tokens twice and times the second; then reads --depth tokens and times --generate more,
one at a time. --start: instead, how long loading the model and answering "Hello" with one token takes,
imports left out. Prints one JSON object. Also the module through which greedy.py reaches llama.cpp. Install
(this compiles llama.cpp for the CPU that it's on, and takes about 15 minutes):
    python3 -m venv .venv-peer && .venv-peer/bin/pip install -r bench/compare/requirements.txt
"""

import importlib.metadata
import json
import random
import time

import llama_cpp

import peer_arguments

BATCH = 512  # llama.cpp's default micro-batch
KV_TYPES = {"f16": 1, "q8_0": 8, "q4_0": 2}  # ggml_type


@llama_cpp.llama_log_callback
def ignore_log(level, text, user_data):
    """Keeps llama.cpp's log off stderr."""


def start():
    llama_cpp.llama_log_set(ignore_log, None)
    llama_cpp.llama_backend_init()


def load_model(path, repack=True):
    """`repack`: weights are laid out anew for the CPU's instruction set, as llama.cpp does by default."""
    params = llama_cpp.llama_model_default_params()
    params.n_gpu_layers = 0
    params.use_extra_bufts = repack
    model = llama_cpp.llama_model_load_from_file(path.encode(), params)
    if not model:
        raise SystemExit(f"llama.cpp cannot load {path}")
    return model


def make_context(model, tokens, threads, kv="f16", ubatch=BATCH, flash=True):
    """A context for so many tokens; with flash attention by default: llama.cpp's fastest way."""
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = tokens
    params.n_batch, params.n_ubatch = BATCH, ubatch
    params.n_threads = params.n_threads_batch = threads
    params.type_k = params.type_v = KV_TYPES[kv]
    params.flash_attn_type = int(flash)
    context = llama_cpp.llama_init_from_model(model, params)
    if not context:
        raise SystemExit(f"llama.cpp has no context of {params.n_ctx} tokens for this model")
    return context


def vocab_size(model):
    return llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))


def tokenize(model, text):
    """The text's ids, BOS as the model wants it, control tokens read as such."""
    data = text.encode()
    tokens = (llama_cpp.llama_token * (len(data) + 8))()
    vocab = llama_cpp.llama_model_get_vocab(model)
    n = llama_cpp.llama_tokenize(vocab, data, len(data), tokens, len(tokens), True, True)
    if n < 0:
        raise SystemExit("llama.cpp could not tokenise the text")
    return list(tokens[:n])


def decode(context, tokens):
    """Appends tokens; the logits of the last one are there afterwards."""
    for begin in range(0, len(tokens), BATCH):
        part = tokens[begin : begin + BATCH]
        array = (llama_cpp.llama_token * len(part))(*part)
        if llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(array, len(part))) != 0:
            raise SystemExit("llama.cpp failed to decode")
    llama_cpp.llama_synchronize(context)


def clear(context):
    llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)


def seconds(work):
    start_time = time.perf_counter()
    work()
    return time.perf_counter() - start_time


def measure(context, ids, args):
    """The rates asked for. The first prompt only touches memory and starts threads."""
    rates = {}
    if args.prompt:
        for _ in range(2):
            clear(context)
            rates["prompt_per_second"] = args.prompt / seconds(lambda: decode(context, ids[: args.prompt]))
    if args.generate:
        clear(context)
        decode(context, ids[: args.depth])
        ahead = ids[args.depth : args.depth + args.generate]
        rates["predicted_per_second"] = args.generate / seconds(lambda: [decode(context, [i]) for i in ahead])
    return rates


def start_seconds(args):
    """From nothing but the library's code in memory until one token is known."""

    def first_token():
        model = load_model(args.model)
        context = make_context(model, BATCH, args.threads)
        decode(context, tokenize(model, "Hello"))
        llama_cpp.llama_sampler_sample(llama_cpp.llama_sampler_init_greedy(), context, -1)

    return seconds(lambda: (start(), first_token()))


def measure_rates(args):
    start()
    model = load_model(args.model)
    n = max(args.prompt, args.depth + args.generate, 1)
    ids = random.Random(1).choices(range(vocab_size(model)), k=n)
    return measure(make_context(model, n + 64, args.threads, args.kv), ids, args)


def main():
    args = peer_arguments.parse(__doc__, KV_TYPES)
    figures = {"start_seconds": start_seconds(args)} if args.start else measure_rates(args)
    print(
        json.dumps(
            {"version": "llama-cpp-python " + importlib.metadata.version("llama-cpp-python"), **figures}
        )
    )


if __name__ == "__main__":
    main()
