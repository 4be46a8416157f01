"""Nemotron-Labs-Diffusion: configuration to spec, tensor names, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkpoints import edited, model_of
from tiny_nemotron import YARN, make_nemotron

from clover_edge.errors import CheckpointError, UnsupportedModelError
from clover_edge.export import export_checkpoint


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    def make(**keys: Any) -> Path:
        """A checkpoint whose configuration is changed afterwards; None drops a key."""
        make_nemotron(tmp_path / "in")
        return edited(tmp_path / "in", **keys)

    return make


@pytest.mark.parametrize("key", ["model_type", "architectures"])
def test_spec(folder: Callable[..., Path], key: str) -> None:
    model = model_of(folder(**{key: None}))
    names = ("mask", "block_origin", "block_size", "block_seed", "logit_shift", "preview")
    found = [model.spec[name] for name in names]
    assert (model.family, found) == ("nemotron", ["causal", "prompt_end", 8, True, 0, True])
    assert model.spec["mask_token_id"] == model.spec["valid_vocab"] - 1
    assert (model.spec["query_scale_beta"], model.spec["query_scale_positions"]) == (0.1, 16)
    assert model.spec["rope_attention_factor"] == 1.0  # mscale and mscale_all_dim cancel
    assert (model.generation["threshold"], model.generation["block_length"]) == (0.9, 8)
    assert model.generation["eos_token_id"] == [model.spec["valid_vocab"] - 2]
    assert not model.warnings


def test_queries_without_a_scale(folder: Callable[..., Path]) -> None:
    rope = {key: value for key, value in YARN.items() if key != "llama_4_scaling_beta"}
    assert "query_scale_beta" not in model_of(folder(rope_parameters=rope)).spec


@pytest.mark.parametrize(
    ("keys", "error", "said"),
    [
        ({"sliding_window": 64}, UnsupportedModelError, "sliding_window: 64"),
        ({"mlp_bias": True}, UnsupportedModelError, "mlp_bias: True"),
        ({"mask_token_id": -1}, CheckpointError, "mask_token_id: -1"),
        (
            {"rope_parameters": {**YARN, "llama_4_scaling_beta": "0.1"}},
            CheckpointError,
            "llama_4_scaling_beta: '0.1'",
        ),
        (
            {"rope_parameters": {**YARN, "original_max_position_embeddings": 0}},
            CheckpointError,
            "original_max_position_embeddings: 0",
        ),
        (
            {"rope_parameters": {**YARN, "rope_type": "longrope"}},
            UnsupportedModelError,
            "rope_type 'longrope' is not supported",
        ),
    ],
)
def test_refused(
    folder: Callable[..., Path], keys: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=r"config\.json: " + said):
        model_of(folder(**keys))


def test_a_mask_token_that_nothing_names(folder: Callable[..., Path]) -> None:
    with pytest.raises(CheckpointError, match="mask_token_id: is missing"):
        model_of(folder(mask_token_id=None))


def test_a_head_by_another_name(folder: Callable[..., Path]) -> None:
    path = folder()
    index = (path / "model.safetensors.index.json").read_text()
    for file in [path / "model.safetensors.index.json", *path.glob("*.safetensors")]:
        data = file.read_bytes().replace(b'"diffusion_head.weight"', b'"lm_head.weight"       ')
        file.write_bytes(data)
    assert "diffusion_head" in index
    with pytest.raises(CheckpointError, match=r"diffusion_head\.weight: missing"):
        model_of(path)


def test_text_in_text_out(tmp_path: Path) -> None:
    """Through the face, in both modes."""
    import clover_edge

    make_nemotron(tmp_path / "in")
    export_checkpoint(tmp_path / "in", tmp_path / "out", recipe="int8")
    with clover_edge.load(tmp_path / "out", threads=1) as model:
        events = list(model.stream("the cat and the", max_new_tokens=12))
        done = events[-1].result
        again = model.generate("the cat and the", max_new_tokens=12)
        assert done.token_ids == again.token_ids and 0 < len(done.token_ids) <= 12
        ar = model.generate("the cat and the", max_new_tokens=12, mode="ar")
        assert ar.token_ids[0] == done.token_ids[0]
