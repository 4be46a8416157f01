"""The passes that a floor is stated for, and how long they take here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from measure import Ceilings
from measure import timed as measured_seconds

from clover_edge import _core
from clover_edge.tuning.planner import Settings

from .counts import Counts, Work
from .experts import PASS_ROWS

PREFILL = 512
_ROUNDS = 7


@dataclass(frozen=True)
class Case:
    """A pass that commits some rows, previews others and reads the head for `head` of them."""

    name: str
    committed: int
    previewed: int
    head: int

    def work(self, counts: Counts) -> Work:
        return counts.work(self.committed, self.previewed, head=self.head)


def widths_of(settings: Settings) -> tuple[int, ...]:
    """Of the blocks that a model may be given; none of an autoregressive one."""
    return () if settings.modes == ("ar",) else settings.widths


def cases_of(spec: Mapping[str, Any], generation: Mapping[str, Any]) -> list[Case]:
    """A token, blocks of every width, and a prefill; with full attention, whose commits are no
    passes, previews alone."""
    full = spec.get("mask") == "full"
    settings = Settings.of(spec, generation, "exact")
    found = [] if full else [Case("token", 1, 0, 1)]
    for width in widths_of(settings):
        found.append(Case(f"preview of {width}", 0, width, width))
        if not full:
            found.append(Case(f"commit of {width}", width, 0, 0))
        if settings.fused:
            found.append(Case(f"commit and preview of {width}", width, width, width))
    if not full:
        found.append(Case(f"prefill of {PREFILL}", PREFILL, 0, 1))
    return found


@dataclass(frozen=True)
class Timed:
    """Medians over rounds: seconds of a pass here, how many times its floor that is, the ceiling
    being measured anew in every round, and different experts of a layer, in each of the passes
    that a prefill takes."""

    case: Case
    seconds: float
    times_floor: float
    experts: float


def timed(
    core: _core.Model, counts: Counts, cases: list[Case], ceilings: Ceilings
) -> Iterator[Timed]:
    """Every case behind `counts.context` tokens, on ids that differ from row to row. Raises what
    making such a state raises."""
    spec = counts.spec
    layers = sum(entry["scheme"] == "experts" for entry in counts.model.entries.values())
    front, rng = max(counts.context, 1), np.random.default_rng(0)
    state = core.new_state(front + max(case.committed + case.previewed for case in cases))

    def ids(count: int) -> list[int]:
        drawn = rng.integers(0, spec["valid_vocab"] - 1, count)
        drawn += drawn >= spec.get("mask_token_id", spec["valid_vocab"])  # never the mask
        return [int(token) for token in drawn]

    core.commit(state, ids(front), logits="none")
    start = state.snapshot()
    for case in cases:
        work = case.work(counts)
        floor, rounds = ceilings.floor(work.operations, work.nbytes), []
        for _ in range(_ROUNDS + 1):  # the first one warms
            state.restore(start)
            before = core.counters["experts_touched"]
            taken = core.time_pass(state, ids(case.committed), ids(case.previewed), head=case.head)
            touched = core.counters["experts_touched"] - before
            rounds.append((taken, taken / measured_seconds(floor), touched))
        seconds, times, touches = map(median, zip(*rounds[1:], strict=True))
        passes = max(layers, 1) * max(1, -(-case.committed // PASS_ROWS))
        yield Timed(case, seconds, times, touches / passes)
