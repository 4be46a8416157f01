"""Codes of packed matrices as onnxruntime's operators take them: 4 or 8 bits, zero point 8 or 128,
row by row. Every scheme's values are kept exactly."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...quant.schemes import Scheme
from ...quant.tiles import Codes

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]

# Entries of a codebook are integers of 8 bits; the seven levels of int3 are codes of 4.
BITS = {"int4": 4, "int3": 4, "int8": 8, "codebook4": 8}


def offset_codes(codes: Codes, scheme: Scheme, bits: int) -> Bytes:
    """uint8 [n, k]: value / scale + 2^(bits - 1), for bits of BITS[scheme.name] or more."""
    if scheme.name == "int8":
        return codes.view(np.uint8) ^ np.uint8(0x80)
    if scheme.name == "codebook4":
        return (np.array(scheme.codebook, np.int16) + 128).astype(np.uint8)[codes]
    zero = 4 if scheme.name == "int3" else 8
    return codes.view(np.uint8) + np.uint8((1 << (bits - 1)) - zero)


def pack_codes(codes: Bytes, bits: int) -> Bytes:
    """[n, k * bits / 8]: of two codes of 4 bits the lower column's is in the lower half."""
    return codes if bits == 8 else codes[:, ::2] | (codes[:, 1::2] << np.uint8(4))


def values_of(codes: Codes, scales: NDArray[np.float16], scheme: Scheme) -> Floats:
    """float32 [n, k]."""
    levels = offset_codes(codes, scheme, 8).astype(np.float32) - np.float32(128)
    return levels * np.repeat(scales.astype(np.float32), scheme.group, axis=1)
