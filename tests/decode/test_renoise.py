"""Which positions of a canvas a step keeps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clover_edge._core import decoding


def kept(entropy: list[float], bound: float) -> list[int]:
    found = decoding.accept_by_entropy(entropy, entropy_bound=bound)
    return [i for i, taken in enumerate(found) if taken]


@pytest.mark.parametrize(
    ("entropy", "bound", "positions"),
    [
        ([3.0, 2.0, 4.0], 0.0, [1]),  # the surest one always
        ([0.0, 0.0, 1.0, 2.0], 0.0, [0, 1, 2]),  # before a position: those that sum to 0
        ([0.5, 0.25, 0.25], 0.25, [1, 2]),  # the bound itself is within
        ([0.5, 0.25, 0.25], 0.5, [0, 1, 2]),
        ([0.125, 0.125, 0.125], 0.1, [0]),  # a tie goes to the lower position
        ([5.0, 6.0], 1e6, [0, 1]),
    ],
)
def test_bound(entropy: list[float], bound: float, positions: list[int]) -> None:
    assert kept(entropy, bound) == positions


@settings(deadline=None)
@given(st.lists(st.floats(0, 12), min_size=1, max_size=40), st.floats(0, 30))
def test_the_sum_without_the_largest_is_within_the_bound(
    entropy: list[float], bound: float
) -> None:
    found = kept(entropy, bound)
    values = np.array(entropy)
    taken = np.sort(values[found])
    assert taken[:-1].sum() <= bound + 1e-9
    rest = np.delete(values, found)
    if len(rest):
        assert taken[-1] <= rest.min() and taken.sum() > bound - 1e-9
