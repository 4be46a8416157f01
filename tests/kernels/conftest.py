"""Matrices packed from the description of the format, independent of ``clover_edge.quant``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from clover_edge import _core

TILE = 16
ZERO = {"int4": 8, "int3": 4, "codebook4": 0}  # stored code of a padded row
CODEBOOK = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113])


@dataclass(frozen=True)
class Stored:
    """A stored matrix and what it stands for (``dense``, float64 [n, k])."""

    data: NDArray[Any]
    scheme: str
    group: int
    dense: NDArray[np.float64]
    codes: NDArray[np.int32] | None = None  # [n, k], packed schemes
    scales: NDArray[np.float16] | None = None  # [n, k / group]
    options: dict[str, Any] = field(default_factory=dict)  # the codebook

    @property
    def arguments(self) -> tuple[NDArray[Any], str, int, int, int]:
        return (self.data, self.scheme, *self.dense.shape, self.group)

    def matmul(self, isa: str, x: NDArray[np.float32], **options: Any) -> NDArray[np.float32]:
        y: NDArray[np.float32] = _core.kernels.matmul(
            isa, *self.arguments, x, **self.options, **options
        )
        return y

    def head(self, isa: str, x: NDArray[np.float32], **options: Any) -> Any:
        return _core.kernels.head(isa, *self.arguments, x, **self.options, **options)

    def head_stats(
        self, isa: str, x: NDArray[np.float32], factor: float = 1.0, **options: Any
    ) -> Any:
        """(argmax, max, sum), each [rows], of all stripes together; ``factor``: 1 / temperature."""
        argmax, largest, total, _ = self.head(isa, x, inverse_temperature=factor, **options)
        stripe = np.where(np.isnan(largest), np.inf, largest).argmax(axis=0)
        rows = np.arange(argmax.shape[1])
        best = largest[stripe, rows].astype(np.float64)
        behind = np.subtract(largest, best, where=argmax >= 0, out=np.zeros(total.shape))
        return argmax[stripe, rows], best, (total * np.exp(behind * factor)).sum(axis=0)


def pack_codes(
    codes: NDArray[np.int32], scales: NDArray[np.float16], scheme: str, group: int
) -> NDArray[np.uint8]:
    """Tiles of 16 rows; in a tile, per group: 16 scales, then the codes in chunks of 64 bytes."""
    n, k = codes.shape
    rows = -(-n // TILE) * TILE
    padded = np.full((rows, k), ZERO.get(scheme, 0), np.int32)
    padded[:n] = codes
    padded_scales = np.zeros((rows, k // group), "<f2")
    padded_scales[:n] = scales
    tiles, groups = rows // TILE, k // group
    by_group = padded.reshape(tiles, TILE, groups, group).transpose(0, 2, 1, 3)
    if scheme == "int3":
        quads = by_group.reshape(tiles, groups, TILE, 16, 4)
        low = np.zeros((tiles, groups, TILE, 4, 4), np.int32)
        high = np.zeros((tiles, groups, TILE, 2, 4), np.int32)
        for chunk in range(16):
            low[:, :, :, chunk // 4] |= (quads[:, :, :, chunk] & 3) << 2 * (chunk % 4)
            high[:, :, :, chunk // 8] |= (quads[:, :, :, chunk] >> 2) << chunk % 8
        bytes_ = np.concatenate([low, high], axis=3).astype(np.uint8)
    elif scheme in ZERO:
        halves = by_group.reshape(tiles, groups, TILE, group // 8, 2, 4)
        bytes_ = (halves[:, :, :, :, 0] | halves[:, :, :, :, 1] << 4).astype(np.uint8)
    else:
        bytes_ = by_group.reshape(tiles, groups, TILE, group // 4, 4).astype(np.int8).view(np.uint8)
    chunks = bytes_.transpose(0, 1, 3, 2, 4).reshape(tiles, groups, -1)
    heads = padded_scales.reshape(tiles, TILE, groups).transpose(0, 2, 1).copy().view(np.uint8)
    return np.concatenate([heads, chunks], axis=2).reshape(-1)


def store_codes(
    values: NDArray[np.int32], scales: NDArray[np.float16], scheme: str, group: int
) -> Stored:
    """``values`` [n, k] are what the codes stand for, without the scale."""
    dense = values.astype(np.float64) * np.repeat(scales.astype(np.float64), group, axis=1)
    if scheme == "codebook4":
        codes = np.searchsorted(CODEBOOK, values).astype(np.int32)
        options = {"codebook": CODEBOOK.astype(np.int8)}
    else:
        codes, options = values + ZERO.get(scheme, 0), {}
    data = pack_codes(codes, scales, scheme, group)
    return Stored(data, scheme, group, dense, values, scales, options)


def store_random(rng: np.random.Generator, scheme: str, n: int, k: int, group: int = 0) -> Stored:
    """A random matrix; ``group`` is ignored by the float schemes."""
    if scheme == "f32":
        w = rng.standard_normal((n, k)).astype(np.float32)
        return Stored(w, scheme, 0, w.astype(np.float64))
    if scheme == "bf16":
        bits = (rng.standard_normal((n, k)).astype(np.float32).view(np.uint32) >> 16).astype("<u2")
        return Stored(
            bits, scheme, 0, (bits.astype(np.uint32) << 16).view(np.float32) + np.float64(0)
        )
    low, high = {"int4": (-8, 8), "int3": (-4, 4)}.get(scheme, (-127, 128))
    codes = rng.integers(low, high, (n, k), dtype=np.int32)
    if scheme == "codebook4":
        codes = rng.choice(CODEBOOK.astype(np.int32), (n, k))
    scales = (rng.standard_normal((n, k // group)) / (high * np.sqrt(k))).astype(np.float16)
    return store_codes(codes, abs(scales) if scheme == "int8" else scales, scheme, group)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20)


@pytest.fixture
def random_matrix(rng: np.random.Generator) -> Callable[..., Stored]:
    """``random_matrix(scheme, n, k, group)``"""
    return lambda scheme, n, k, group=0: store_random(rng, scheme, n, k, group)


@pytest.fixture
def matrix_of() -> Callable[..., Stored]:
    """``matrix_of(codes, scales, scheme, group)``"""
    return store_codes


@pytest.fixture(params=_core.available_isas())
def isa(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(params=[name for name in _core.available_isas() if name != "reference"])
def fast_isa(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def relative() -> Callable[[Any, Any], float]:
    """max |a - b| / max |b|"""

    def error(a: Any, b: Any) -> float:
        a64, b64 = np.asarray(a, np.float64), np.asarray(b, np.float64)
        assert a64.shape == b64.shape
        assert np.isfinite(a64).all() and np.isfinite(b64).all()
        return float(np.max(np.abs(a64 - b64)) / np.max(np.abs(b64)))

    return error
