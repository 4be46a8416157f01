"""Quantisation in plain numpy: the reference for what the core does, operation by operation.

Codes and scales come out equal, bit for bit: sums run down the columns in order, in float32, here
as there. What works on groups has them as columns, ``[group, m]``: m groups side by side.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from clover_edge.errors import ArgumentError
from clover_edge.quant import Scheme
from clover_edge.quant.schemes import CODE_BITS

Floats = NDArray[np.float32]
Halves = NDArray[np.float16]
Codes = NDArray[np.uint8] | NDArray[np.int8]

# Candidate scales, as multiples of (largest element) / (outermost level).
GRID = (0.80, 0.85, 0.90, 0.95, 1.00, 1.05, 1.10, 1.15, 1.20)
WIDE_GRID = (0.60, 0.66, 0.72, 0.78, 0.84, 0.90, 0.97, 1.04, 1.12)  # int3's
WEIGHTED_GRID = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2)  # with either sign
DAMPING = 0.01
_TINY = 1e-30
_LIMIT = 127  # of a codebook's values


class Levels(Protocol):
    """What the codes of a scheme stand for, in units of the scale."""

    @property
    def ends(self) -> tuple[float, ...]:
        """Levels on which the largest element of a group may sit."""

    @property
    def nearer(self) -> float:
        """The smaller magnitude of the two outermost levels."""

    def round(self, u: Floats) -> None:
        """Replaces finite floats by their nearest levels."""

    def codes(self, u: Floats) -> Codes:
        """Codes of the levels nearest to finite floats, which it may overwrite."""


class Uniform:
    """Codes 0 .. 2^bits - 1 for the levels -2^(bits-1) .. 2^(bits-1) - 1."""

    def __init__(self, bits: int) -> None:
        self._lowest = -(1 << (bits - 1))
        self.ends: tuple[float, ...] = (float(self._lowest),)
        self.nearer = float(-self._lowest - 1)

    def round(self, u: Floats) -> None:
        np.rint(u, out=u)
        np.clip(u, self._lowest, -self._lowest - 1, out=u)

    def codes(self, u: Floats) -> Codes:
        self.round(u)
        u -= self._lowest
        return u.astype(np.uint8)


class Bytes:
    """int8: the codes -127 .. 127 are the levels."""

    ends, nearer = (-127.0,), 127.0

    def round(self, u: Floats) -> None:
        np.rint(u, out=u)
        np.clip(u, -127, 127, out=u)

    def codes(self, u: Floats) -> Codes:
        self.round(u)
        return u.astype(np.int8)


class Nearest:
    """Looks up the entry nearest to a float, exactly.

    Twice a border between two entries is an integer, so ``floor(2 u)`` tells on which side of every
    border ``u`` is: a table of 509 places holds all answers. On a border the upper entry wins.
    """

    def __init__(self, codebook: tuple[int, ...]) -> None:
        places = np.arange(-2 * _LIMIT, 2 * _LIMIT + 1)
        twice_borders = np.array(codebook[1:]) + np.array(codebook[:-1])
        self.ends = (float(codebook[0]), float(codebook[-1]))
        self.nearer = min(-self.ends[0], self.ends[1])
        self._codes = np.searchsorted(twice_borders, places, side="right").astype(np.uint8)
        self._values = np.array(codebook, np.float32)[self._codes]

    def codes(self, u: Floats) -> NDArray[np.uint8]:
        """Codes 0 .. 15 of the entries nearest to finite floats."""
        return self._codes.take(self._places(u), mode="clip")

    def round(self, u: Floats) -> None:
        """Replaces finite floats by the entries nearest to them."""
        self._values.take(self._places(u), out=u, mode="clip")

    @staticmethod
    def _places(u: Floats) -> NDArray[np.intp]:
        place = u * np.float32(2)
        np.floor(place, out=place)
        place += 2 * _LIMIT
        return place.astype(np.intp)  # take() clips what lies beyond either end


def levels_of(scheme: Scheme) -> Levels:
    if scheme.name == "int8":
        return Bytes()
    return Nearest(scheme.codebook) if scheme.codebook else Uniform(CODE_BITS[scheme.name])


def quantise(
    x: Floats, scheme: Scheme, method: str = "rtn", moments: NDArray[np.floating] | None = None
) -> tuple[Codes, Halves]:
    """Codes ``[n, k]`` (int8: int8, else uint8) and scales ``[n, k/group]`` of a matrix ``[n, k]``.

    ``moments``: mean squares ``[k]`` of weighted, second moments ``[k, k]`` of gptq.
    """
    levels = levels_of(scheme)
    if method == "gptq":
        assert moments is not None
        return _gptq(x, scheme, levels, moments)
    columns, weights = _groups(x, scheme.group), None
    if method == "weighted":
        assert moments is not None
        weights = np.tile(_group_weights(moments, scheme.group), (1, x.shape[0]))
    scale = half(_scales(columns, levels, scheme, method, weights))
    codes = levels.codes(columns * _inverse(scale.astype(np.float32)))
    return np.ascontiguousarray(codes.T).reshape(x.shape), scale.reshape(x.shape[0], -1)


def _scales(
    columns: Floats, levels: Levels, scheme: Scheme, method: str, weights: Floats | None
) -> Floats:
    top = largest(columns)
    if method == "absmax" or scheme.name == "int8":
        return np.abs(top) / np.float32(levels.nearer)
    if method in ("weighted", "gptq"):
        ends = levels.ends if len(levels.ends) == 2 else (levels.ends[0], -levels.ends[0])
        return search(columns, top, levels, WEIGHTED_GRID, weights, ends)
    grid = WIDE_GRID if scheme.name == "int3" else GRID
    found = search(columns, top, levels, grid)
    return _split(columns, top, levels, found) if method == "hqq" else found


def search(
    columns: Floats,
    top: Floats,
    levels: Levels,
    grid: tuple[float, ...],
    weights: Floats | None = None,
    ends: tuple[float, ...] = (),
) -> Floats:
    """Scales of the smallest (weighted) squared error: each member of the grid, refitted."""
    best_gain = np.full(top.shape, -1, np.float32)
    best = np.zeros_like(top)
    unit = columns * _inverse(top)
    rounded = np.empty_like(columns)
    for end in ends or levels.ends:
        for factor in grid:
            np.multiply(unit, np.float32(end) / np.float32(factor), out=rounded)
            levels.round(rounded)
            weighted = rounded if weights is None else weights * rounded
            xc = _sum(unit * weighted)
            cc = np.maximum(_sum(rounded * weighted), np.float32(1e-9))
            gain = xc * xc / cc  # squared error after the refit is sum x^2 - gain
            better = gain > best_gain
            best_gain = np.where(better, gain, best_gain)
            best = np.where(better, xc / cc, best)
    return top * best


def _sum(columns: Floats) -> Floats:
    """Down the columns in order; numpy's own sum of a single column goes by pairs."""
    total: Floats = np.add.accumulate(columns, axis=0)[-1]
    return total


def _split(columns: Floats, top: Floats, levels: Levels, scale: Floats) -> Floats:
    """Half-quadratic splitting of sum |error|^(3/4), errors in steps."""
    unit, one = columns * _inverse(top), np.float32(1)
    now = scale * _inverse(top)
    best, least = now.copy(), np.full_like(top, 3e38)
    alive, beta = np.ones(top.shape, bool), np.float32(10)
    for _ in range(21):
        u = unit * _inverse(now)
        level = u.copy()
        levels.round(level)
        error = u - level
        size = np.abs(error)
        quarter = np.sqrt(np.sqrt(size))
        total = _sum(np.sqrt(size) * quarter)
        kept = np.maximum(size - one / beta / np.maximum(quarter, np.float32(1e-9)), 0)
        xc = _sum((u - np.where(error < 0, -kept, kept)) * level)
        cc = _sum(level * level)
        cost = total * np.sqrt(np.abs(now) * np.sqrt(np.abs(now)))
        alive &= cost < least
        least, best = np.where(alive, cost, least), np.where(alive, now, best)
        now = now * (xc / np.maximum(cc, np.float32(1e-9)))
        beta = beta * np.float32(1.01)
    return best * top


def factor(hessian: NDArray[np.floating]) -> tuple[Floats, Floats]:
    """M (unit upper triangular) and D of H + damping = M D M^T."""
    k = hessian.shape[0]
    damped = hessian.astype(np.float64) + DAMPING * np.trace(hessian) / k * np.eye(k)
    upper = np.linalg.cholesky(damped[::-1, ::-1])[::-1, ::-1]
    pivots = np.diagonal(upper)
    return (upper / pivots).astype(np.float32), np.square(pivots).astype(np.float32)


def _gptq(
    x: Floats, scheme: Scheme, levels: Levels, hessian: NDArray[np.floating]
) -> tuple[Codes, Halves]:
    m, d = factor(hessian)
    delta = np.zeros_like(x)
    codes, scales = [], []
    for start in range(0, x.shape[1], scheme.group):
        stop = start + scheme.group
        moved = np.zeros_like(x[:, start:stop])
        for j in range(start):
            moved += delta[:, j : j + 1] * m[j, start:stop]
        target = np.ascontiguousarray((x[:, start:stop] + moved).T)
        weights = _group_weights(d[start:stop], scheme.group)
        scale = half(_scales(target, levels, scheme, "gptq", weights))
        size = scale.astype(np.float32)
        for c in range(scheme.group):
            level = target[c] * _inverse(size)
            levels.round(level)
            delta[:, start + c] = x[:, start + c] - level * size
            for b in range(c + 1, scheme.group):
                target[b] += delta[:, start + c] * m[start + c, start + b]
        codes.append(levels.codes(target * _inverse(size)).T)
        scales.append(scale)
    return np.concatenate(codes, axis=1), np.stack(scales, axis=1)


def _group_weights(weights: NDArray[np.floating], group: int) -> Floats:
    """``[group, k/group]``, the largest of each group 1."""
    columns = weights.astype(np.float32).reshape(-1, group).T
    most = columns.max(axis=0)
    shares = np.where(most > 0, columns / np.where(most > 0, most, 1), 1).astype(np.float32)
    return np.maximum(shares, np.float32(1e-6))


def largest(columns: Floats) -> Floats:
    """The element of largest magnitude of each group."""
    high, low = columns.max(axis=0), columns.min(axis=0)
    return np.where(high > -low, high, low)


def _groups(x: Floats, group: int) -> Floats:
    """``[n, k]`` to ``[group, n*k/group]``."""
    return np.ascontiguousarray(x.reshape(-1, group).T, dtype=np.float32)


def half(scale: Floats) -> Halves:
    rounded = scale.astype(np.float16)
    if not np.isfinite(rounded).all():
        raise ArgumentError("a scale is beyond float16")
    rounded[rounded == 0] = 0  # one zero
    return rounded


def _inverse(scale: Floats) -> Floats:
    """1 / scale, and 0 where the scale is 0 or as good as that."""
    return np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=np.abs(scale) > _TINY)
