"""Quantised matrices that every runtime can be given, and the error for one that is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clover_edge.quant import Scheme
from clover_edge.quant.tiles import pack

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]


class Missing(Exception):
    """A runtime is not installed; the message names the extra that installs it."""


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """Turns a failed import into Missing."""
    try:
        yield
    except ImportError as error:
        raise Missing(f"needs the extra {extra!r}: {error}") from error


@dataclass(frozen=True)
class Codes:
    """A matrix [n, k]: value = (code - 2^(bits - 1)) * scale, codes uint8 [n, k], scales float16
    [n, k / group]. 4 and 8 bits."""

    codes: Bytes
    scales: NDArray[np.float16]
    bits: int

    @property
    def shape(self) -> tuple[int, int]:
        n, k = self.codes.shape
        return n, k

    @property
    def group(self) -> int:
        return self.codes.shape[1] // self.scales.shape[1]

    @property
    def scheme(self) -> Scheme:
        return Scheme(f"int{self.bits}", self.group)

    def values(self) -> Floats:
        """The matrix as float32."""
        zero = np.float32(1 << (self.bits - 1))
        return (self.codes - zero) * np.repeat(self.scales.astype(np.float32), self.group, axis=1)

    def packed(self) -> Bytes:
        """The bytes that clover_edge stores."""
        codes = self.codes if self.bits == 4 else (self.codes ^ 0x80).view(np.int8)
        return pack(codes, self.scales, self.scheme)

    def pairs(self) -> Bytes:
        """Two columns a byte (4 bits), the lower column in the lower half."""
        if self.bits == 8:
            return self.codes
        return self.codes[:, ::2] | (self.codes[:, 1::2] << 4)


def draw(n: int, k: int, group: int, bits: int, rng: np.random.Generator) -> Codes:
    """Random codes and scales of a matrix that keeps the size of what it multiplies."""
    codes = rng.integers(1, 1 << bits, (n, k), np.uint8)  # code 0 of int8 is not used
    spread = (1 << bits) / np.sqrt(12.0)
    scales = rng.uniform(0.8, 1.2, (n, k // group)) / (spread * np.sqrt(k))
    return Codes(codes, scales.astype(np.float16), bits)
