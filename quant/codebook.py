"""Codebooks of 4-bit codes: sixteen values instead of sixteen even steps."""

from __future__ import annotations

from itertools import pairwise

from ..errors import ArgumentError

Codebook = tuple[int, ...]

SIZE = 16
LIMIT = 127

# Lloyd-Max over groups of 32, scaled as quantise() scales them, of Gaussian and Student-t weights
# (5 degrees of freedom) at 4 : 1. `benches/codebook.py` finds it again and compares it with others.
CODEBOOK: Codebook = (-127, -98, -75, -59, -44, -31, -19, -8, 2, 12, 22, 34, 47, 62, 80, 104)


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
