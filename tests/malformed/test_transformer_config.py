"""Configurations and weights of plain transformers that lie, or ask for what is not served."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from clover_edge.errors import CheckpointError, UnsupportedModelError

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


@pytest.mark.parametrize(
    "key",
    [
        "hidden_size",
        "vocab_size",
        "num_hidden_layers",
        "num_attention_heads",
        "intermediate_size",
        "rms_norm_eps",
        "max_position_embeddings",
    ],
)
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_missing_key(spoil: Any, family: str, key: str) -> None:
    spoil(family, **{key: None}).refused(CheckpointError, "config.json", key, "is missing")


@pytest.mark.parametrize("key", ["num_experts", "num_experts_per_tok", "moe_intermediate_size"])
def test_missing_key_of_experts(spoil: Any, key: str) -> None:
    spoil("qwen3_moe", **{key: None}).refused(CheckpointError, "config.json", key, "is missing")


@pytest.mark.parametrize(
    ("family", "key", "value"),
    [
        ("llama", "hidden_act", "gelu_pytorch_tanh"),
        ("llama", "mlp_bias", True),
        ("qwen2", "use_sliding_window", True),
        ("qwen3_moe", "use_sliding_window", True),
        ("qwen2", "layer_types", ["full_attention", "full_attention", "sliding_attention"]),
        ("qwen3", "architectures", ["Qwen3ForSequenceClassification"]),
        ("qwen2", "architectures", ["Qwen2ForCausalLM", "Qwen2Model"]),
        ("llama", "architectures", "LlamaForCausalLM"),
    ],
)
def test_operation_that_is_not_served(spoil: Any, family: str, key: str, value: Any) -> None:
    spoil(family, **{key: value}).refused(UnsupportedModelError, "config.json", key)


@pytest.mark.parametrize("kind", ["dynamic", "longrope", "axial", 7, ["llama3"]])
@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
def test_unknown_rotary_type_lists_the_known_ones(spoil: Any, key: str, kind: Any) -> None:
    spoiled = spoil("llama", **{key: {"rope_type": kind, "factor": 2.0}})
    spoiled.refused(UnsupportedModelError, f"rope_type {kind!r}", "linear", "llama3", "yarn")


def test_rotary_parameters_by_layer_type(spoil: Any) -> None:
    by_layer = {"full_attention": {"rope_theta": 1e6}, "sliding_attention": {"rope_theta": 1e4}}
    spoil("qwen3", rope_parameters=by_layer).refused(
        UnsupportedModelError, "rope_parameters", "full_attention"
    )


def test_two_rotary_types(spoil: Any) -> None:
    spoiled = spoil("llama", rope_scaling={"type": "linear", "rope_type": "yarn", "factor": 2.0})
    spoiled.refused(CheckpointError, "rope_type", "linear and yarn")


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"factor": None}, "factor"),
        ({"factor": 0}, "factor"),
        ({"factor": "8"}, "factor"),
        ({"low_freq_factor": None}, "low_freq_factor"),
        ({"low_freq_factor": 4.0}, "high_freq_factor"),
        ({"original_max_position_embeddings": None}, "original_max_position_embeddings"),
        ({"original_max_position_embeddings": 0.5}, "original_max_position_embeddings"),
        ({"rope_type": "yarn", "beta_fast": -1}, "beta_fast"),
        ({"rope_type": "yarn", "attention_factor": float("nan")}, "attention_factor"),
        ({"rope_type": "yarn", "truncate": 1}, "truncate"),
        ({"rope_type": "yarn", "rope_theta": 1.0}, "rope_theta"),
    ],
)
def test_rotary_parameter_outside_its_domain(spoil: Any, change: dict[str, Any], key: str) -> None:
    spoil("llama", rope_scaling={**LLAMA3, **change}).refused(CheckpointError, "config.json", key)


@pytest.mark.parametrize(
    ("family", "key", "value"),
    [
        ("llama", "num_key_value_heads", 3),
        ("llama", "head_dim", 15),
        ("qwen3", "attention_bias", "no"),
        ("qwen3_moe", "num_experts_per_tok", 9),
        ("qwen3_moe", "mlp_only_layers", 3),
        ("qwen3_moe", "mlp_only_layers", ["0"]),
        ("qwen3_moe", "decoder_sparse_step", 0),
        ("qwen2", "layer_types", ["full_attention"]),
        ("qwen2", "num_hidden_layers", 5000),
    ],
)
def test_value_that_cannot_be(spoil: Any, family: str, key: str, value: Any) -> None:
    spoil(family, **{key: value}).refused(CheckpointError, "config.json")


@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("llama", "model.layers.1.mlp.down_proj.weight"),
        ("llama", "lm_head.weight"),
        ("qwen2", "model.layers.2.self_attn.k_proj.bias"),
        ("qwen3", "model.layers.0.self_attn.q_norm.weight"),
        ("qwen3_moe", "model.layers.0.mlp.gate.weight"),
    ],
)
def test_missing_tensor(spoil: Any, family: str, name: str) -> None:
    spoiled = spoil(family)
    del spoiled.tensors[name]
    spoiled.write(spoiled.tensors)
    spoiled.refused(CheckpointError, name, "missing")


@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("llama", "model.layers.0.self_attn.q_proj.bias"),
        ("qwen2", "model.layers.0.self_attn.o_proj.bias"),
        ("qwen2", "model.layers.0.self_attn.q_norm.weight"),
    ],
)
def test_surplus_tensor(spoil: Any, family: str, name: str) -> None:
    """Left out, it would change the result without a word."""
    spoiled = spoil(family)
    spoiled.write({**spoiled.tensors, name: np.ones(64, np.float32)})
    spoiled.refused(CheckpointError, name, f"not known to the {family} family")


def test_bias_of_another_length(spoil: Any) -> None:
    spoiled = spoil("qwen2")
    name = "model.layers.0.self_attn.v_proj.bias"
    spoiled.write({**spoiled.tensors, name: np.ones(33, np.float32)})
    spoiled.refused(CheckpointError, name, "[33]", "[32]")


def test_bias_that_is_not_a_number(spoil: Any) -> None:
    spoiled = spoil("qwen2")
    name = "model.layers.2.self_attn.k_proj.bias"
    spoiled.tensors[name][5] = np.nan
    spoiled.write(spoiled.tensors)
    spoiled.refused(CheckpointError, name, "nan")
