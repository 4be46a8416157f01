"""Float arrays to the bytes of a scheme, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError
from . import tiles
from .methods import Calibration, encoder, settle
from .metrics import ErrorStats
from .schemes import CODE_BITS, Scheme, Shape

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]
Codes = NDArray[np.uint8] | NDArray[np.int8]
Halves = NDArray[np.float16]


def encode(
    x: NDArray[Any],
    scheme: Scheme,
    stats: ErrorStats | None = None,
    *,
    method: str = "rtn",
    calibration: Calibration | None = None,
    threads: int = 0,
) -> Bytes:
    """Stored bytes of a vector or matrix; ``stats`` gathers the loss.

    ``x`` is float32, float16, or the bits of bfloat16 as uint16. ``method`` is one of METHODS; for
    what happens where ``calibration`` does not suffice, see ``settle``. Row chunks of a matrix may
    be encoded one after the other and their bytes joined, as long as every chunk but the last has a
    multiple of 16 rows. ``threads`` never changes a byte. ArgumentError when a value is not finite,
    a scale (bf16: a value) overflows, or the calibration is of another width.
    """
    out = np.empty(scheme.nbytes(x.shape), np.uint8)
    chosen = settle(method, calibration, threads) if scheme.quantised else "rtn"
    weights = factor = None
    if chosen in ("weighted", "gptq"):
        assert calibration is not None
        if calibration.columns != x.shape[-1]:
            raise ArgumentError(
                f"calibration of {calibration.columns} columns for a matrix of {x.shape[-1]}"
            )
        weights = calibration.mean_squares
        factor = calibration.factor(threads) if chosen == "gptq" else None
    loss = encoder(threads).encode(
        np.ascontiguousarray(x),
        out,
        scheme=scheme.name,
        group=scheme.group,
        codebook=scheme.codebook,
        method=chosen,
        weights=weights,
        factor=factor,
    )
    if stats is not None:
        stats.add_sums(*loss)
    return out


def decode(data: Bytes, shape: Shape, scheme: Scheme) -> Floats:
    """The float32 values that stored bytes stand for; ArgumentError when the size is wrong."""
    if data.size != scheme.nbytes(shape):
        raise ArgumentError(f"{data.size} bytes, {scheme.nbytes(shape)} expected for {shape}")
    if scheme.name == "f32":
        return data.view("<f4").reshape(shape).astype(np.float32)
    if scheme.name == "bf16":
        return from_bf16(data.view("<u2").astype(np.uint16)).reshape(shape)
    codes, scales = tiles.unpack(data, (shape[0], shape[1]), scheme)
    return dequantise(codes, scales, scheme)


def dequantise(codes: Codes, scales: Halves, scheme: Scheme) -> Floats:
    """The floats ``[n, k]`` that codes ``[n, k]`` and scales ``[n, k/group]`` stand for."""
    n, k = codes.shape
    if scheme.codebook:
        values = np.array(scheme.codebook, np.float32)[codes]
    else:
        values = codes.astype(np.float32)
    values = values.reshape(n, scales.shape[1], -1)
    if not scheme.codebook and scheme.name != "int8":
        values -= 1 << (CODE_BITS[scheme.name] - 1)
    values *= scales.astype(np.float32)[:, :, None]
    return values.reshape(n, k)


def from_bf16(bits: NDArray[np.uint16]) -> Floats:
    return (bits.astype(np.uint32) << 16).view(np.float32)
