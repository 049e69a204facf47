#!/usr/bin/env python3
"""Float32 forward pass of llama, qwen2 and gemma3 models from GGUF, to test the engine against.

Everything is dequantised to float32 and computed in numpy in the order of the papers: slow, short
and independent of the engine's own code.

usage: reference.py MODEL.gguf IDS.json OUT.bin [--tokens N] [--last N] [--log-probs]
IDS.json is a list of token ids, of which the first --tokens are read. OUT.bin is raw little-endian float32: logits [rows, vocab], where
row i belongs to position i and predicts token i + 1; with --log-probs instead one value a row, the
natural log-probability of the token that follows (the last position has none).
"""
import argparse
import json
from dataclasses import dataclass

import gguf
import numpy as np

QUERY_BLOCK = 256  # queries whose scores are held at once
LOGIT_BLOCK = 256  # rows of logits held at once
GEMMA3_LOCAL_ROPE_BASE = 10000.0  # of layers with a sliding window, when the file doesn't say


@dataclass
class Spec:
    """The sizes and switches of one model, as its GGUF metadata gives them."""

    architecture: str
    n_layers: int
    n_embd: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    norm_eps: float
    rope_base: float
    rope_base_local: float
    window: int  # of local layers; counts the current token
    window_period: int  # every window_period-th layer is global; 1: all are
    rope_adjacent: bool  # RoPE pairs dimensions (2i, 2i + 1), else (i, i + head_dim / 2)
    logit_softcap: float

    @property
    def is_gemma(self):
        return self.architecture == "gemma3"

    def is_local(self, layer):
        """Whether the layer attends only to a window."""
        return layer % self.window_period < self.window_period - 1


def read_spec(metadata):
    """Spec from the metadata's dictionary."""
    arch = metadata["general.architecture"]
    if arch not in ("llama", "qwen2", "gemma3"):
        raise SystemExit(f"reference.py knows llama, qwen2 and gemma3, not {arch}")

    def get(key, default=None):
        return metadata.get(f"{arch}.{key}", default)

    n_embd, n_heads = get("embedding_length"), get("attention.head_count")
    local = arch == "gemma3" and get("attention.sliding_window", 0) > 0
    return Spec(
        architecture=arch,
        n_layers=get("block_count"),
        n_embd=n_embd,
        n_heads=n_heads,
        n_kv_heads=get("attention.head_count_kv", n_heads),
        head_dim=get("attention.key_length", n_embd // n_heads),
        norm_eps=get("attention.layer_norm_rms_epsilon"),
        rope_base=get("rope.freq_base", 10000.0),
        rope_base_local=get("rope.freq_base_swa", GEMMA3_LOCAL_ROPE_BASE),
        window=get("attention.sliding_window", 0),
        window_period=get("attention.sliding_window_pattern", 6) if local else 1,
        rope_adjacent=arch == "llama",
        logit_softcap=get("final_logit_softcapping", 0.0),
    )


def read_model(path):
    """(Spec, tensors as float32 by name). Matrices are [n_out, n_in]."""
    reader = gguf.GGUFReader(path)
    metadata = {k: f.contents() for k, f in reader.fields.items() if not k.startswith("tokenizer.")}
    tensors = {
        t.name: gguf.dequantize(t.data, t.tensor_type).astype(np.float32) for t in reader.tensors
    }
    return read_spec(metadata), tensors


def rms_norm(x, weight, eps):
    """RMSNorm (Zhang and Sennrich 2019) over the last dimension."""
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(eps)) * weight


def linear(tensors, name, x):
    """x W^T, plus the bias if the file has one."""
    y = x @ tensors[name + ".weight"].T
    bias = tensors.get(name + ".bias")
    return y if bias is None else y + bias


def rope(spec, x, base, factors):
    """Rotary position embedding of x [tokens, heads, head_dim] at positions 0, 1, ..."""
    half = spec.head_dim // 2
    frequencies = base ** (-2.0 * np.arange(half) / spec.head_dim) / factors
    angles = np.arange(len(x))[:, None] * frequencies[None]
    cos = np.cos(angles).astype(np.float32)[:, None]
    sin = np.sin(angles).astype(np.float32)[:, None]
    out = np.empty_like(x)
    if spec.rope_adjacent:
        first, second = slice(0, None, 2), slice(1, None, 2)
    else:
        first, second = slice(0, half), slice(half, None)
    a, b = x[..., first], x[..., second]
    out[..., first] = a * cos - b * sin
    out[..., second] = a * sin + b * cos
    return out


def softmax(scores):
    """Softmax over the last dimension, in place."""
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
    return scores


def attend(q, k, v, window):
    """Causal attention. q [tokens, heads, d], k and v [tokens, kv_heads, d]; window 0 sees all."""
    n_tokens, n_heads, head_dim = q.shape
    group = n_heads // k.shape[1]
    out = np.empty_like(q)
    scale = np.float32(1.0 / np.sqrt(head_dim))
    for begin in range(0, n_tokens, QUERY_BLOCK):
        end = min(begin + QUERY_BLOCK, n_tokens)
        first = max(0, begin - window + 1) if window else 0
        age = np.arange(begin, end)[:, None] - np.arange(first, end)[None]
        hidden = (age < 0) | (age >= window) if window else age < 0
        for head in range(n_heads):
            scores = q[begin:end, head] @ k[first:end, head // group].T * scale
            scores[hidden] = -np.inf
            out[begin:end, head] = softmax(scores) @ v[first:end, head // group]
    return out


def attention_block(spec, tensors, layer, x):
    """The attention half of a layer, without its residual."""
    p, n_tokens = f"blk.{layer}.", len(x)
    x = rms_norm(x, tensors[p + "attn_norm.weight"], spec.norm_eps)
    q = linear(tensors, p + "attn_q", x).reshape(n_tokens, spec.n_heads, spec.head_dim)
    k = linear(tensors, p + "attn_k", x).reshape(n_tokens, spec.n_kv_heads, spec.head_dim)
    v = linear(tensors, p + "attn_v", x).reshape(n_tokens, spec.n_kv_heads, spec.head_dim)
    if spec.is_gemma:
        q = rms_norm(q, tensors[p + "attn_q_norm.weight"], spec.norm_eps)
        k = rms_norm(k, tensors[p + "attn_k_norm.weight"], spec.norm_eps)
    local = spec.is_local(layer)
    base = spec.rope_base_local if local else spec.rope_base
    factors = tensors.get("rope_freqs.weight", np.float32(1))
    q, k = rope(spec, q, base, factors), rope(spec, k, base, factors)
    y = attend(q, k, v, spec.window if local else 0)
    y = linear(tensors, p + "attn_output", y.reshape(n_tokens, -1))
    if spec.is_gemma:
        y = rms_norm(y, tensors[p + "post_attention_norm.weight"], spec.norm_eps)
    return y


def silu(z):
    with np.errstate(over="ignore"):  # exp(-z) = inf gives the right 0
        return z / (1 + np.exp(-z))


def gelu(z):
    """The tanh form of GELU."""
    return 0.5 * z * (1 + np.tanh(np.float32(np.sqrt(2 / np.pi)) * (z + 0.044715 * z * z * z)))


def ffn_block(spec, tensors, layer, x):
    """The feed-forward half of a layer, without its residual."""
    p = f"blk.{layer}."
    x = rms_norm(x, tensors[p + "ffn_norm.weight"], spec.norm_eps)
    activation = gelu if spec.is_gemma else silu
    gated = activation(linear(tensors, p + "ffn_gate", x)) * linear(tensors, p + "ffn_up", x)
    y = linear(tensors, p + "ffn_down", gated)
    if spec.is_gemma:
        y = rms_norm(y, tensors[p + "post_ffw_norm.weight"], spec.norm_eps)
    return y


def hidden_states(spec, tensors, ids):
    """The decoder's normalised output [tokens, n_embd], ready for the output matrix."""
    x = tensors["token_embd.weight"][ids]
    if spec.is_gemma:
        x = x * np.float32(np.sqrt(spec.n_embd))
    for layer in range(spec.n_layers):
        x = x + attention_block(spec, tensors, layer, x)
        x = x + ffn_block(spec, tensors, layer, x)
    return rms_norm(x, tensors["output_norm.weight"], spec.norm_eps)


def logits(spec, tensors, hidden):
    """Logits [rows, vocab] of rows of hidden_states()."""
    output = tensors.get("output.weight", tensors["token_embd.weight"])
    z = hidden @ output.T
    if spec.logit_softcap:
        z = spec.logit_softcap * np.tanh(z / np.float32(spec.logit_softcap))
    return z


def log_softmax(z):
    """Over the last dimension, in float64."""
    z = z.astype(np.float64)
    z -= z.max(axis=-1, keepdims=True)
    return z - np.log(np.exp(z).sum(axis=-1, keepdims=True))


def logit_blocks(spec, tensors, hidden):
    """(index of the first row, logits [<= LOGIT_BLOCK, vocab]), block by block."""
    for begin in range(0, len(hidden), LOGIT_BLOCK):
        yield begin, logits(spec, tensors, hidden[begin : begin + LOGIT_BLOCK])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("ids")
    parser.add_argument("out")
    parser.add_argument("--tokens", type=int, help="read only the first N ids")
    parser.add_argument("--last", type=int, default=0, help="write only the last N positions")
    parser.add_argument("--log-probs", action="store_true", help="of the tokens that follow")
    args = parser.parse_args()
    with open(args.ids, encoding="utf-8") as file:
        ids = np.array(json.load(file)[: args.tokens], dtype=np.int64)
    spec, tensors = read_model(args.model)
    hidden = hidden_states(spec, tensors, ids)
    first = max(0, len(ids) - args.last) if args.last else 0
    end = len(ids) - 1 if args.log_probs else len(ids)
    with open(args.out, "wb") as out:
        for begin, block in logit_blocks(spec, tensors, hidden[first:end]):
            if args.log_probs:
                following = ids[first + begin + 1 : first + begin + 1 + len(block)]
                block = log_softmax(block)[np.arange(len(block)), following]
            out.write(np.ascontiguousarray(block, dtype="<f4").tobytes())


if __name__ == "__main__":
    main()
