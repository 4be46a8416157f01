"""Float32 arrays to the bytes of a scheme, and back."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError
from . import rounding, tiles
from .metrics import ErrorStats
from .schemes import TILE_ROWS, Scheme, Shape

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]

# Elements rounded at once: the dozen temporaries of a chunk stay in the second-level cache.
_CHUNK = 1 << 16


def encode(x: Floats, scheme: Scheme, stats: ErrorStats | None = None) -> Bytes:
    """Stored bytes of a vector or matrix of finite floats; ``stats`` gathers the loss.

    Row chunks of a matrix may be encoded one after the other and their bytes joined, as long as
    every chunk but the last has a multiple of 16 rows.
    """
    out = np.empty(scheme.nbytes(x.shape), np.uint8)
    rows = x if x.ndim == 2 else x[None]
    step = max(1, _CHUNK // (rows.shape[1] * TILE_ROWS)) * TILE_ROWS
    done = 0
    for start in range(0, rows.shape[0], step):
        data = _encode_rows(rows[start : start + step], scheme, stats)
        out[done : done + data.size] = data
        done += data.size
    return out


def _encode_rows(x: Floats, scheme: Scheme, stats: ErrorStats | None) -> Bytes:
    if scheme.name == "f32":
        return x.astype("<f4").reshape(-1).view(np.uint8)
    if scheme.name == "bf16":
        bits = to_bf16(x)
        if stats is not None:
            stats.add(x, from_bf16(bits))
        return bits.astype("<u2").reshape(-1).view(np.uint8)
    codes, scales = rounding.quantise(x, scheme)
    if stats is not None:
        stats.add(x, rounding.dequantise(codes, scales, scheme))
    return tiles.pack(codes, scales, scheme)


def decode(data: Bytes, shape: Shape, scheme: Scheme) -> Floats:
    """The float32 values that stored bytes stand for; ArgumentError when the size is wrong."""
    if data.size != scheme.nbytes(shape):
        raise ArgumentError(f"{data.size} bytes, {scheme.nbytes(shape)} expected for {shape}")
    if scheme.name == "f32":
        return data.view("<f4").reshape(shape).astype(np.float32)
    if scheme.name == "bf16":
        return from_bf16(data.view("<u2").astype(np.uint16)).reshape(shape)
    codes, scales = tiles.unpack(data, (shape[0], shape[1]), scheme)
    return rounding.dequantise(codes, scales, scheme)


def to_bf16(x: Floats) -> NDArray[np.uint16]:
    """Bits of the nearest bfloat16, ties to even; ArgumentError when a value rounds to infinity."""
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    if bool(((rounded & 0x7F80) == 0x7F80).any()):
        raise ArgumentError("a value is beyond bfloat16")
    return rounded


def from_bf16(bits: NDArray[np.uint16]) -> Floats:
    return (bits.astype(np.uint32) << 16).view(np.float32)
