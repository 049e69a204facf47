#!/usr/bin/env python3
"""The meaning of every tensor type, by the Python package `gguf`: an oracle for dequantize().

usage: dequantize.py DIRECTORY

Writes TYPE.blocks (random blocks, as they would lie in a GGUF file) and TYPE.f32 (their values,
little-endian float32) for each type of src/base/tensor_type.h. The same bytes every time.
"""
import re
import sys
from pathlib import Path

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants

BLOCKS = 500
TENSOR_TYPES = Path(__file__).parents[2] / "src" / "base" / "tensor_type.h"
# Where a block keeps its float16 scales. They must be finite: random bytes are NaN or infinite one
# time in 32, and NaNs cannot be compared.
SCALES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
}


def wanted_types():
    """(name, elements, bytes) of each entry of kTensorTypes, so that no type can be forgotten."""
    entry = re.compile(r'\{TensorType::k\w+, "(\w+)", (\d+), (\d+)\}')
    return [(n, int(e), int(b)) for n, e, b in entry.findall(TENSOR_TYPES.read_text())]


def finite_f16(rng, n):
    """Every exponent but that of infinities and NaNs; both signs; subnormals too."""
    bits = rng.integers(0, 1 << 16, n, dtype=np.uint16)
    return np.where(bits & 0x7C00 == 0x7C00, bits & 0x83FF, bits).astype("<u2")


def all_finite(bits, exponent):
    return bits[bits & exponent != exponent]


def make_blocks(rng, name, n_bytes):
    every = np.arange(1 << 16, dtype="<u2")
    if name == "F16":
        return all_finite(every, 0x7C00).view(np.uint8)
    if name == "BF16":
        return all_finite(every, 0x7F80).view(np.uint8)
    if name == "F32":
        return all_finite(rng.integers(0, 1 << 32, 4096, dtype="<u4"), 0x7F800000).view(np.uint8)
    blocks = rng.integers(0, 256, (BLOCKS, n_bytes), dtype=np.uint8)
    for offset in SCALES[name]:
        blocks[:, offset:offset + 2] = finite_f16(rng, BLOCKS).view(np.uint8).reshape(-1, 2)
    return blocks


def main():
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    types = wanted_types()
    if not types:
        sys.exit(f"found no tensor types in {TENSOR_TYPES}")
    for name, n_elements, n_bytes in types:
        number = GGMLQuantizationType[name]
        if GGML_QUANT_SIZES[number] != (n_elements, n_bytes):
            sys.exit(f"{name}: a block is {GGML_QUANT_SIZES[number]}, not {n_elements, n_bytes}")
        blocks = make_blocks(np.random.default_rng(int(number)), name, n_bytes)
        values = quants.dequantize(blocks, number).astype("<f4")
        if not np.isfinite(values).all():
            sys.exit(f"{name}: the oracle's values are not all finite")
        (directory / f"{name}.blocks").write_bytes(blocks.tobytes())
        (directory / f"{name}.f32").write_bytes(values.tobytes())


if __name__ == "__main__":
    main()
