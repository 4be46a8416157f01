"""Sizes of published shapes, and copies of them that are small enough to run."""

from __future__ import annotations

from pathlib import Path

import pytest
from real_shapes import REAL, make_small, write_headers

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
    make_small(tmp_path / "in", name)
    export_checkpoint(tmp_path / "in", tmp_path / "out", recipe="int4")
    with clover_edge.load(tmp_path / "out", threads=1) as model:
        assert len(model.generate("the cat", max_new_tokens=24).token_ids) == 24


def test_plan_of_diffusion_gemma(tmp_path: Path) -> None:
    """The embedding at 8 bits; and the keys and values of a token, by layers of either shape."""
    write_headers(tmp_path, "DiffusionGemma 26B-A4B")
    with Checkpoint(tmp_path) as checkpoint:
        plan = plan_export(checkpoint, recipe="int4-all")
        mixed = plan_export(checkpoint, recipe="int4")
    embedding = 262144 * 2816
    head = next(tensor.blob.nbytes for tensor in mixed.tensors if tensor.name == "embed")
    assert plan.tensor_bytes + head - embedding * 4.5 / 8 == pytest.approx(14.6e9, rel=0.02)
    spec = plan.model.spec
    kept = [2 * 2 * w * n for w, n in zip(spec["head_dims"], spec["kv_heads"], strict=True)]
    full = sum(size for size, window in zip(kept, spec["windows"], strict=True) if not window)
    assert (full, sum(kept) - full) == (20 * 1024, 200 * 1024)
