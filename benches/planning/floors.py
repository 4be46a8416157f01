"""The least that passes take on a device, as the planner's costs; break-even, and memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from clover_edge.tuning.costs import Costs, row_counts
from clover_edge.tuning.planner import FREE, Limit

from .counts import Counts
from .devices import Device

MOST = 8.0  # tokens per forward that a curve reaches
_POINTS = 60

Verdict = Literal["resident", "pages experts", "does not fit"]


def costs(counts: Counts, device: Device, most_rows: int, limit: Limit = FREE) -> Costs:
    """Floors in the place of timings: of commits, of previews with limited experts, of the head."""
    rows = row_counts(most_rows)

    def table(work: Callable[[int], tuple[float, float]]) -> tuple[float, ...]:
        return tuple(device.seconds(*work(n)) for n in rows)

    def commits(n: int) -> tuple[float, float]:
        done = counts.work(n, 0)
        return done.operations, done.nbytes

    def previews(n: int) -> tuple[float, float]:
        done = counts.work(0, n, limit=limit)
        return done.operations, done.nbytes

    free = table(commits)
    restricted = free if limit == FREE else table(previews)
    head = table(lambda n: (n * counts.head_operations, counts.head_bytes))
    return Costs(rows, free, restricted, head)


def cost_table(
    counts: Counts, device: Device, most_rows: int, limits: Iterable[Limit]
) -> dict[Limit, Costs]:
    """`costs` for each of the limits."""
    return {limit: costs(counts, device, most_rows, limit) for limit in limits}


def autoregressive_seconds(found: Costs) -> float:
    """A token by itself."""
    return found.forward(1, 0) + found.reduce(1)


def block_seconds(found: Costs, width: int, steps: float, *, fused: bool) -> float:
    """A block of `steps` previews and its commit, one block following the other.

    Fused, the commit shares the pass of the next block's first preview. Previews read the head for
    the rows that are masked still: half of them on average, and one that is the last.
    """
    preview = found.forward(0, width) + found.reduce((width + 1) / 2)
    if fused:
        first = found.forward(width, width) + found.reduce((width + 1) / 2)
        return first + (steps - 1) * preview
    return found.forward(width, 0) + steps * preview


def forwards(steps: float, *, fused: bool) -> float:
    """Passes of such a block."""
    return steps if fused else steps + 1


def break_even(found: Costs, width: int, *, fused: bool) -> float | None:
    """Tokens per forward from which blocks of `width` are faster than a token at a time; commits
    in passes of their own count as forwards. None: not even in one step a block."""
    one = block_seconds(found, width, 1, fused=fused)
    more = block_seconds(found, width, 2, fused=fused) - one
    steps = 1 + (width * autoregressive_seconds(found) - one) / more
    return None if steps < 1 else width / forwards(steps, fused=fused)


def curve(found: Costs, width: int, *, fused: bool) -> list[tuple[float, float]]:
    """Tokens a second by tokens per forward, from 1 up to `MOST`, or as far as one step goes."""
    most = min(MOST, width / forwards(1, fused=fused))
    points = []
    for i in range(_POINTS + 1):
        rate = 1 + (most - 1) * i / _POINTS
        steps = width / rate - forwards(0, fused=fused)
        points.append((rate, width / block_seconds(found, width, steps, fused=fused)))
    return points


@dataclass(frozen=True)
class Fit:
    """A model in a device's memory; bytes. `resident`: share of the experts that stay there;
    `missed`: what a token would read from disk, were the others chosen as often."""

    verdict: Verdict
    weights: int
    dense: int
    state: int
    usable: float
    resident: float
    missed: float


def fit(counts: Counts, device: Device) -> Fit:
    """Whether weights and a state of `counts.context` tokens are there at once; working memory,
    which is small, is not counted. Experts that are not are paged from disk."""
    weights, state = counts.model.nbytes, counts.state_bytes()
    sizes, entries = counts.model.sizes, counts.model.entries
    experts = sum(sizes[name] for name in sizes if entries[name]["scheme"] == "experts")
    dense, usable = weights - experts, device.usable_bytes
    left = usable - dense - state
    verdict: Verdict = "resident"
    if left < 0 or (experts == 0 and weights + state > usable):
        verdict = "does not fit"
    elif left < experts:
        verdict = "pages experts"
    resident = min(1.0, max(0.0, left / experts)) if experts else float(left >= 0)
    missed = (1 - resident) * counts.work(1, 0).experts * counts.expert
    return Fit(verdict, weights, dense, state, usable, resident, missed)
