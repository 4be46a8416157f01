"""Weights to codes: groups along the columns, one float16 scale a group.

The scale is rounded to float16 *before* the codes are computed, so the codes answer to the scale
that is stored. A code stands for a level: code - 8 (int4), code - 4 (int3), codebook[code]
(codebook4) or itself (int8); value = level * scale. Scales are signed, so that the element of
largest magnitude can sit on the outermost level whatever its sign; int8's are >= 0.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError
from .codebook import Nearest
from .schemes import CODE_BITS, Scheme

Floats = NDArray[np.float32]
Halves = NDArray[np.float16]
Codes = NDArray[np.uint8] | NDArray[np.int8]
Code = TypeVar("Code", np.uint8, np.int8)

# Candidate scales, as multiples of (largest element) / (outermost level). With the closed-form
# refit these five come within 0.06 dB of a grid five times as fine (Gaussian and Student-t weights;
# int4 and codebook4 at group 32, int3 at 64). Fewer levels want more clipping.
SEARCH_GRID = (0.85, 0.92, 1.0, 1.08, 1.16)
SEARCH_GRIDS = {"int3": (0.7, 0.8, 0.9, 1.0, 1.1)}
_TINY = 1e-30  # far below what a float16 scale can hold; inverses of less may overflow


class Levels(Protocol):
    """What the codes of a scheme stand for, in units of the scale."""

    @property
    def ends(self) -> tuple[float, ...]:
        """Levels on which the largest element of a group may sit."""

    def round(self, u: Floats) -> None:
        """Replaces finite floats by their nearest levels."""

    def codes(self, u: Floats) -> NDArray[np.uint8]:
        """Codes of the levels nearest to finite floats, which it may overwrite."""


class Uniform:
    """Codes 0 .. 2^bits - 1 for the levels -2^(bits-1) .. 2^(bits-1) - 1."""

    def __init__(self, bits: int) -> None:
        self._lowest = -(1 << (bits - 1))
        self.ends = (float(self._lowest),)

    def round(self, u: Floats) -> None:
        np.rint(u, out=u)
        np.clip(u, self._lowest, -self._lowest - 1, out=u)

    def codes(self, u: Floats) -> NDArray[np.uint8]:
        self.round(u)
        u -= self._lowest
        return u.astype(np.uint8)


def quantise(x: Floats, scheme: Scheme, *, search: bool = True) -> tuple[Codes, Halves]:
    """Codes ``[n, k]`` (int8: int8, else uint8) and scales ``[n, k/group]`` of a matrix ``[n, k]``.

    ``search`` tries a grid of scales around "largest element on the outermost level" and refits
    each in closed form (least squares of the scale for given codes), keeping the smallest squared
    error; codebook4 tries both ends of its codebook. int8 has no search. ArgumentError when a
    value is not finite or a scale overflows float16.
    """
    columns = _groups(x, scheme.group)
    if scheme.name == "int8":
        return _quantise_int8(columns, x.shape)
    levels = Nearest(scheme.codebook) if scheme.codebook else Uniform(CODE_BITS[scheme.name])
    grid = SEARCH_GRIDS.get(scheme.name, SEARCH_GRID) if search else ()
    codes, scale = round_groups(columns, levels, grid)
    return _rows(codes, x.shape), scale.reshape(x.shape[0], -1)


def round_groups(
    columns: Floats, levels: Levels, grid: tuple[float, ...] = SEARCH_GRID
) -> tuple[NDArray[np.uint8], Halves]:
    """Codes ``[group, m]`` and scales ``[m]`` of m groups ``[group, m]``; no grid: no search."""
    largest = _largest(columns)
    first = largest * np.float32(1 / levels.ends[0])
    scale = _half(_search(columns, largest, levels, grid) if grid else first)
    return levels.codes(columns * _inverse(scale.astype(np.float32))), scale


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


def _largest(columns: Floats) -> Floats:
    """The element of largest magnitude of each group; ArgumentError when one is not finite."""
    high, low = columns.max(axis=0), columns.min(axis=0)
    largest: Floats = np.where(high > -low, high, low)
    if not np.isfinite(largest).all():
        raise ArgumentError("a weight is not finite")
    return largest


def _quantise_int8(columns: Floats, shape: tuple[int, ...]) -> tuple[NDArray[np.int8], Halves]:
    scale = _half(np.divide(np.abs(_largest(columns)), 127, dtype=np.float32))
    codes = columns * _inverse(scale.astype(np.float32))
    np.rint(codes, out=codes)
    np.clip(codes, -127, 127, out=codes)
    return _rows(codes.astype(np.int8), shape), scale.reshape(shape[0], -1)


def _search(columns: Floats, largest: Floats, levels: Levels, grid: tuple[float, ...]) -> Floats:
    best_gain = np.full(largest.shape, -1, np.float32)
    best = np.zeros_like(largest)
    # Groups are scaled to a largest element of 1 first: squares of tiny or huge weights stay inside
    # float32.
    unit = columns * _inverse(largest)
    rounded, product = np.empty_like(columns), np.empty_like(columns)
    for end in levels.ends:
        for factor in grid:
            np.multiply(unit, np.float32(end / factor), out=rounded)
            levels.round(rounded)
            np.multiply(unit, rounded, out=product)
            xc = product.sum(axis=0)
            np.multiply(rounded, rounded, out=product)
            cc = np.maximum(product.sum(axis=0), np.float32(1e-9))
            gain = xc * xc / cc  # squared error after the refit is sum x^2 - gain
            better = gain > best_gain
            best_gain = np.where(better, gain, best_gain)
            best = np.where(better, largest * (xc / cc), best)
    return best


def _groups(x: Floats, group: int) -> Floats:
    """``[n, k]`` to ``[group, n*k/group]``: reductions then run down whole vector registers."""
    if x.ndim != 2 or x.shape[1] % group:
        raise ArgumentError(f"a matrix of {group}-column groups is needed, not shape {x.shape}")
    return np.ascontiguousarray(x.reshape(-1, group).T, dtype=np.float32)


def _rows(columns: NDArray[Code], shape: tuple[int, ...]) -> NDArray[Code]:
    return np.ascontiguousarray(columns.T).reshape(shape)


def _half(scale: Floats) -> Halves:
    with np.errstate(over="ignore"):
        half = scale.astype(np.float16)
    if not np.isfinite(half).all():
        raise ArgumentError(f"a group needs a scale of {np.abs(scale).max():g}, beyond float16")
    half[half == 0] = 0  # one zero: a negative one would make equal matrices differ in their bytes
    return half


def _inverse(scale: Floats) -> Floats:
    """1 / scale, and 0 where the scale is 0 or as good as that."""
    return np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=np.abs(scale) > _TINY)
