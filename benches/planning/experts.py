"""How many different experts the rows of a pass choose."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from synthetic import COMMON

from clover_edge import _core
from clover_edge.loader import PackedFolder
from clover_edge.synthetic import synthetic_ids
from clover_edge.tuning.planner import Limit

CORRELATED = COMMON["correlated"]
PASS_ROWS = 128  # of a commit that is one pass of the core; longer ones take several
MEASURED_ROWS = (1, 2, 4, 8, 16, 32, 64, PASS_ROWS)


@dataclass(frozen=True)
class Routing:
    """The expected number of different experts of a layer by rows, whose names are given: linear
    in between, and level behind the last."""

    name: str
    rows: tuple[float, ...]
    experts: tuple[float, ...]

    def distinct(self, rows: float) -> float:
        return float(np.interp(rows, self.rows, self.experts))


NO_EXPERTS = Routing("none", (1,), (0.0,))
_GRID = tuple(range(1, 129)) + tuple(range(132, 1025, 4)) + (2048, 4096, 8192, 16384, 32768)


def independent(experts: int, top_k: int) -> Routing:
    """Each row chooses `top_k` at random: E (1 - (1 - k/E)^n)."""
    missed = 1 - top_k / experts
    return Routing("uniform", _GRID, tuple(experts * (1 - missed**n) for n in _GRID))


def correlated(experts: int, top_k: int, common: float = CORRELATED) -> Routing:
    """Rows whose router logits share a part: `common` of their variance, all being Gaussian.

    With the default, 32 rows touch 67 of 256 experts, top 8; 69.5 were measured of LLaDA2.0-mini
    (arXiv 2605.30876). An expert of shared logit u passes the row's threshold t with probability
    Phi((sqrt(c) u - t) / sqrt(1 - c)); t is where these sum to `top_k`.
    """
    normal = NormalDist()
    shared = [normal.inv_cdf((e + 0.5) / experts) for e in range(experts)]

    def chances(threshold: float) -> list[float]:
        own = math.sqrt(1 - common)
        return [normal.cdf((math.sqrt(common) * u - threshold) / own) for u in shared]

    low, high = -10.0, 10.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(chances(middle)) > top_k else (low, middle)
    chosen = np.array(chances(low))
    return Routing("correlated", _GRID, tuple(float(np.sum(1 - (1 - chosen) ** n)) for n in _GRID))


def measured(core: _core.Model, folder: PackedFolder) -> Routing:
    """What a model that is here chooses, in commits of ids that mean nothing."""
    layers = sum(entry["scheme"] == "experts" for entry in folder.entries.values())
    if not layers:
        return NO_EXPERTS
    longest = folder.spec["max_positions"]
    counted = {rows: _touched(core, folder, rows) for rows in MEASURED_ROWS if rows <= longest}
    return Routing("measured", tuple(counted), tuple(n / layers for n in counted.values()))


def _touched(core: _core.Model, folder: PackedFolder, rows: int) -> int:
    before = core.counters["experts_touched"]
    core.commit(core.new_state(rows), synthetic_ids(folder.spec, rows), logits="none")
    return core.counters["experts_touched"] - before


def limited(routing: Routing, rows: float, limit: Limit, top_k: int) -> float:
    """Experts that are left of those that rows would choose, `coreset_size` and `coreset_share`
    being applied: at most so many."""
    size, share = limit
    touched = routing.distinct(rows)
    if size:
        touched = min(touched, float(size))
    if share and touched:
        touched = max(float(top_k), math.ceil(share * touched))
    return touched
