"""What a forward costs, as a function of its rows: measured here, or another machine's floors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .._core import Model as CoreModel

REPEATS = 5
_ROWS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)


@dataclass(frozen=True)
class Costs:
    """Seconds of a pass without the head, by rows, and of the head; linear in between.

    `restricted`: of rows whose experts are limited; as `free` where there is none.
    """

    rows: tuple[int, ...]
    free: tuple[float, ...]
    restricted: tuple[float, ...]
    head: tuple[float, ...]

    def forward(self, committed: int, previewed: int) -> float:
        """A pass that commits some rows and previews others."""
        rows = committed + previewed
        free, restricted = self._at(self.free, rows), self._at(self.restricted, rows)
        return (free * committed + restricted * previewed) / rows

    def reduce(self, rows: float) -> float:
        """The head, for rows of a pass, or their mean."""
        return self._at(self.head, rows) if rows else 0.0

    def _at(self, seconds: Sequence[float], rows: float) -> float:
        after = next((i for i, n in enumerate(self.rows) if n >= rows), len(self.rows) - 1)
        if after == 0:
            return seconds[0]
        a, b = self.rows[after - 1 : after + 1]
        share = (rows - a) / (b - a)
        return seconds[after - 1] * (1 - share) + seconds[after] * share


def row_counts(most: int) -> tuple[int, ...]:
    """Numbers of rows that costs are told of, up to `most`."""
    return (*(n for n in _ROWS if n < most), most)


def measure_costs(
    core: CoreModel,
    text: Sequence[int],
    most_rows: int,
    *,
    coreset: int = 0,
    share: float = 0.0,
    commits: bool = True,
) -> Costs:
    """Medians of passes over tokens of `text`, which choose real experts, up to `most_rows`.

    `coreset`, `share`: what experts are restricted to; 0: they are not. `commits` False: commits
    are no passes (full attention), so previews are timed, with the text in front. Raises what a
    pass over the text raises.
    """
    rows = row_counts(most_rows)
    state = core.new_state(len(text) + most_rows)
    core.commit(state, text, logits="none")
    start, tokens = state.snapshot(), cycle(text)

    def seconds(n: int, *, head: int = 0, limited: bool = False) -> float:
        found = []
        for _ in range(REPEATS):
            state.restore(start)
            ids, none = list(islice(tokens, n)), list[int]()
            commit, block = (none, ids) if limited or not commits else (ids, none)
            size, part = (coreset, share) if limited else (0, 0.0)
            found.append(
                core.time_pass(state, commit, block, head=head, coreset=size, coreset_share=part)
            )
        return median(found)

    free = [seconds(n) for n in rows]
    restricted = [seconds(n, limited=True) for n in rows] if coreset or share else free
    head = [max(0.0, seconds(n, head=n) - f) for n, f in zip(rows, free, strict=True)]
    return Costs(rows, tuple(free), tuple(restricted), tuple(head))


def threads_to_try(most: int) -> list[int]:
    """All that there are, half of them, one: more threads are slower where a pass is short."""
    return sorted({most, max(1, most // 2), 1}, reverse=True)


def seconds_by_threads(
    opened: Callable[[int], CoreModel], most: int, text: Sequence[int], rows: int
) -> dict[int, float]:
    """Seconds of a commit of one row and one of `rows` together, by number of threads.

    `opened(threads)`: the model with that many.
    """
    found = {}
    for threads in threads_to_try(most):
        costs = measure_costs(opened(threads), text, rows)
        found[threads] = costs.forward(1, 0) + costs.forward(rows, 0)
    return found
