"""Block-diffusion families: configuration to spec, ids, decode defaults, what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkpoints import copier, model_of
from tiny_blocks import FAMILIES, special_ids

from clover_edge.errors import ArgumentError, CheckpointError, UnsupportedModelError
from clover_edge.export import export_checkpoint
from clover_edge.generation import GenerationConfig


@pytest.fixture
def folder(tiny_blocks: Any, tmp_path: Path) -> Callable[..., Path]:
    return copier(tiny_blocks, tmp_path / "in")


@pytest.mark.parametrize(
    ("family", "width", "origin", "shift", "threshold"),
    [
        ("llada2", 8, "absolute", 0, 0.95),
        ("sdar", 4, "absolute", 0, 0.9),
        ("sdar_moe", 4, "absolute", 0, 0.9),
        ("fast_dllm", 16, "absolute", 1, 0.9),
        ("a2d", 8, "prompt_end", 0, 1.0),
        ("a2d_llama", 8, "prompt_end", 0, 1.0),
        ("a2d_qwen2", 8, "prompt_end", 0, 1.0),
        ("diffcoder", 4, "absolute", 0, 0.95),
    ],
)
def test_families(
    tiny_blocks: Any, family: str, width: int, origin: str, shift: int, threshold: float
) -> None:
    checkpoint = tiny_blocks(family)
    model, ids = model_of(checkpoint.folder), special_ids(checkpoint.config)
    spec = model.spec
    assert (spec["mask"], spec["block_origin"], spec["logit_shift"]) == ("block", origin, shift)
    assert (spec["preview"], spec["block_size"]) == (True, width)
    assert spec["mask_token_id"] == ids[FAMILIES[family][3]] == spec["valid_vocab"] - 1
    assert model.generation["eos_token_id"] == [ids["<|endoftext|>"], ids["<|im_end|>"]]
    assert model.generation["threshold"] == threshold
    assert model.generation["temperature"] == 0.0
    assert model.generation.get("sub_block") == (8 if family == "fast_dllm" else None)
    assert not model.warnings


@pytest.mark.parametrize("key", ["model_type", "architectures"])
@pytest.mark.parametrize("family", FAMILIES)
def test_either_name_will_do(folder: Callable[..., Path], family: str, key: str) -> None:
    model = model_of(folder(family, **{key: None}))
    if (family, key) == ("diffcoder", "architectures"):  # its class alone tells it from a Llama
        assert (model.family, model.spec["preview"]) == ("llama", False)
    else:
        assert model.family == ("a2d" if family.startswith("a2d") else family)


def test_llada2_router(tiny_blocks: Any) -> None:
    spec = model_of(tiny_blocks("llada2").folder).spec
    assert spec["ffn_types"] == ["dense", "experts", "experts"]
    names = ("router", "router_bias", "n_group", "topk_group", "routed_scaling_factor")
    assert [spec[name] for name in names] == ["sigmoid", True, 4, 2, 2.5]
    assert (spec["norm_topk"], spec["shared_gate"], spec["shared_intermediate"]) == (
        True,
        False,
        32,
    )
    assert spec["rotary_dim"] * 2 == spec["head_dim"]


def test_llada2_shared_experts_count_as_one(folder: Callable[..., Path]) -> None:
    with pytest.raises(
        CheckpointError, match=r"shared_experts\.gate_proj\.weight: shape \[32, 64\]"
    ):
        model_of(folder("llada2", num_shared_experts=2))


@pytest.mark.parametrize(
    ("family", "keys", "error", "said"),
    [
        (
            "llada2",
            {"score_function": "softmax"},
            UnsupportedModelError,
            "score_function: 'softmax'",
        ),
        ("llada2", {"use_qkv_bias": True}, UnsupportedModelError, "use_qkv_bias"),
        ("llada2", {"use_qk_norm": False}, UnsupportedModelError, "use_qk_norm"),
        ("llada2", {"rope_scaling": {"type": "ntk"}}, UnsupportedModelError, "rope_type 'ntk'"),
        ("llada2", {"n_group": 5}, CheckpointError, "n_group: 16 experts"),
        ("llada2", {"n_group": 16}, CheckpointError, "n_group: 16 experts"),
        ("llada2", {"n_group": 8, "topk_group": 1}, CheckpointError, "topk_group: 1 groups of 2"),
        ("llada2", {"routed_scaling_factor": 0}, CheckpointError, "routed_scaling_factor"),
        ("llada2", {"first_k_dense_replace": 9}, CheckpointError, "first_k_dense_replace"),
        ("sdar", {"use_sliding_window": True}, UnsupportedModelError, "use_sliding_window: True"),
        ("sdar", {"hidden_act": "gelu"}, UnsupportedModelError, "hidden_act"),
        ("sdar", {"block_size": 0}, CheckpointError, "block_size: 0"),
        ("sdar", {"block_size": 4000}, CheckpointError, "block_size: 4000"),
        ("sdar", {"mask_token_id": 320}, CheckpointError, "mask_token_id: 320"),
        ("fast_dllm", {"bd_size": "32"}, CheckpointError, "bd_size: '32'"),
    ],
)
def test_refused(
    folder: Callable[..., Path],
    family: str,
    keys: dict[str, Any],
    error: type[Exception],
    said: str,
) -> None:
    with pytest.raises(error, match=r"config\.json: " + said):
        model_of(folder(family, **keys))


@pytest.mark.parametrize("family", FAMILIES)
def test_mask_id_from_the_tokenizer(folder: Callable[..., Path], family: str) -> None:
    """Where no configuration names it; without the tokenizer nothing does."""
    path = folder(family, mask_token_id=None)
    spec = model_of(path).spec
    assert spec["mask_token_id"] == spec["valid_vocab"] - 1
    (path / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match="mask_token_id: is missing"):
        model_of(path)


def test_unknown_families_hear_of_the_known(folder: Callable[..., Path]) -> None:
    path = folder("sdar", model_type="sdar_next", architectures=["SDARNext"])
    with pytest.raises(UnsupportedModelError, match=r"sdar_next.*llada2_moe.*sdar_moe"):
        model_of(path)


def test_decode_defaults(folder: Callable[..., Path]) -> None:
    """Those of the checkpoint, then of the family, then neutral ones; the caller's come last."""
    keys = {"threshold": 0.5, "edit_threshold": 0.2, "steps": 3, "eos_token_id": None}
    path = folder("llada2", "generation_config.json", **keys)
    model = model_of(path)
    ids = special_ids(json.loads((path / "config.json").read_text()))
    assert model.generation["eos_token_id"] == [ids["<|endoftext|>"]]  # the family's, by name
    names = ("threshold", "edit_threshold", "steps", "max_post_steps", "fixed_schedule")
    assert [model.generation[name] for name in names] == [0.5, 0.2, 3, 16, True]
    config = GenerationConfig.resolve("x", model.spec, model.generation, threshold=0.7, steps=0)
    assert (config.threshold, config.edit_threshold, config.steps) == (0.7, 0.2, 0)
    core = config.core_options(10)
    assert (core["edit_threshold"], core["max_post_steps"], core["block_length"]) == (0.2, 16, 8)
    plain = GenerationConfig.resolve("x", model.spec, {}).core_options(10)
    assert "edit_threshold" not in plain


def test_strategy(folder: Callable[..., Path]) -> None:
    """Of the checkpoint, then of the caller."""
    keys = {"strategy": "entropy_bounded", "entropy_bound": 0.5}
    model = model_of(folder("sdar", "generation_config.json", **keys))
    config = GenerationConfig.resolve("x", model.spec, model.generation)
    core = config.core_options(10)
    assert (core["strategy"], core["entropy_bound"], core["factor"]) == ("entropy_bounded", 0.5, 0)
    asked = {"strategy": "low_confidence_dynamic", "factor": 1.0}
    core = GenerationConfig.resolve("x", model.spec, model.generation, **asked).core_options(10)
    assert (core["strategy"], core["factor"]) == ("low_confidence_dynamic", 1.0)
    with pytest.raises(ArgumentError, match="strategy: 'random' is none of"):
        GenerationConfig.resolve("x", model.spec, {}, strategy="random")


def test_an_unknown_strategy(folder: Callable[..., Path]) -> None:
    path = folder("sdar", "generation_config.json", strategy="random")
    with pytest.raises(CheckpointError, match=r"generation_config\.json: strategy: 'random'"):
        model_of(path)


@pytest.mark.parametrize("key", ["edit_threshold", "threshold", "max_post_steps", "factor"])
def test_defaults_out_of_their_domain(folder: Callable[..., Path], key: str) -> None:
    path = folder("llada2", "generation_config.json", **{key: -1})
    with pytest.raises(CheckpointError, match=rf"generation_config\.json: {key}: -1"):
        model_of(path)


def test_a_width_that_the_mask_does_not_have(folder: Callable[..., Path]) -> None:
    path = folder("sdar", "generation_config.json", block_length=2)
    with pytest.raises(CheckpointError, match="block_length: 2 is not an integer from 4 to 4"):
        model_of(path)


def test_diffcoder_without_a_width(folder: Callable[..., Path]) -> None:
    """As released: blocks of 4."""
    model = model_of(folder("diffcoder", block_size=None))
    assert (model.spec["block_size"], model.warnings) == (4, [])


@pytest.mark.parametrize("family", ["a2d", "a2d_llama", "a2d_qwen2"])
def test_a2d_without_a_width_warns(folder: Callable[..., Path], family: str) -> None:
    model = model_of(folder(family, block_size=None))
    assert model.spec["block_size"] == 32
    assert any("block_size" in line and "MDLM" in line for line in model.warnings)


@pytest.mark.parametrize("family", FAMILIES)
def test_text_in_text_out(tiny_blocks: Any, tmp_path: Path, family: str) -> None:
    """Through the face: drafts as wide as what is open, and the same text as ids."""
    import clover_edge

    export_checkpoint(tiny_blocks(family).folder, tmp_path / "out", recipe="int8")
    with clover_edge.load(tmp_path / "out", threads=1) as model:
        events = list(model.stream("the cat and the", max_new_tokens=12))
        done = events[-1].result
        again = model.generate("the cat and the", max_new_tokens=12)
        assert done.text == again.text
        assert done.token_ids == again.token_ids and 0 < len(done.token_ids) <= 12
        widths: dict[int, set[int]] = {}
        for event in events:
            if isinstance(event, clover_edge.DraftEvent):
                widths.setdefault(event.block, set()).add(len(event.states))
        assert all(len(found) == 1 for found in widths.values()), widths
