"""Which masked positions a step accepts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clover_edge._core import decoding

probabilities = st.lists(st.floats(0, 1, width=32), min_size=1, max_size=40)


def accept(values: list[float], **options: float) -> list[int]:
    return [i for i, taken in enumerate(decoding.accept(values, **options)) if taken]


@pytest.mark.parametrize(
    ("values", "threshold", "taken"),
    [
        ([0.5, 0.95, 0.91, 0.2], 0.9, [1, 2]),
        ([0.5, 0.75, 0.5], 0.75, [1]),  # not above the threshold: taken as the best one
        ([0.75, 0.875, 0.75], 0.75, [1]),  # strictly above
        ([0.3, 0.4, 0.4], 0.9, [1]),  # a tie goes to the lower position
        ([1.0, 1.0], 1.0, [0]),  # the highest threshold there is: one at a time
        ([0.1, 0.0], 0.0, [0]),
        ([0.2], 5.0, [0]),
    ],
)
def test_threshold(values: list[float], threshold: float, taken: list[int]) -> None:
    assert accept(values, threshold=threshold) == taken


def test_a_step_limit_sets_a_quota() -> None:
    falling = [1 - i / 100 for i in range(10)]
    assert accept(falling, threshold=2, steps=4, step=0) == [0, 1, 2]
    assert accept(falling[:7], threshold=2, steps=4, step=1) == [0, 1, 2]
    assert accept(falling[:4], threshold=2, steps=4, step=2) == [0, 1]
    assert accept(falling[:2], threshold=2, steps=4, step=3) == [0, 1]
    assert accept(falling[:2], threshold=2, steps=4, step=9) == [0, 1]  # late, but it ends
    assert accept([0.1, 0.3, 0.2], threshold=2, steps=2) == [1, 2]
    assert accept(falling, threshold=0.5, steps=4) == list(range(10))  # more than the quota


@settings(deadline=None)
@given(probabilities, st.floats(0, 1), st.integers(0, 6))
def test_a_block_is_full_after_its_steps(values: list[float], threshold: float, steps: int) -> None:
    left, step = list(values), 0
    while left:
        taken = accept(left, threshold=threshold, steps=steps, step=step)
        assert taken
        worst = min(left[i] for i in taken)
        assert all(left[i] <= worst for i in range(len(left)) if i not in taken)
        assert all(i in taken for i in range(len(left)) if left[i] > threshold)
        left = [value for i, value in enumerate(left) if i not in taken]
        step += 1
    assert not steps or step <= steps
