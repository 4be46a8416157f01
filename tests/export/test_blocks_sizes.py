"""Sizes of published shapes, and copies of them that are small enough to run."""

from __future__ import annotations

from pathlib import Path

import pytest
from real_shapes import REAL, scaled_down, write_headers
from tiny_blocks import make_blocks

import clover_edge
from clover_edge.export import Checkpoint, export_checkpoint, plan_export


@pytest.mark.parametrize("name", REAL)
def test_plan(tmp_path: Path, name: str) -> None:
    _, _, parameters, nbytes = REAL[name]
    write_headers(tmp_path, name)
    with Checkpoint(tmp_path) as checkpoint:
        plan = plan_export(checkpoint, recipe="int4-all")
    assert plan.parameters == pytest.approx(parameters, rel=0.02)
    assert plan.tensor_bytes == pytest.approx(nbytes, rel=0.02)


@pytest.mark.parametrize("name", REAL)
def test_scaled_down(tmp_path: Path, name: str) -> None:
    family, keys = scaled_down(name)
    make_blocks(tmp_path / "in", family, **keys)
    export_checkpoint(tmp_path / "in", tmp_path / "out", recipe="int4")
    with clover_edge.load(tmp_path / "out", threads=1) as model:
        assert len(model.generate("the cat", max_new_tokens=24).token_ids) == 24
