"""A runtime as a benchmark sees it; records of its tests, in the fields of `clover-edge bench`."""

from __future__ import annotations

import datetime
import importlib.metadata
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from forward_cases import BLOCK, Bench

from clover_edge import power
from clover_edge.benchmark.records import spread, timed
from clover_edge.machine import cpu_name


@dataclass(frozen=True)
class Asked:
    """What is to be measured: models of a shape, kept in a folder, and the most tokens of a
    sequence."""

    bench: Bench
    routing: str
    context: int


class Side(Protocol):
    """One sequence in a runtime. Making it raises peers.codes.Missing without its package."""

    runtime: str
    package: str  # that runtime_version is of
    load_ns: int | None  # what opening the model took; None where its weights were drawn

    def __init__(self, asked: Asked) -> None: ...

    def facts(self) -> dict[str, Any]:
        """Fields of the record that tell of the model."""

    def behind(self, depth: int) -> None:
        """The sequence becomes `depth` tokens long, the same ones each time."""

    def extend(self, count: int) -> None:
        """Appends random ids; logits of the last."""

    def preview(self) -> None:
        """A pass over a block of random ids with logits of all; the sequence stays as it is."""

    def close(self) -> None: ...


Run = Callable[[], None]


def tests(
    side: Side, prompts: list[int], texts: list[int], steps: int
) -> Iterator[tuple[str, int, Run, dict[str, int]]]:
    """Name, tokens, call and fields: prompts, a block, texts token by token."""

    def read(count: int) -> Run:
        return lambda: side.extend(count)

    def denoise() -> None:  # in `steps` passes, and the one that appends it
        for _ in range(steps):
            side.preview()
        side.extend(BLOCK)

    def write(count: int) -> Run:
        def run() -> None:
            for _ in range(count):
                side.extend(1)

        return run

    for count in prompts:
        yield f"pp{count}", count, read(count), {"n_prompt": count}
    if steps:
        fields = {"n_gen": BLOCK, "block_length": BLOCK, "steps": steps}
        yield f"blk{BLOCK}", BLOCK, denoise, fields
    for count in texts:
        yield f"ar{count}", count, write(count), {"n_gen": count}


def records(
    make: Callable[[], Side],
    prompts: list[int],
    texts: list[int],
    depths: list[int],
    steps: int,
    repetitions: int,
    threads: int,
) -> Iterator[dict[str, Any]]:
    """A record a test, each repeated behind a repetition that does not count."""
    side = make()
    opened = {} if side.load_ns is None else spread("load_ns", [side.load_ns])
    fixed = {**_fixed(side, threads), **side.facts(), **opened}
    try:
        for depth in depths:
            for name, tokens, run, fields in tests(side, prompts, texts, steps):
                yield {
                    **fixed,
                    **{"n_prompt": 0, "n_gen": 0, "n_depth": depth, **fields},
                    "test": name + (f" @ d{depth}" if depth else ""),
                    **_measured(side, tokens, depth, run, repetitions),
                    "peak_rss_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
                }
    finally:
        side.close()


def _measured(side: Side, tokens: int, depth: int, run: Run, repetitions: int) -> dict[str, Any]:
    meter, _ = power.meter()
    at = datetime.datetime.now(datetime.timezone.utc)
    nanoseconds, joules = [], []
    for number in range(repetitions + 1):
        side.behind(depth)
        before = meter.joules if meter else 0.0
        with meter or nullcontext():
            started = time.perf_counter_ns()
            run()
            taken = time.perf_counter_ns() - started
        if number:
            nanoseconds.append(taken)
            joules.append(meter.joules - before if meter else 0.0)
    return {
        "test_time": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        **timed(tokens, nanoseconds),
        **(spread("energy_j", joules) if meter else {}),
    }


def _fixed(side: Side, threads: int) -> dict[str, Any]:
    version = importlib.metadata.version(side.package)
    return {
        "build_commit": "unknown",
        "build_number": 0,
        "build_version": version,
        "cpu_info": cpu_name(),
        "gpu_info": "",
        "backends": "CPU",
        "n_threads": threads,
        "device": "cpu",
        "runtime": side.runtime,
        "runtime_version": version,
        "power_mode": power.power_mode(),
        "nvpmodel": power.nvpmodel(),
    }
