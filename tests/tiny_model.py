"""Random models of a few hundred kilobytes whose answers come at once: write(path, architecture)."""
import gguf
import numpy

LAYERS, EMBEDDING, HEADS, KV_HEADS, HEAD_DIM, FEED_FORWARD = 4, 128, 4, 4, 32, 256
CONTEXT, WINDOW = 4096, 128


def byte_spellings():
    """GPT-2's letters for the bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    letters = {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(others)}
    return [letters[b] for b in range(256)]


def write(path, architecture="llama"):
    gemma = architecture == "gemma3"
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(EMBEDDING)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    if gemma:
        writer.add_sliding_window(WINDOW)
        writer.add_uint32("gemma3.attention.sliding_window_pattern", 2)
    tokens = byte_spellings() + ["<|end|>"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * 256 + [3])
    writer.add_token_merges([])
    writer.add_eos_token_id(256)

    random = numpy.random.default_rng(7)

    def tensor(name, *shape, spread=None, mean=0.0):
        spread = 1 / shape[-1] ** 0.5 if spread is None else spread
        writer.add_tensor(name, (random.standard_normal(shape) * spread + mean).astype(numpy.float32))

    tensor("token_embd.weight", len(tokens), EMBEDDING, spread=1)
    tensor("output_norm.weight", EMBEDDING, spread=0.1, mean=1)
    tensor("output.weight", len(tokens), EMBEDDING, spread=0.3)
    for i in range(LAYERS):
        block = f"blk.{i}."
        for name in ("attn_norm", "ffn_norm") + (("post_attention_norm", "post_ffw_norm") if gemma else ()):
            tensor(f"{block}{name}.weight", EMBEDDING, spread=0.1, mean=1)
        if gemma:
            tensor(f"{block}attn_q_norm.weight", HEAD_DIM, spread=0.1, mean=1)
            tensor(f"{block}attn_k_norm.weight", HEAD_DIM, spread=0.1, mean=1)
        tensor(f"{block}attn_q.weight", HEADS * HEAD_DIM, EMBEDDING, spread=0.3)
        tensor(f"{block}attn_k.weight", KV_HEADS * HEAD_DIM, EMBEDDING, spread=0.3)
        tensor(f"{block}attn_v.weight", KV_HEADS * HEAD_DIM, EMBEDDING)
        tensor(f"{block}attn_output.weight", EMBEDDING, HEADS * HEAD_DIM)
        tensor(f"{block}ffn_gate.weight", FEED_FORWARD, EMBEDDING)
        tensor(f"{block}ffn_up.weight", FEED_FORWARD, EMBEDDING)
        tensor(f"{block}ffn_down.weight", EMBEDDING, FEED_FORWARD)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
