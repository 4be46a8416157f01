"""Synthetic models open like exported ones, and the timing module computes what it times."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from clover_edge import _core
from clover_edge.loader import open_core, read_folder
from clover_edge.quant import Scheme, encode

BENCHES = Path(__file__).parents[2] / "benches"
sys.path.insert(0, str(BENCHES))
synthetic = pytest.importorskip("synthetic", reason="benches/ is not beside the tests")

SMALL = synthetic.Shape(4, 512, 128, 32, 2, 64, 64, 2, 1, 64, 2, 4, 32)
ROWS = 16


@pytest.mark.parametrize(
    "recipe", ["int4-all", "int4", "int4-small", "codebook4-all", "int8", "bf16", "f32"]
)
def test_every_recipe_runs(recipe: str, tmp_path: Path) -> None:
    plan = synthetic.write(tmp_path / "model", SMALL, recipe=recipe)
    folder = read_folder(tmp_path / "model")
    assert sum(folder.sizes.values()) == plan.tensor_bytes
    core = open_core(folder, threads=1)
    ids = np.random.default_rng(0).integers(0, 400, ROWS).tolist()
    logits = core.preview(core.new_state(ROWS), ids)
    assert np.isfinite(logits).all()
    assert 0.1 < logits.std() < 20


def test_correlated_rows_share_experts(tmp_path: Path) -> None:
    touched = {}
    for routing in ("random", "correlated"):
        synthetic.write(tmp_path / routing, SMALL, routing=routing)
        core = open_core(read_folder(tmp_path / routing), threads=1)
        ids = np.random.default_rng(0).integers(0, 400, ROWS).tolist()
        core.preview(core.new_state(ROWS), ids, rows=[])
        counters = core.counters
        assert counters["rows"] == ROWS
        assert counters["bytes_read"] > 0
        touched[routing] = counters["experts_touched"]
    assert touched["correlated"] < 0.8 * touched["random"]


@pytest.mark.parametrize("threads", [1, 2])
def test_timed_product_is_the_product(threads: int) -> None:
    rng = np.random.default_rng(1)
    weights, x = (rng.standard_normal((n, 256)).astype(np.float32) for n in (48, 5))
    packed = encode(weights, Scheme("int4", 32))
    timer = _core.timing.Product(None, threads, [packed, packed], "int4", 48, 256, 32, x)
    assert timer.run(rounding=True) > 0
    assert timer.run(rounding=False) > 0
    expected = _core.kernels.matmul(None, packed, "int4", 48, 256, 32, x)
    np.testing.assert_array_equal(timer.result(), expected)


@pytest.mark.parametrize(
    ("change", "named"),
    [({"n": 64}, "copies"), ({"scheme": "int5"}, "scheme"), ({"group": 48}, "group")],
)
def test_timed_product_refuses(change: dict[str, object], named: str) -> None:
    packed = encode(np.ones((48, 256), np.float32), Scheme("int4", 32))
    given = {"scheme": "int4", "n": 48, "k": 256, "group": 32, **change}
    x = np.ones((1, 256), np.float32)
    with pytest.raises(Exception, match=named):
        _core.timing.Product(isa=None, threads=1, copies=[packed], x=x, **given)


@pytest.mark.parametrize("isa", [isa for isa in _core.available_isas() if isa != "reference"])
def test_ceilings_are_measured(isa: str) -> None:
    data = np.ones(4 << 20, np.uint8)
    assert _core.timing.ceiling_dot(isa, 1) > 1e9
    assert _core.timing.ceiling_fma(isa, 1) > 1e9
    assert _core.timing.ceiling_read(isa, 1, data) > 1e8
