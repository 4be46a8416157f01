"""Timing in turns: sides of a comparison run one after the other, again and again.

A shared machine changes speed from one second to the next, so two sides are compared round by
round, and a ceiling is the best of several runs.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

from clover_edge import _core
from clover_edge.benchmark.ceilings import ceilings, stream

Call = Callable[[], "float | None"]
Times = dict[str, list[float]]

_SETTLE = 0.1  # seconds in which the other side's threads stop spinning


def timed(call: Call) -> float:
    """Seconds of a call: what it returns, or else what passes."""
    started = time.perf_counter()
    told = call()
    return time.perf_counter() - started if told is None else told


def in_turns(
    sides: Mapping[str, Call], rounds: int, *, inner: int = 5, threads: int = 1, warm: bool = True
) -> Times:
    """Seconds of every side in every round: the median of `inner` calls, with `warm` behind an
    untimed one."""
    times: Times = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name, call in sides.items():
            if threads > 1 and len(sides) > 1:
                _settle()
            if warm:
                call()
            taken = statistics.median(timed(call) for _ in range(inner))
            if number:  # the first round warms caches and clocks
                times[name].append(taken)
    return times


def _settle() -> None:
    """Waits without sleeping, after which a virtual machine's first calls are slow."""
    end = time.perf_counter() + _SETTLE
    while time.perf_counter() < end:
        pass


def ratio(times: Times, other: str, ours: str) -> float:
    """How many times as long the other side takes: the median over rounds."""
    return statistics.median(a / b for a, b in zip(times[other], times[ours], strict=True))


def geometric_mean(values: list[float]) -> float:
    return statistics.geometric_mean(values)


class Ceilings:
    """What this machine does at most with a number of threads: operations (a multiply-add is two)
    and bytes a second, each the best of seven runs."""

    def __init__(self, threads: int, isa: str | None = None) -> None:
        self.threads, self.isa = threads, isa
        found = ceilings(threads, isa)
        self.dot, self.fma, self.read = found["dot_ops"], found["fma_flops"], found["read_bytes"]

    def seconds(self, operations: float, nbytes: float) -> float:
        """The roofline: the longer of computing (int8) and reading."""
        return max(operations / self.dot, nbytes / self.read)

    def floor(self, operations: float, nbytes: float) -> Call:
        """The roofline measured anew by each call, by whichever ceiling is the lower one."""
        timing = _core.timing
        if operations / self.dot > nbytes / self.read:
            return lambda: operations / timing.ceiling_dot(self.isa, self.threads)
        return lambda: nbytes / timing.ceiling_read(self.isa, self.threads, stream())

    def __str__(self) -> str:
        return (
            f"{self.threads} thread{'s' if self.threads > 1 else ''}: "
            f"int8 {self.dot / 1e9:.0f} GOP/s, f32 {self.fma / 1e9:.0f} GFLOP/s, "
            f"read {self.read / 1e9:.1f} GB/s"
        )
