#!/usr/bin/env python3
"""llama.cpp, measured the way that compare.py measures tierkv. Needs bench/compare/requirements.txt.

usage: peer_llamacpp.py MODEL.gguf TEXT [--tokens N] [--generate N] [--threads N] [--kv f16|q8_0|q4_0]
       peer_llamacpp.py MODEL.gguf TEXT --tokens N --cut OUT
Reads the first N tokens of TEXT (BOS as the model wants it), then generates greedily past any end of
text. Prints one JSON object with the keys that tierkv's "timings" have. --cut only writes the part of
TEXT that these tokens stand for, so that both engines can read the same.
"""
import argparse
import ctypes
import importlib.metadata
import json
import resource
import time

import llama_cpp

BATCH = 512  # llama.cpp's default batch
KV_TYPES = {"f16": 1, "q8_0": 8, "q4_0": 2}  # ggml_type


@llama_cpp.llama_log_callback
def ignore_log(level, text, user_data):
    """Keeps llama.cpp's log off stderr."""


def load_model(path, vocab_only):
    params = llama_cpp.llama_model_default_params()
    params.vocab_only = vocab_only
    params.n_gpu_layers = 0
    model = llama_cpp.llama_model_load_from_file(path.encode(), params)
    if not model:
        raise SystemExit(f"llama.cpp cannot load {path}")
    return model


def make_context(model, args):
    """A context for the prompt and the answer, with flash attention: llama.cpp's fastest way."""
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = args.tokens + args.generate + 64
    params.n_batch = params.n_ubatch = BATCH
    params.n_threads = params.n_threads_batch = args.threads
    params.type_k = params.type_v = KV_TYPES[args.kv]
    params.flash_attn_type = 1
    context = llama_cpp.llama_init_from_model(model, params)
    if not context:
        raise SystemExit(f"llama.cpp has no context of {params.n_ctx} tokens for this model")
    return context


def tokenize(model, text):
    data = text.encode()
    tokens = (llama_cpp.llama_token * (len(data) + 8))()
    vocab = llama_cpp.llama_model_get_vocab(model)
    n = llama_cpp.llama_tokenize(vocab, data, len(data), tokens, len(tokens), True, False)
    if n < 0:
        raise SystemExit("llama.cpp could not tokenise the text")
    return list(tokens[:n])


def detokenize(model, tokens):
    array = (llama_cpp.llama_token * len(tokens))(*tokens)
    vocab = llama_cpp.llama_model_get_vocab(model)
    out = ctypes.create_string_buffer(64 * len(tokens))
    n = llama_cpp.llama_detokenize(vocab, array, len(tokens), out, len(out), True, False)
    return out.raw[: max(n, 0)]


def decode(context, tokens):
    array = (llama_cpp.llama_token * len(tokens))(*tokens)
    if llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(array, len(tokens))) != 0:
        raise SystemExit("llama.cpp failed to decode")
    llama_cpp.llama_synchronize(context)


def measure(context, prompt, n_generate):
    """(seconds of prefill, seconds of generation)."""
    sampler = llama_cpp.llama_sampler_init_greedy()
    decode(context, prompt[:32])  # warm up: first touch of buffers, thread start
    llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
    start = time.perf_counter()
    for begin in range(0, len(prompt), BATCH):
        decode(context, prompt[begin : begin + BATCH])
    middle = time.perf_counter()
    for _ in range(n_generate):
        decode(context, [llama_cpp.llama_sampler_sample(sampler, context, -1)])
    return middle - start, time.perf_counter() - middle


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--generate", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--kv", choices=KV_TYPES, default="f16")
    parser.add_argument("--cut", help="write the text of the first --tokens tokens here, and stop")
    args = parser.parse_args()
    llama_cpp.llama_log_set(ignore_log, None)
    llama_cpp.llama_backend_init()
    model = load_model(args.model, vocab_only=bool(args.cut))
    with open(args.text, encoding="utf-8") as file:
        tokens = tokenize(model, file.read())[: args.tokens]
    if args.cut:
        with open(args.cut, "wb") as file:
            file.write(detokenize(model, tokens))
        return
    if len(tokens) < args.tokens:
        raise SystemExit(f"{args.text} has only {len(tokens)} tokens")
    prefill, generation = measure(make_context(model, args), tokens, args.generate)
    print(
        json.dumps(
            {
                "engine": "llama.cpp",
                "version": "llama-cpp-python " + importlib.metadata.version("llama-cpp-python"),
                "kv": args.kv,
                "threads": args.threads,
                "prompt_n": len(tokens),
                "prompt_per_second": len(tokens) / prefill,
                "predicted_n": args.generate,
                "predicted_per_second": args.generate / generation,
                "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            }
        )
    )


if __name__ == "__main__":
    main()
