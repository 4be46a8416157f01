"""Conversions of Qwen3.5 to block diffusion: configuration to spec, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkpoints import edited, model_of
from tiny_hybrid import NAMES, make_hybrid

from clover_edge.errors import CheckpointError, UnsupportedModelError
from clover_edge.export import export_checkpoint

FAMILIES = [name for name in NAMES if name.startswith("a2d")]


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    def make(family: str, **keys: Any) -> Path:
        """A checkpoint whose configuration is changed afterwards; None drops a key."""
        make_hybrid(tmp_path / "in", family)
        return edited(tmp_path / "in", **keys)

    return make


@pytest.mark.parametrize("key", ["model_type", "architectures"])
@pytest.mark.parametrize("family", FAMILIES)
def test_spec(folder: Callable[..., Path], family: str, key: str) -> None:
    """By either name; none of the four preview tensors is expected."""
    model = model_of(folder(family, **{key: None}))
    names = ("mask", "block_origin", "block_size", "logit_shift", "delta_preview", "preview")
    found = [model.spec[name] for name in names]
    assert (model.family, found) == ("a2d", ["block", "prompt_end", 8, 0, "causal", True])
    assert model.spec["mask_token_id"] == model.spec["valid_vocab"] - 1
    assert model.spec["ffn_types"] == ["experts" if family.endswith("moe") else "dense"] * 4
    assert model.generation["threshold"] == 0.9  # the checkpoint's own
    stored = {tensor.name for tensor in model.tensors}
    assert not {name for name in stored if "conv_right" in name or "history" in name}


def test_threshold_and_width_where_the_folder_is_silent(folder: Callable[..., Path]) -> None:
    path = folder("a2d_qwen3_5", block_size=None)
    (path / "generation_config.json").unlink()
    model = model_of(path)
    assert (model.spec["block_size"], model.generation["threshold"]) == (64, 1.0)
    assert any("block_size" in line and "MDLM" in line for line in model.warnings)


@pytest.mark.parametrize(
    ("keys", "error", "said"),
    [
        ({"bidirectional_linear": True}, UnsupportedModelError, "bidirectional_linear: True"),
        ({"bidi_gdn_mode": "sum"}, UnsupportedModelError, "bidi_gdn_mode: 'sum'"),
        ({"attention_bias": True}, UnsupportedModelError, "attention_bias: True"),
        ({"block_size": 5000}, CheckpointError, "block_size: 5000"),
        ({"mask_token_id": 320}, CheckpointError, "mask_token_id: 320"),
    ],
)
def test_refused(
    folder: Callable[..., Path], keys: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=r"config\.json: " + said):
        model_of(folder("a2d_qwen3_5", **keys))


def test_a_mask_token_that_nothing_names(folder: Callable[..., Path]) -> None:
    path = folder("a2d_qwen3_5", mask_token_id=None)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (path / name).unlink()
    with pytest.raises(CheckpointError, match="mask_token_id: is missing"):
        model_of(path)


def test_surplus_preview_tensors_are_refused(folder: Callable[..., Path]) -> None:
    """A conversion with tensors for previews is another model."""
    import numpy as np
    from tiny_clover import write_safetensors

    path = folder("a2d_qwen3_5")
    extra = "model.layers.0.linear_attn.bd_softmax_history_c"
    write_safetensors(path / "extra.safetensors", {extra: np.zeros(4, np.float32)})
    index = json.loads((path / "model.safetensors.index.json").read_text())
    index["weight_map"][extra] = "extra.safetensors"
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match="bd_softmax_history_c"):
        model_of(path)


@pytest.mark.parametrize("family", FAMILIES)
def test_text_in_text_out(tmp_path: Path, family: str) -> None:
    """Through the face, codes found with activations of previews and commits."""
    import clover_edge

    make_hybrid(tmp_path / "in", family)
    out = tmp_path / "out"
    export_checkpoint(tmp_path / "in", out, recipe="int4", method="weighted", calib_tokens=64)
    with clover_edge.load(out, threads=1) as model:
        done = model.generate("the cat and the", max_new_tokens=12)
        events = list(model.stream("the cat and the", max_new_tokens=12))
        assert events[-1].result.token_ids == done.token_ids and 0 < len(done.token_ids) <= 12
        with pytest.raises(clover_edge.UnsupportedModelError, match="autoregressively"):
            model.generate("the cat", mode="ar")
