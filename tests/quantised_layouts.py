"""Writers of quantised matrices, one function a layout, from the layouts' descriptions.

Every one takes codes and what belongs to them and gives named tensors ``(dtype, array)``, dtype in
safetensors spelling. Packing is spelt out nibble by nibble on purpose: it judges the readers.
"""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

Parts = dict[str, tuple[str, np.ndarray]]
AWQ_COLUMNS = [0, 2, 4, 6, 1, 3, 5, 7]


def pack_words(codes: np.ndarray, bits: int) -> np.ndarray:
    """``[a, b]`` codes to ``[a, ceil(b * bits / 32)]`` words, lowest bits first."""
    per_word = 32 // bits
    words = np.zeros((codes.shape[0], -(-codes.shape[1] // per_word)), np.uint32)
    for column in range(codes.shape[1]):
        shift = bits * (column % per_word)
        words[:, column // per_word] |= codes[:, column].astype(np.uint32) << np.uint32(shift)
    return words


def gptq(
    base: str,
    q: np.ndarray,
    scales: np.ndarray,
    zeros: np.ndarray,
    *,
    bits: int = 4,
    version: int = 1,
    g_idx: np.ndarray | None = None,
    scale_dtype: str = "F16",
) -> Parts:
    """q ``[n, k]``; scales, zeros ``[n, groups]``."""
    stored = zeros if version == 2 else (zeros - 1) % (1 << bits)
    k, groups = q.shape[1], scales.shape[1]
    order = np.arange(k) // (k // groups) if g_idx is None else g_idx
    return {
        f"{base}.qweight": ("I32", pack_words(q, bits).T.view(np.int32)),
        f"{base}.qzeros": ("I32", pack_words(stored.T, bits).view(np.int32)),
        f"{base}.scales": (scale_dtype, scales.T),
        f"{base}.g_idx": ("I32", order.astype(np.int32)),
    }


def awq(base: str, q: np.ndarray, scales: np.ndarray, zeros: np.ndarray) -> Parts:
    def pack(matrix: np.ndarray) -> np.ndarray:  # [a, n]: eight columns a word, shuffled
        words = np.zeros((matrix.shape[0], matrix.shape[1] // 8), np.uint32)
        for word in range(words.shape[1]):
            for place, column in enumerate(AWQ_COLUMNS):
                nibble = matrix[:, 8 * word + column].astype(np.uint32)
                words[:, word] |= nibble << np.uint32(4 * place)
        return words.view(np.int32)

    return {
        f"{base}.qweight": ("I32", pack(q.T)),
        f"{base}.qzeros": ("I32", pack(zeros.T)),
        f"{base}.scales": ("F16", scales.T),
    }


def compressed(
    base: str,
    q: np.ndarray,
    scales: np.ndarray,
    zeros: np.ndarray | None = None,
    *,
    bits: int = 4,
    g_idx: np.ndarray | None = None,
    scale_dtype: str = "F16",
) -> Parts:
    """pack-quantized: codes and zero points are kept as the unsigned numbers given here."""
    parts: Parts = {
        f"{base}.weight_packed": ("I32", pack_words(q, bits).view(np.int32)),
        f"{base}.weight_scale": (scale_dtype, scales),
        f"{base}.weight_shape": ("I64", np.array(q.shape)),
    }
    if zeros is not None:
        parts[f"{base}.weight_zero_point"] = ("I32", pack_words(zeros.T, bits).T.view(np.int32))
    if g_idx is not None:
        parts[f"{base}.weight_g_idx"] = ("I32", g_idx.astype(np.int32))
    return parts


def int8_rows(base: str, q: np.ndarray, scales: np.ndarray, dtype: str = "F32") -> Parts:
    return {f"{base}.weight": ("I8", q), f"{base}.weight_scale": (dtype, scales)}


def float8(base: str, bits: np.ndarray, scales: np.ndarray, scale_name: str) -> Parts:
    return {f"{base}.weight": ("F8_E4M3", bits), f"{base}.{scale_name}": ("F32", scales)}


def mlx(
    base: str, q: np.ndarray, scales: np.ndarray, biases: np.ndarray, bits: int, dtype: str = "F16"
) -> Parts:
    """q ``[..., k]``; scales, biases ``[..., groups]``."""
    words = pack_words(q.reshape(-1, q.shape[-1]), bits)
    return {
        f"{base}.weight": ("U32", words.reshape(*q.shape[:-1], -1)),
        f"{base}.scales": (dtype, scales),
        f"{base}.biases": (dtype, biases),
    }


def float8_values(bits: np.ndarray) -> np.ndarray:
    """e4m3: sign, four bits of exponent (bias 7), three of mantissa; no infinity."""
    out = np.empty(bits.shape, np.float64)
    for index, byte in np.ndenumerate(bits):
        exponent, mantissa = (int(byte) >> 3) & 15, int(byte) & 7
        size = 2.0 ** (exponent - 7) * (1 + mantissa / 8) if exponent else 2.0**-9 * mantissa
        out[index] = -size if byte & 128 else size
    return out


def by_groups(grouped: np.ndarray, k: int) -> np.ndarray:
    return np.repeat(grouped, k // grouped.shape[1], axis=1)


def values(q: np.ndarray, scales: np.ndarray, zeros: np.ndarray) -> np.ndarray:
    """(q - zero) * scale, exact in float64, as float32."""
    k = q.shape[1]
    wide = q.astype(np.float64) - by_groups(zeros, k)
    return (wide * by_groups(scales.astype(np.float64), k)).astype(np.float32)


_NUMPY = {
    "F32": "<f4", "F16": "<f2", "I32": "<i4", "I64": "<i8", "U32": "<u4", "I8": "i1",
    "F8_E4M3": "u1",
}  # fmt: skip


def write(path: Path, parts: Parts) -> None:
    """A safetensors file of tensors of any type (BF16: float32 values that bfloat16 has)."""
    header: dict[str, Any] = {}
    blobs, offset = [], 0
    for name, (dtype, array) in parts.items():
        if dtype == "BF16":
            bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
            data = (bits >> 16).astype("<u2").tobytes()
        else:
            data = np.ascontiguousarray(array).astype(_NUMPY[dtype]).tobytes()
        end = offset + len(data)
        header[name] = {
            "dtype": dtype,
            "shape": list(array.shape),
            "data_offsets": [offset, end],
        }
        assert array.size == prod(array.shape)
        blobs.append(data)
        offset = end
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(blobs))
