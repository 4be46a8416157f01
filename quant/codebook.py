"""Codebooks of 4-bit codes: sixteen values instead of sixteen even steps."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError

Floats = NDArray[np.float32]
Codebook = tuple[int, ...]

SIZE = 16
LIMIT = 127

# Lloyd-Max over groups of 32, scaled as quantise() scales them, of Gaussian and Student-t weights
# (5 degrees of freedom) at 4 : 1. `benches/codebook.py` finds it again and compares it with others.
CODEBOOK: Codebook = (-127, -99, -77, -60, -45, -32, -20, -9, 2, 12, 23, 34, 47, 62, 81, 106)


def check_codebook(values: object) -> Codebook:
    """The values as a tuple; ArgumentError unless they are a list or tuple of 16 ascending ints."""
    if (
        not isinstance(values, (list, tuple))
        or len(values) != SIZE
        or any(type(value) is not int or abs(value) > LIMIT for value in values)
        or any(a >= b for a, b in pairwise(values))
    ):
        raise ArgumentError(
            f"codebook {values!r} is not {SIZE} ascending integers from -{LIMIT} to {LIMIT}"
        )
    return tuple(values)


class Nearest:
    """Looks up the entry nearest to a float, exactly.

    Twice a border between two entries is an integer, so ``floor(2 u)`` tells on which side of every
    border ``u`` is: a table of 509 places holds all answers. On a border the upper entry wins.
    """

    def __init__(self, codebook: Codebook) -> None:
        places = np.arange(-2 * LIMIT, 2 * LIMIT + 1)
        twice_borders = np.array(codebook[1:]) + np.array(codebook[:-1])
        self.ends = (float(codebook[0]), float(codebook[-1]))
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
        place += 2 * LIMIT
        return place.astype(np.intp)  # take() clips what lies beyond either end
