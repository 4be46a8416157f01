"""Configurations that lie, contradict themselves, or ask for what is not there."""

from __future__ import annotations

from typing import Any

import pytest

from clover_edge.errors import CheckpointError, UnsupportedModelError


@pytest.mark.parametrize(
    "key",
    [
        "hidden_size",
        "vocab_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "rms_norm_eps",
        "max_position_embeddings",
        "linear_num_key_heads",
        "linear_value_head_dim",
        "num_experts",
        "num_experts_per_tok",
        "moe_intermediate_size",
        "shared_expert_intermediate_size",
    ],
)
def test_missing_key(spoiled: Any, key: str) -> None:
    spoiled.edit(lambda config: config.pop(key))
    spoiled.refused(CheckpointError, "config.json", key, "is missing")


@pytest.mark.parametrize("value", [0, -1, 1.5, "64", True, [64], 1 << 40])
@pytest.mark.parametrize("key", ["hidden_size", "num_experts", "num_hidden_layers", "head_dim"])
def test_size_that_is_no_size(spoiled: Any, key: str, value: Any) -> None:
    spoiled.set(key, value)
    spoiled.refused(CheckpointError, "config.json", key, repr(value))


@pytest.mark.parametrize("value", [0, -1e-6, 2, "1e-6", True, float("nan"), float("inf"), 10**400])
def test_epsilon_that_is_no_epsilon(spoiled: Any, value: Any) -> None:
    spoiled.set("rms_norm_eps", value)
    spoiled.refused(CheckpointError, "rms_norm_eps", repr(value))


@pytest.mark.parametrize("key", ["tie_word_embeddings", "norm_topk_prob", "history_q_scale"])
def test_flag_that_is_no_flag(spoiled: Any, key: str) -> None:
    spoiled.set(key, "yes")
    spoiled.refused(CheckpointError, key, "'yes'")


def test_query_heads_that_do_not_share_key_heads_evenly(spoiled: Any) -> None:
    spoiled.set("num_key_value_heads", 3)
    spoiled.refused(CheckpointError, "num_attention_heads", "groups of 3")


def test_value_heads_that_do_not_share_key_heads_evenly(spoiled: Any) -> None:
    spoiled.set("linear_num_key_heads", 3)
    spoiled.refused(CheckpointError, "linear_num_value_heads", "groups of 3")


def test_more_experts_a_token_than_there_are(spoiled: Any) -> None:
    spoiled.set("num_experts_per_tok", 17)
    spoiled.refused(CheckpointError, "num_experts_per_tok", "17")


@pytest.mark.parametrize("value", ["linear_attention", ["linear_attention"], [1, 2, 3, 4]])
def test_layer_list_that_does_not_fit(spoiled: Any, value: Any) -> None:
    spoiled.set("layer_types", value)
    spoiled.refused(CheckpointError, "layer_types")


def test_layer_of_an_unknown_kind(spoiled: Any) -> None:
    spoiled.set("layer_types", ["linear_attention"] * 3 + ["sliding_attention"])
    spoiled.refused(CheckpointError, "layer_types", "sliding_attention")


def test_rotary_share_that_is_odd(spoiled: Any) -> None:
    spoiled.set("rope_parameters", {"rope_theta": 1e7, "partial_rotary_factor": 0.1})
    spoiled.refused(CheckpointError, "partial_rotary_factor")


def test_more_layers_and_experts_than_memory_can_list(spoiled: Any) -> None:
    spoiled.edit(lambda c: c.update(num_hidden_layers=4096, num_experts=65536))
    spoiled.edit(lambda c: c.pop("layer_types"))
    spoiled.refused(CheckpointError, "model.layers.0.mlp.gate.weight", "[65536, 64]")


def test_missing_rotary_base(spoiled: Any) -> None:
    spoiled.set("rope_parameters", {})
    spoiled.refused(CheckpointError, "rope_theta", "is missing")


def test_rotary_section_that_is_no_object(spoiled: Any) -> None:
    spoiled.set("rope_parameters", "default")
    spoiled.refused(CheckpointError, "rope_parameters")


def test_text_configuration_that_is_no_object(spoiled: Any) -> None:
    spoiled.set("text_config", [1])
    spoiled.refused(CheckpointError, "text_config")


@pytest.mark.parametrize("value", [-1, 320, "<|mask|>", 1.0])
def test_mask_id_outside_the_vocabulary(spoiled: Any, value: Any) -> None:
    spoiled.set("mask_token_id", value)
    spoiled.refused(CheckpointError, "mask_token_id", repr(value))


def test_mask_id_that_nobody_names(spoiled: Any) -> None:
    spoiled.edit(lambda config: config.pop("mask_token_id"))
    spoiled.edit(lambda config: config.pop("mask_token"), "tokenizer_config.json")
    spoiled.edit(lambda config: config.pop("added_tokens"), "tokenizer.json")
    spoiled.refused(CheckpointError, "mask_token_id", "is missing", "tokenizer")


@pytest.mark.parametrize("value", [0, 33 * 128, "32"])
def test_block_size_outside_its_domain(spoiled: Any, value: Any) -> None:
    spoiled.set("block_size", value)
    spoiled.refused(CheckpointError, "block_size", repr(value))


def test_coreset_larger_than_the_experts(spoiled: Any) -> None:
    spoiled.set("coreset_size", 17)
    spoiled.refused(CheckpointError, "coreset_size", "17")


def test_tokenizer_with_more_ids_than_the_model_has_rows(spoiled: Any) -> None:
    def change(tokenizer: dict[str, Any]) -> None:
        tokenizer["added_tokens"][0]["id"] = 320

    spoiled.edit(change, "tokenizer.json")
    spoiled.refused(CheckpointError, "tokenizer.json", "320")


def test_tokenizer_whose_ids_are_texts(spoiled: Any) -> None:
    spoiled.edit(lambda t: t["model"]["vocab"].update(a="1"), "tokenizer.json")
    spoiled.refused(CheckpointError, "tokenizer.json", "'1'")


def test_tokenizer_whose_token_is_a_list(spoiled: Any) -> None:
    spoiled.edit(lambda t: t["added_tokens"].append({"id": 1, "content": []}), "tokenizer.json")
    spoiled.refused(CheckpointError, "tokenizer.json", "[]")


def test_tokenizer_without_a_vocabulary(spoiled: Any) -> None:
    spoiled.edit(lambda t: t.update(model={"vocab": 3}), "tokenizer.json")
    spoiled.refused(CheckpointError, "tokenizer.json", "vocab")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("eos_token_id", [320]),
        ("eos_token_id", "</s>"),
        ("threshold", 1.5),
        ("block_length", 33),
        ("temperature", -1),
        ("top_p", 2),
        ("top_k", -5),
        ("repetition_penalty", "high"),
    ],
)
def test_decode_default_outside_its_domain(spoiled: Any, key: str, value: Any) -> None:
    spoiled.edit(lambda config: config.update({key: value}), "generation_config.json")
    spoiled.refused(CheckpointError, "generation_config.json", key)


def test_unknown_family_lists_the_known_ones(spoiled: Any) -> None:
    spoiled.edit(lambda c: c.update(model_type="gpt2", architectures=["GPT2LMHeadModel"]))
    spoiled.refused(UnsupportedModelError, "gpt2", "GPT2LMHeadModel", "clover_moe")


@pytest.mark.parametrize("value", [None, 7, [["CloverMoeModelLM"]]])
def test_family_that_is_no_name(spoiled: Any, value: Any) -> None:
    spoiled.edit(lambda c: c.update(model_type=value, architectures=value))
    spoiled.refused(UnsupportedModelError, "unknown family")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_act", "gelu"),
        ("attention_bias", True),
        ("scoring_func", "sigmoid"),
        ("preview_decay", True),
        ("rope_parameters", {"rope_type": "longrope", "rope_theta": 1e7}),
        ("rope_scaling", {"type": "dynamic", "factor": 2}),
    ],
)
def test_operation_that_is_not_served(spoiled: Any, key: str, value: Any) -> None:
    spoiled.set(key, value)
    spoiled.refused(UnsupportedModelError, "config.json", "rope_type" if "rope" in key else key)
