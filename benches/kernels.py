"""Times the kernels that a pass spends its time in, one thread, on this machine.

    python benches/kernels.py                    # a Markdown table for each group
    CLOVER_ISA=avx2 python benches/kernels.py    # another instruction set

Products: W [n, k] of packed weights times M rows of activations, rounding of activations included;
GOP/s counts 2 M n k. DeltaNet: a block of rows through 32 heads of 128 x 128, by both forms of the
commit and by the preview. Medians of several runs; both forms of the commit run in turn.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from clover_edge import _core
from clover_edge.quant import Scheme, encode

HEADS, WIDTH = 32, 128


def median_seconds(calls: list[Callable[[], Any]], repeats: int) -> list[float]:
    """Medians of calls made in turn, so that a change of the machine's speed meets all alike."""
    times: list[list[float]] = [[] for _ in calls]
    for number in range(repeats + 1):
        for taken, call in zip(times, calls, strict=True):
            started = time.perf_counter()
            call()
            if number:  # the first round warms caches
                taken.append(time.perf_counter() - started)
    return [statistics.median(taken) for taken in times]


def products(isa: str | None, n: int, k: int, repeats: int) -> None:
    """GOP/s of int4 and int8 products at several widths of a pass."""
    rng = np.random.default_rng(0)
    weights = rng.normal(0, k**-0.5, (n, k)).astype(np.float32)
    rows = (1, 8, 32)
    print(f"| W [{n}, {k}], GOP/s |" + "".join(f" M = {m} |" for m in rows))
    print("| --- |" + " ---: |" * len(rows))
    for scheme in ("int4", "int8"):
        for group in (32, 64, 128):
            packed = encode(weights, Scheme(scheme, group))
            cells = []
            for m in rows:
                x = rng.normal(0, 1, (m, k)).astype(np.float32)
                call = partial(_core.kernels.matmul, isa, packed, scheme, n, k, group, x)
                cells.append(2e-9 * m * n * k / median_seconds([call], repeats)[0])
            print(f"| {scheme} g{group} |" + "".join(f" {cell:.0f} |" for cell in cells))


def delta(isa: str | None, rows: int, repeats: int) -> None:
    """Milliseconds of one DeltaNet layer's heads."""
    rng = np.random.default_rng(1)
    q, k, v = (rng.normal(0, WIDTH**-0.5, (rows, WIDTH)).astype(np.float32) for _ in range(3))
    g, beta = (rng.uniform(lo, hi, rows).astype(np.float32) for lo, hi in ((-0.5, 0), (0, 1)))
    state = rng.normal(0, 1, (WIDTH, WIDTH)).astype(np.float32)
    kernels = _core.kernels

    def heads(call: Callable[[], Any]) -> Callable[[], None]:
        return lambda: [call() for _ in range(HEADS)] and None

    sequential, closed, preview = median_seconds(
        [
            heads(lambda: kernels.delta_commit(isa, q, k, v, g, beta, state)),
            heads(lambda: kernels.delta_closed(isa, q, k, v, g, beta, state)),
            heads(lambda: kernels.delta_preview(isa, q, k, v, beta, state, 4.0, 1.0, 1.0)),
        ],
        repeats,
    )
    print(
        f"| {rows} | {1e3 * sequential:.2f} | {1e3 * closed:.2f} | {closed / sequential:.2f} "
        f"| {1e3 * preview:.2f} |"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=2048)
    parser.add_argument("--k", type=int, default=2048)
    parser.add_argument("--repeats", type=int, default=21)
    arguments = parser.parse_args()
    isa = os.environ.get("CLOVER_ISA")
    print(f"instruction set: {isa or _core.available_isas()[-1]}, one thread\n")
    products(isa, arguments.n, arguments.k, arguments.repeats)
    print(f"\n| rows, {HEADS} heads of {WIDTH} x {WIDTH} | commit, sequential, ms ", end="")
    print("| commit, closed form, ms | closed / sequential | preview, ms |")
    print("| --- |" + " ---: |" * 4)
    for rows in (1, 8, 32):
        delta(isa, rows, arguments.repeats)
    return 0


if __name__ == "__main__":
    sys.exit(main())
