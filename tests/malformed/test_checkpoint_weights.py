"""Tensors that are missing, surplus, of another shape or type, or hold values they must not."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from tiny_clover import to_bf16

from clover_edge.errors import CheckpointError

PREVIEW = (
    "conv_right_weight",
    "bd_softmax_logit_scale",
    "bd_softmax_history_bias",
    "bd_softmax_history_c",
)


def test_missing_tensor(spoiled: Any) -> None:
    del spoiled.tensors["model.layers.1.mlp.gate.weight"]
    spoiled.write(spoiled.tensors)
    spoiled.refused(CheckpointError, "model.layers.1.mlp.gate.weight", "missing")


@pytest.mark.parametrize("name", PREVIEW)
def test_missing_preview_tensor(spoiled: Any, name: str) -> None:
    full = f"model.layers.2.linear_attn.{name}"
    del spoiled.tensors[full]
    spoiled.write(spoiled.tensors)
    spoiled.refused(CheckpointError, full, "block diffusion")


def test_all_preview_tensors_missing(spoiled: Any) -> None:
    kept = {name: x for name, x in spoiled.tensors.items() if not name.endswith(PREVIEW)}
    spoiled.write(kept)
    names = [f"model.layers.0.linear_attn.{name}" for name in PREVIEW]
    spoiled.refused(CheckpointError, *names, "block diffusion")


def test_more_missing_tensors_than_an_error_names(spoiled: Any) -> None:
    kept = {name: x for name, x in spoiled.tensors.items() if ".layers.1." not in name}
    spoiled.write(kept)
    spoiled.refused(CheckpointError, "model.layers.1.input_layernorm.weight", "and 14 more")


def test_missing_embedding(spoiled: Any) -> None:
    del spoiled.tensors["model.embed_tokens.weight"]
    spoiled.write(spoiled.tensors)
    spoiled.refused(CheckpointError, "model.language_model.embed_tokens.weight")


def test_missing_head_of_an_untied_model(spoiled: Any) -> None:
    del spoiled.tensors["lm_head.weight"]
    spoiled.write(spoiled.tensors)
    spoiled.refused(CheckpointError, "lm_head.weight", "missing")


def test_missing_expert_of_separate_ones(spoiled: Any) -> None:
    stem = "model.layers.0.mlp.experts."
    both = spoiled.tensors.pop(stem + "gate_up_proj")
    down = spoiled.tensors.pop(stem + "down_proj")
    for e in range(15):  # the sixteenth is forgotten
        spoiled.tensors[f"{stem}{e}.gate_proj.weight"] = both[e, :32]
        spoiled.tensors[f"{stem}{e}.up_proj.weight"] = both[e, 32:]
        spoiled.tensors[f"{stem}{e}.down_proj.weight"] = down[e]
    spoiled.write(spoiled.tensors)
    spoiled.refused(CheckpointError, f"{stem}15.gate_proj.weight", "missing")


def test_surplus_tensor(spoiled: Any) -> None:
    spoiled.tensors["model.layers.0.mlp.expert_bias"] = np.ones(16, np.float32)
    spoiled.write(spoiled.tensors)
    spoiled.refused(CheckpointError, "model.layers.0.mlp.expert_bias", "not known")


def test_layers_that_the_configuration_does_not_count(spoiled: Any) -> None:
    spoiled.edit(lambda c: c.update(num_hidden_layers=3, layer_types=c["layer_types"][:3]))
    spoiled.refused(CheckpointError, "model.layers.3.", "not known", "more")


@pytest.mark.parametrize(
    "name",
    [
        "model.norm.weight",
        "model.layers.3.self_attn.q_proj.weight",
        "model.layers.0.linear_attn.in_proj_qkv.weight",
        "model.layers.0.linear_attn.conv1d.weight",
        "model.layers.0.mlp.experts.gate_up_proj",
        "lm_head.weight",
    ],
)
def test_shape_that_contradicts_the_configuration(spoiled: Any, name: str) -> None:
    spoiled.tensors[name] = spoiled.tensors[name][:-1]
    spoiled.write(spoiled.tensors)
    spoiled.refused(CheckpointError, name, "shape", "configuration asks for")


def test_transposed_matrix_of_the_same_size(spoiled: Any) -> None:
    name = "model.layers.0.linear_attn.conv1d.weight"
    spoiled.tensors[name] = spoiled.tensors[name].reshape(4, 1, -1)
    spoiled.write(spoiled.tensors)
    spoiled.refused(CheckpointError, name, "shape [4, 1, 128]")


@pytest.mark.parametrize(("dtype", "width"), [("F8_E4M3", 1), ("I8", 1), ("I32", 4), ("F64", 8)])
def test_dtype_that_is_no_plain_float(spoiled: Any, dtype: str, width: int) -> None:
    header, data = {}, b""
    for name, value in spoiled.tensors.items():
        odd = name == "model.norm.weight"
        part = bytes(width * value.size) if odd else to_bf16(value).tobytes()
        offsets = [len(data), len(data) + len(part)]
        kind = dtype if odd else "BF16"
        header[name] = {"dtype": kind, "shape": value.shape, "data_offsets": offsets}
        data += part
    text = json.dumps(header).encode()
    spoiled.weights.write_bytes(len(text).to_bytes(8, "little") + text + data)
    spoiled.refused(CheckpointError, "model.norm.weight", dtype)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("model.embed_tokens.weight", (5, 7)),
        ("model.layers.0.mlp.experts.gate_up_proj", (3, 40, 2)),
        ("model.layers.1.input_layernorm.weight", (9,)),
        ("model.layers.2.linear_attn.A_log", (1,)),
        ("lm_head.weight", (319, 63)),
    ],
)
def test_weight_that_is_not_finite(
    spoiled: Any, name: str, place: tuple[int, ...], value: float
) -> None:
    spoiled.tensors[name][place] = value
    spoiled.write(spoiled.tensors, dtype="f32")
    spoiled.refused(CheckpointError, name, "nan" if np.isnan(value) else "inf")


def test_weight_whose_scale_is_beyond_float16(spoiled: Any) -> None:
    name = "model.layers.0.mlp.experts.down_proj"
    spoiled.tensors[name][2, 3, 4] = 1e7
    spoiled.write(spoiled.tensors)
    spoiled.refused(CheckpointError, name, "float16")


def norms(spoiled: Any, *means: float) -> None:
    for layer, mean in enumerate(means):
        tensor = spoiled.tensors[f"model.layers.{layer}.input_layernorm.weight"]
        tensor += np.float32(mean)
    spoiled.write(spoiled.tensors)


def test_norms_halfway_between_the_conventions(spoiled: Any) -> None:
    norms(spoiled, 0.5, 0.5, 0.5, 0.5)
    spoiled.refused(CheckpointError, "input_layernorm.weight", "ambiguous", "--norm")


def test_norms_near_neither_convention(spoiled: Any) -> None:
    norms(spoiled, 3, 3, 3, 3)
    spoiled.refused(CheckpointError, "input_layernorm.weight", "ambiguous")


def test_norms_whose_layers_contradict_each_other(spoiled: Any) -> None:
    norms(spoiled, 0, 1, 0, 0)
    spoiled.refused(CheckpointError, "input_layernorm.weight", "ambiguous")


@pytest.mark.parametrize("value", [5.0, 90.0, -30.0])
def test_a_log_that_is_no_logarithm_of_a_decay(spoiled: Any, value: float) -> None:
    name = "model.layers.1.linear_attn.A_log"
    spoiled.tensors[name][2] = value
    spoiled.write(spoiled.tensors)
    spoiled.refused(CheckpointError, name, "exp(A_log)")
