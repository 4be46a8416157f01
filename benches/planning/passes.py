"""The passes that a floor is stated for, and how long they take here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from clover_edge import _core
from clover_edge.tuning.planner import Settings

from .counts import Counts, Work

PREFILL = 512
_ROUNDS = 9


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
    """Seconds of a pass here, and different experts of a layer, in the median of some rounds. Of a
    prefill that the core reads in several passes, at most all of them are counted."""

    case: Case
    seconds: float
    experts: float


def timed(core: _core.Model, counts: Counts, cases: list[Case]) -> Iterator[Timed]:
    """Every case behind `counts.context` tokens, on ids that differ from row to row. Raises what
    making such a state raises."""
    spec = counts.spec
    layers = sum(entry["scheme"] == "experts" for entry in counts.model.entries.values())
    many = spec.get("num_experts", 0)
    front = max(counts.context, 1)
    rng = np.random.default_rng(0)
    state = core.new_state(front + max(case.committed + case.previewed for case in cases))

    def ids(count: int) -> list[int]:
        drawn = rng.integers(0, spec["valid_vocab"] - 1, count)
        drawn += drawn >= spec.get("mask_token_id", spec["valid_vocab"])  # never the mask
        return [int(token) for token in drawn]

    core.commit(state, ids(front), logits="none")
    start = state.snapshot()
    for case in cases:
        seconds, experts = [], []
        for _ in range(_ROUNDS + 1):
            state.restore(start)
            before = core.counters["experts_touched"]
            taken = core.time_pass(state, ids(case.committed), ids(case.previewed), head=case.head)
            seconds.append(taken)
            experts.append(core.counters["experts_touched"] - before)
        touched = median(experts[1:]) / max(layers, 1)
        yield Timed(case, median(seconds[1:]), min(touched, many))
