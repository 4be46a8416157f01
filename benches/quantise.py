"""What each method costs and what it keeps, per scheme.

    python benches/quantise.py [--threads N]

prints a Markdown table: nanoseconds a weight (wall clock, bfloat16 source, all threads), and
decibels of signal to noise: of Gaussian weights, of Student-t weights with 5 degrees of freedom,
and of the outputs of the latter on correlated activations, whose spreads differ and on whose second
moments `weighted` and `gptq` were calibrated. Weights [512, 2048]: one matrix of an expert. Only
the first column differs between runs.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
from numpy.typing import NDArray

from clover_edge.quant import (
    CODEBOOK,
    METHODS,
    Calibration,
    ErrorStats,
    Scheme,
    decode,
    encode,
)

Floats = NDArray[np.float32]

ROWS, COLUMNS = 512, 2048
SCHEMES = (
    Scheme("int4", 32),
    Scheme("codebook4", 32, CODEBOOK),
    Scheme("int3", 64),
    Scheme("int8", 32),
)
INT8_METHODS = ("rtn", "gptq")  # its scale is the same for all; gptq moves codes
REPEATS = 9


def second_moments(columns: int) -> NDArray[np.float64]:
    """Of 4096 samples: a quarter as many sources as columns, noise, log-normal spreads."""
    rng = np.random.default_rng(2)
    mixed = rng.standard_normal((4096, columns // 4)) @ rng.standard_normal((columns // 4, columns))
    noise = rng.standard_normal(mixed.shape) * np.sqrt(columns / 4)
    x = (mixed + noise) * np.exp(rng.standard_normal(columns))
    return np.asarray(x.T @ x / len(x))


def output_db(w: Floats, stored: Floats, moments: NDArray[np.float64]) -> float:
    """10 log10 of E |W x|^2 / E |(W - W') x|^2."""
    error = stored.astype(np.float64) - w
    signal, noise = (float(((m @ moments) * m).sum()) for m in (w.astype(np.float64), error))
    return 10 * float(np.log10(signal / noise))


def nanoseconds(w: Floats, scheme: Scheme, method: str, calibration: Calibration, n: int) -> float:
    """Median over runs, the factor of a Hessian being made already."""
    bits = (w.view(np.uint32) >> 16).astype(np.uint16)
    taken = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        encode(bits, scheme, method=method, calibration=calibration, threads=n)
        taken.append(time.perf_counter() - started)
    return statistics.median(taken) * 1e9 / w.size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=0, help="default: as many as fit")
    threads = parser.parse_args().threads
    rng = np.random.default_rng(1)
    gaussian = rng.standard_normal((ROWS, COLUMNS), np.float32)
    student = rng.standard_t(5, (ROWS, COLUMNS)).astype(np.float32)
    moments = second_moments(COLUMNS)
    calibration = Calibration(moments)
    started = time.perf_counter()
    calibration.factor(threads)
    seconds = time.perf_counter() - started
    print("| scheme | method | ns a weight | Gaussian dB | Student-t5 dB | outputs dB |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    for scheme in SCHEMES:
        for method in INT8_METHODS if scheme.name == "int8" else METHODS:
            options = {"method": method, "calibration": calibration, "threads": threads}
            figures = [nanoseconds(student, scheme, method, calibration, threads)]
            for x in (gaussian, student):
                stats = ErrorStats()
                stored = encode(x, scheme, stats, **options)
                figures.append(stats.sqnr_db or 0.0)
            figures.append(output_db(student, decode(stored, student.shape, scheme), moments))
            cells = " | ".join(f"{figure:.2f}" for figure in figures)
            print(f"| {scheme.name} g{scheme.group} | {method} | {cells} |")
    print(f"\nThe factor of a Hessian [{COLUMNS}, {COLUMNS}] took {seconds:.2f} s.")


if __name__ == "__main__":
    main()
