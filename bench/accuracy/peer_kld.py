#!/usr/bin/env python3
"""llama.cpp's own compressed KV caches by kld.py's measure: KLD against its own float16 cache.

usage: .venv-peer/bin/python bench/accuracy/peer_kld.py MODEL.gguf TEXT... [--prefix 3072] [--tokens 512]

The same tokens, the same prefix, the same teacher forcing, 16 tokens at a time. llama.cpp rounds activations
to int8, so any change at all moves its logits: that floor is measured by changing only how it computes
(flash attention off) with a float16 cache. Its caches are compressed from the first token on, also while the
prompt is read, while tierkv reads the prompt exactly and keeps the first 64 and last 192 tokens exact.
"""

import argparse
import pathlib

import numpy as np

import evaluation
import peer_llamacpp as llama

REFERENCE = "f16"
STEP = 16  # tokens read at once after the prefix, as in tierkv eval
WAYS = {  # what is compared with float16 KV and flash attention
    "q4_0": {"kv": "q4_0"},
    "q8_0": {"kv": "q8_0"},
    "f16, flash attention off": {"kv": "f16", "flash": False},
}
BITS = {"f16": 16, "q8_0": 8.5, "q4_0": 4.5}  # an element, scales included


def log_softmax(logits):
    logits = logits.astype(np.float64)
    logits -= logits.max(axis=-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def decode_all(context, tokens, first, n_vocab):
    """Appends tokens, of which the first is at position `first`; [tokens, vocab]: what follows each."""
    batch = llama.llama_cpp.llama_batch_init(len(tokens), 0, 1)
    batch.n_tokens = len(tokens)
    for i, token in enumerate(tokens):
        batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, first + i, 1
        batch.seq_id[i][0], batch.logits[i] = 0, 1
    if llama.llama_cpp.llama_decode(context, batch) != 0:
        raise SystemExit("llama.cpp failed to decode")
    pointer = llama.llama_cpp.llama_get_logits(context)
    rows = np.ctypeslib.as_array(pointer, shape=(len(tokens), n_vocab)).copy()
    llama.llama_cpp.llama_batch_free(batch)
    return rows


def logits_of(model, ids, args, kv, flash=True):
    """[tokens - 1, vocab] of the predictions for ids[prefix + 1] and after."""
    n_vocab = llama.vocab_size(model)
    context = llama.make_context(model, len(ids) + 64, args.threads, kv, flash=flash)
    llama.decode(context, ids[: args.prefix])
    starts = range(args.prefix, len(ids) - 1, STEP)
    rows = [decode_all(context, ids[at : min(at + STEP, len(ids) - 1)], at, n_vocab) for at in starts]
    llama.llama_cpp.llama_free(context)
    return np.concatenate(rows)


def compare(exact, test, targets):
    """kld.py's figures. By rows, as all of a large vocabulary in float64 would take gigabytes."""
    klds, losses, losses_exact, same = [], [], [], 0
    for p, q, target in zip(exact, test, targets):
        p, q = log_softmax(p), log_softmax(q)
        klds.append(float((np.exp(p) * (p - q)).sum()))
        losses.append(-q[target])
        losses_exact.append(-p[target])
        same += int(p.argmax() == q.argmax())
    ppl, ppl_exact = (float(np.exp(np.mean(x))) for x in (losses, losses_exact))
    klds.sort()
    figures = {"kld": float(np.mean(klds)), "kld_p99": klds[len(klds) * 99 // 100], "kld_max": klds[-1]}
    return {
        **figures,
        "top1": same / len(klds),
        "ppl": ppl,
        "ppl_exact": ppl_exact,
        "delta_ppl": ppl - ppl_exact,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("model")
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--prefix", type=int, default=3072)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    llama.start()
    model = llama.load_model(args.model)
    out = evaluation.new_results("peer", args)
    for path in args.texts:
        text = pathlib.Path(path).read_text(encoding="utf-8")
        ids = llama.tokenize(model, text[: 12 * (args.prefix + args.tokens)])[: args.prefix + args.tokens]
        targets = ids[args.prefix + 1 :]
        exact = logits_of(model, ids, args, REFERENCE)
        for way, options in WAYS.items():
            figures = compare(exact, logits_of(model, ids, args, **options), targets)
            case = {
                "text": pathlib.Path(path).stem,
                "layout": way,
                "prefix": args.prefix,
                "tokens": args.tokens,
            }
            out.add({**case, "bits_per_element": BITS[options["kv"]], "n": len(targets), **figures})
            print(f"{case['text']:8} {way:26} KLD {figures['kld']:.5f}", flush=True)


if __name__ == "__main__":
    main()
