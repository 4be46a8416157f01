"""DFlash drafters to our spec and tensors, and what is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracle.packed import read_packed
from tiny_clover import write_checkpoint_files
from tiny_drafter import BLOCK, MASK, drafter_config, make_drafter

from clover_edge.errors import CheckpointError, UnsupportedModelError
from clover_edge.export import export_checkpoint
from clover_edge.export.checkpoint import Checkpoint
from clover_edge.export.pipeline import plan_export


def respelled(folder: Path, **keys: Any) -> None:
    """Changes keys of the written configuration; None takes one away."""
    config = json.loads((folder / "config.json").read_text())
    config = {name: value for name, value in {**config, **keys}.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(config))


def ours(**keys: Any) -> dict[str, Any]:
    section = {**drafter_config()["dflash_config"], **keys}
    return {name: value for name, value in section.items() if value is not None}


def test_spec_and_tensors(tmp_path: Path) -> None:
    """No tokenizer is needed, none is missed; every value is that of the checkpoint."""
    tensors = make_drafter(tmp_path / "in", seed=1)
    report = export_checkpoint(tmp_path / "in", tmp_path / "out", recipe="f32")
    model = report.plan.model
    assert (model.family, model.generation, report.plan.warnings) == ("dflash", {}, ())
    wanted = {"drafts_for_layers": [0, 2], "block_size": BLOCK, "mask_token_id": MASK}
    wanted |= {"preview": True, "mask": "causal", "valid_vocab": 320, "norm_offset": 0.0}
    assert (
        wanted.items()
        <= json.loads((tmp_path / "out" / "config.json").read_text())["clover_edge"]["spec"].items()
    )
    names = {tensor.name for tensor in model.tensors}
    assert {"context.in", "context.norm", "final_norm", "layers.1.attn.in"} <= names
    assert not names & {"embed", "head"}
    stored = read_packed(tmp_path / "out")[0]
    assert np.array_equal(stored["fc.weight"], tensors["fc.weight"])


def test_schemes(tmp_path: Path) -> None:
    make_drafter(tmp_path / "in")
    export_checkpoint(tmp_path / "in", tmp_path / "out", recipe="int4")
    entries = json.loads((tmp_path / "out" / "config.json").read_text())["clover_edge"]["tensors"]
    schemes = {name: entry["scheme"] for name, entry in entries.items()}
    assert schemes["context.in"] == schemes["layers.0.attn.in"] == "int8"
    assert schemes["layers.0.dense.down"] == "int4"
    assert schemes["context.norm"] == "f32"


def test_the_width_beside_its_section(tmp_path: Path) -> None:
    """Releases have the block's width in either place; the section counts more."""
    make_drafter(tmp_path)
    respelled(tmp_path, dflash_config=ours(block_size=None), block_size=16)
    with Checkpoint(tmp_path) as checkpoint:
        assert plan_export(checkpoint).model.spec["block_size"] == 16
    respelled(tmp_path, dflash_config=ours(), block_size=16)
    with Checkpoint(tmp_path) as checkpoint:
        assert plan_export(checkpoint).model.spec["block_size"] == BLOCK


@pytest.mark.parametrize(
    ("keys", "kind", "message"),
    [
        ({"dflash_config": None}, CheckpointError, "mask_token_id: is missing"),
        ({"dflash_config": ours(mask_token_id=320)}, CheckpointError, "mask_token_id: 320"),
        ({"dflash_config": ours(mask_token_id=None)}, CheckpointError, "mask_token_id: is missing"),
        ({"dflash_config": ours(block_size=None)}, CheckpointError, "block_size: is missing"),
        ({"dflash_config": ours(block_size=129)}, CheckpointError, "from 2 to 128"),
        ({"dflash_config": ours(target_layer_ids=[2, 0])}, CheckpointError, "target_layer_ids"),
        ({"dflash_config": ours(target_layer_ids=[0, 0])}, CheckpointError, "target_layer_ids"),
        ({"dflash_config": ours(target_layer_ids=[])}, CheckpointError, "target_layer_ids"),
        ({"dflash_config": ours(target_layer_ids=[0])}, CheckpointError, "fc.weight: shape"),
        ({"layer_types": ["sliding_attention"] * 2}, UnsupportedModelError, "sliding_attention"),
        ({"architectures": ["DFlash2DraftModel"]}, UnsupportedModelError, "DFlash2DraftModel"),
    ],
)
def test_refusals(
    tmp_path: Path, keys: dict[str, Any], kind: type[Exception], message: str
) -> None:
    make_drafter(tmp_path)
    respelled(tmp_path, **keys)
    with Checkpoint(tmp_path) as checkpoint, pytest.raises(kind, match=message):
        plan_export(checkpoint)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors: tensors.pop("hidden_norm.weight"), "hidden_norm.weight: missing"),
        (lambda tensors: tensors.update({"layers.0.conv.weight": np.ones(4)}), "not known to the"),
    ],
)
def test_tensors_that_do_not_make_a_drafter(tmp_path: Path, change: Any, message: str) -> None:
    tensors = make_drafter(tmp_path)
    change(tensors)
    write_checkpoint_files(tmp_path, tensors, dtype="f32")
    with Checkpoint(tmp_path) as checkpoint, pytest.raises(CheckpointError, match=message):
        plan_export(checkpoint)


@pytest.mark.parametrize("method", ["weighted", "gptq"])
def test_calibrated_methods(tmp_path: Path, method: str) -> None:
    make_drafter(tmp_path / "in")
    with pytest.raises(UnsupportedModelError, match=f"{method} is not supported of drafters"):
        export_checkpoint(tmp_path / "in", tmp_path / "out", method=method)
    assert not (tmp_path / "out").exists()
