"""How much of random weights each number format keeps, and where codebook4's codebook comes from.

    python benches/codebook.py           # signal-to-noise ratios, a Markdown table
    python benches/codebook.py --find    # searches the codebook again

Weights: [256, 2048], Gaussian, Student-t with 5 degrees of freedom, and Gaussian whose columns have
log-normal spreads (sigma 0.5). Nothing is timed, so the figures are the same on every machine.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from quant_reference import GRID, half, largest, search

from clover_edge.quant import CODEBOOK, ErrorStats, Scheme, encode

Floats = NDArray[np.float32]

# A published codebook for groups of 32 (llama.cpp's IQ4_NL), for comparison.
IQ4_NL = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
GAUSSIAN_SHARE = 4  # to 1 of Student-t: real weights are nearer to Gaussian


def weights(seed: int, rows: int) -> dict[str, Floats]:
    rng = np.random.default_rng(seed)
    plain = rng.standard_normal((rows, 2048))
    spread = np.exp(0.5 * rng.standard_normal(2048))
    made = {
        "Gaussian": plain,
        "Student-t5": rng.standard_t(5, plain.shape),
        "column spreads": rng.standard_normal(plain.shape) * spread,
    }
    return {name: values.astype(np.float32) for name, values in made.items()}


def sqnr(x: Floats, scheme: Scheme, method: str) -> float:
    stats = ErrorStats()
    encode(x, scheme, stats, method=method)
    assert stats.sqnr_db is not None
    return stats.sqnr_db


def table() -> None:
    """SQNR of every scheme at every group size that it takes."""
    sets = weights(99, 256)
    print("| scheme | group | bits a weight |" + "".join(f" {name} |" for name in sets))
    print("| --- | ---: | ---: |" + " ---: |" * len(sets))
    rows = [(name, Scheme(name, g), "rtn") for name in ("int8", "int4") for g in (32, 64, 128)]
    rows += [("int4, absmax", Scheme("int4", 32), "absmax")]
    rows += [("codebook4", Scheme("codebook4", g, CODEBOOK), "rtn") for g in (32, 64, 128)]
    rows += [("codebook4 with IQ4_NL's values", Scheme("codebook4", 32, IQ4_NL), "rtn")]
    rows += [("int3", Scheme("int3", 64), "rtn"), ("int3, absmax", Scheme("int3", 64), "absmax")]
    for label, scheme, method in rows:
        bits = scheme.nbytes((16, scheme.group)) / (2 * scheme.group)
        cells = "".join(f" {sqnr(x, scheme, method):.2f} |" for x in sets.values())
        print(f"| {label} | {scheme.group} | {bits:.2f} |{cells}")


class Fractions:
    """A codebook on its way: values that are not yet whole. See quant_reference.Levels."""

    def __init__(self, values: NDArray[np.float64]) -> None:
        self.ends = (float(values[0]), float(values[-1]))
        self.nearer = min(-self.ends[0], self.ends[1])
        self._values = values.astype(np.float32)
        self._borders = (self._values[1:] + self._values[:-1]) / 2

    def codes(self, u: Floats) -> NDArray[np.uint8]:
        return np.searchsorted(self._borders, u).astype(np.uint8)

    def round(self, u: Floats) -> None:
        u[...] = self._values[self.codes(u)]


def find(rounds: int = 60) -> tuple[int, ...]:
    """In turn the best scales and codes for a codebook, and the best codebook for them."""
    drawn = weights(1, 64)
    sets = [(drawn["Gaussian"], GAUSSIAN_SHARE), (drawn["Student-t5"], 1)]
    book = np.array(IQ4_NL, np.float64)
    for _ in range(rounds):
        numerator, denominator = np.zeros(16), np.zeros(16)
        for x, share in sets:
            columns = np.ascontiguousarray(x.reshape(-1, 32).T)
            levels = Fractions(book)
            scales = half(search(columns, largest(columns), levels, GRID)).astype(np.float32)
            codes = levels.codes(columns / scales)
            scale = np.broadcast_to(scales.astype(np.float64), columns.shape).ravel()
            weight = share / float(np.square(x).mean())
            numerator += weight * np.bincount(codes.ravel(), scale * columns.ravel(), 16)
            denominator += weight * np.bincount(codes.ravel(), scale * scale, 16)
        book = numerator / denominator
        book *= 127 / np.abs(book).max()  # scales absorb it
    return tuple(int(value) for value in np.rint(book))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--find", action="store_true", help="search the codebook again")
    if parser.parse_args().find:
        found = find()
        print(found, "as stored" if found == CODEBOOK else f"stored is {CODEBOOK}")
    else:
        table()


if __name__ == "__main__":
    main()
