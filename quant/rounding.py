"""Weights to codes: groups along the columns, one float16 scale a group.

The scale is rounded to float16 *before* the codes are computed, so the codes answer to the scale
that is stored. int4: value = (code - 8) * scale, scale signed, so that the element of largest
magnitude can sit on code 0 whatever its sign. int8: value = code * scale, scale >= 0.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError

Floats = NDArray[np.float32]
Halves = NDArray[np.float16]
Code = TypeVar("Code", np.uint8, np.int8)

# Candidate scales of the int4 search, as multiples of (largest element) / -8. With the closed-form
# refit these five come within 0.05 dB of a grid of 22 (Gaussian and Student-t weights, group 32).
SEARCH_GRID = (0.85, 0.92, 1.0, 1.08, 1.16)
_F16_MAX = float(np.finfo(np.float16).max)


def quantise_int4(
    x: Floats, group: int, *, search: bool = True
) -> tuple[NDArray[np.uint8], Halves]:
    """Codes 0..15 ``[n, k]`` and signed scales ``[n, k/group]`` of a matrix ``[n, k]``.

    ``search`` tries SEARCH_GRID around the largest element and refits each candidate in closed
    form (least squares of the scale for given codes), keeping the smallest squared error.
    ArgumentError when a scale overflows float16.
    """
    columns = _groups(x, group)
    high, low = columns.max(axis=0), columns.min(axis=0)
    first = np.where(high > -low, high, low) / np.float32(-8)
    _check_overflow(first)
    scale = _half(_search(columns, first) if search else first)
    codes = columns * _inverse(scale.astype(np.float32))
    np.rint(codes, out=codes)
    np.clip(codes, -8, 7, out=codes)
    return _rows((codes + 8).astype(np.uint8), x.shape), scale.reshape(x.shape[0], -1)


def quantise_int8(x: Floats, group: int) -> tuple[NDArray[np.int8], Halves]:
    """Codes -127..127 ``[n, k]`` and scales >= 0 ``[n, k/group]`` of a matrix ``[n, k]``."""
    columns = _groups(x, group)
    first = np.maximum(columns.max(axis=0), -columns.min(axis=0)) / np.float32(127)
    _check_overflow(first)
    scale = _half(first)
    codes = columns * _inverse(scale.astype(np.float32))
    np.rint(codes, out=codes)
    np.clip(codes, -127, 127, out=codes)
    return _rows(codes.astype(np.int8), x.shape), scale.reshape(x.shape[0], -1)


def dequantise(codes: NDArray[np.uint8] | NDArray[np.int8], scales: Halves) -> Floats:
    """``[n, k]`` floats of uint8 (int4, zero point 8) or int8 codes and their group scales."""
    n, k = codes.shape
    values = codes.astype(np.float32).reshape(n, scales.shape[1], -1)
    if codes.dtype == np.uint8:
        values -= 8
    values *= scales.astype(np.float32)[:, :, None]
    return values.reshape(n, k)


def _search(columns: Floats, first: Floats) -> Floats:
    best_gain = np.full(first.shape, -1, np.float32)
    best = first
    inverse = _inverse(first)
    # Groups are scaled to unit step first: squares of tiny or huge weights stay inside float32.
    unit = columns * inverse
    codes, product = np.empty_like(columns), np.empty_like(columns)
    for factor in SEARCH_GRID:
        np.multiply(unit, np.float32(1 / factor), out=codes)
        np.rint(codes, out=codes)
        np.clip(codes, -8, 7, out=codes)
        np.multiply(unit, codes, out=product)
        xc = product.sum(axis=0)
        np.multiply(codes, codes, out=product)
        cc = np.maximum(product.sum(axis=0), np.float32(1e-9))
        gain = xc * xc / cc  # squared error after the refit is sum x^2 - gain
        better = gain > best_gain
        best_gain = np.where(better, gain, best_gain)
        best = np.where(better, first * (xc / cc), best)
    return best


def _groups(x: Floats, group: int) -> Floats:
    """``[n, k]`` to ``[group, n*k/group]``: reductions then run down whole vector registers."""
    if x.ndim != 2 or x.shape[1] % group:
        raise ArgumentError(f"a matrix of {group}-column groups is needed, not shape {x.shape}")
    return np.ascontiguousarray(x.reshape(-1, group).T, dtype=np.float32)


def _rows(columns: NDArray[Code], shape: tuple[int, ...]) -> NDArray[Code]:
    return np.ascontiguousarray(columns.T).reshape(shape)


def _check_overflow(scale: Floats) -> None:
    largest = float(np.abs(scale).max())
    if not largest * 1.2 < _F16_MAX:  # the search may raise a scale by its widest factor
        raise ArgumentError(f"a group needs a scale of {largest:g}, beyond float16")


def _half(scale: Floats) -> Halves:
    half = scale.astype(np.float16)
    half[half == 0] = 0  # one zero: a negative one would make equal matrices differ in their bytes
    return half


def _inverse(scale: Floats) -> Floats:
    """1 / scale, and 0 where the scale is 0."""
    return np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale != 0)
