"""Configuration to spec: both spellings of every key, defaults, norms, mask id, decode defaults."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import model_of
from tiny_clover import make_checkpoint, special_ids

from clover_edge.export import Checkpoint, export_checkpoint, plan_export
from clover_edge.export.families import read_model

Edit = Callable[[dict[str, Any]], None]
IDS = special_ids(320)


@pytest.fixture
def folder(tiny: Any, tmp_path: Path) -> Path:
    shutil.copytree(tiny().folder, tmp_path / "in")
    return tmp_path / "in"


def edit(folder: Path, change: Edit, name: str = "config.json") -> None:
    value = json.loads((folder / name).read_text())
    change(value)
    (folder / name).write_text(json.dumps(value))


def spec_of(folder: Path) -> dict[str, Any]:
    spec: dict[str, Any] = model_of(folder).spec
    return spec


def test_spec_says_what_the_configuration_says(folder: Path) -> None:
    spec = spec_of(folder)
    assert spec["layer_types"] == ["deltanet"] * 3 + ["attention"]
    assert (spec["vocab_size"], spec["valid_vocab"]) == (320, 288)
    assert spec["mask_token_id"] == IDS["<|mask|>"] == 287
    assert (spec["rotary_dim"], spec["rope_theta"]) == (8, 1e7)
    assert spec["attn_scale"] == pytest.approx(32**-0.5)
    assert (spec["block_size"], spec["coreset_size"], spec["history_ref_rows"]) == (32, 0, 32)
    assert (spec["history_q_scale"], spec["preview_value_beta"]) == (True, False)
    assert (spec["mask"], spec["block_origin"], spec["logit_shift"]) == ("causal", "prompt_end", 0)


def drop(*keys: str) -> Edit:
    def change(config: dict[str, Any]) -> None:
        for key in keys:
            del config[key]

    return change


def flat_rope(config: dict[str, Any]) -> None:
    rope = config.pop("rope_parameters")
    config.update(rope_theta=rope["rope_theta"], partial_rotary_factor=0.25, rope_scaling=None)


@pytest.mark.parametrize(
    "change",
    [
        drop("layer_types"),
        drop("full_attention_interval"),
        drop("block_size", "coreset_size"),
        drop("norm_topk_prob", "attn_output_gate", "attention_bias", "hidden_act"),
        drop("num_shared_experts", "tie_word_embeddings", "linear_conv_kernel_dim"),
        drop("model_type"),
        drop("architectures"),
        flat_rope,
    ],
)
def test_other_spellings_and_absent_defaults_give_the_same_spec(folder: Path, change: Edit) -> None:
    before = spec_of(folder)
    edit(folder, change)
    assert spec_of(folder) == before


def test_preview_fields_are_read(folder: Path) -> None:
    fields = {
        "block_size": 16,
        "coreset_size": 8,
        "history_q_scale": False,
        "preview_value_beta": True,
        "history_ref_rows": 16,
    }
    edit(folder, lambda config: config.update(fields))
    spec = spec_of(folder)
    assert {key: spec[key] for key in fields} == fields


def test_mask_id_comes_from_the_generation_configuration_next(folder: Path) -> None:
    edit(folder, drop("mask_token_id"))
    edit(folder, lambda c: c.update(mask_token_id=5), "generation_config.json")
    assert spec_of(folder)["mask_token_id"] == 5


def test_mask_id_comes_from_the_tokenizer_last(folder: Path) -> None:
    edit(folder, drop("mask_token_id"))
    assert spec_of(folder)["mask_token_id"] == IDS["<|mask|>"]
    edit(folder, lambda c: c.update(mask_token="<|im_start|>"), "tokenizer_config.json")
    assert spec_of(folder)["mask_token_id"] == IDS["<|im_start|>"]
    edit(folder, drop("mask_token"), "tokenizer_config.json")
    assert spec_of(folder)["mask_token_id"] == IDS["<|mask|>"]


def test_absent_tokenizer_is_a_warning(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    with Checkpoint(folder) as checkpoint:
        plan = plan_export(checkpoint)
    assert plan.model.spec["valid_vocab"] == 320
    assert any("tokenizer.json is absent" in line for line in plan.warnings)


def generation_of(folder: Path) -> dict[str, Any]:
    with Checkpoint(folder) as checkpoint:
        return read_model(checkpoint).generation


def test_decode_defaults_are_read(folder: Path) -> None:
    values = {
        "threshold": 0.75,
        "block_length": 12,
        "temperature": 0.6,
        "top_k": 20,
        "top_p": 0.95,
        "presence_penalty": 1.5,
        "frequency_penalty": 0.5,
        "repetition_penalty": 1.1,
    }
    edit(folder, lambda c: c.update(values, eos_token_id=7), "generation_config.json")
    assert generation_of(folder) == {**values, "eos_token_id": [7]}
    edit(folder, lambda c: c.update(do_sample=False), "generation_config.json")
    assert generation_of(folder)["temperature"] == 0


def test_absent_generation_configuration_gives_neutral_defaults(folder: Path) -> None:
    (folder / "generation_config.json").unlink()
    edit(folder, lambda c: c.update(eos_token_id=3))
    assert generation_of(folder) == {
        "threshold": 0.9,
        "block_length": 32,
        "eos_token_id": [3],
        "temperature": 0.0,
        "top_k": 0,
        "top_p": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "repetition_penalty": 1.0,
    }


@pytest.mark.parametrize(("norm", "offset"), [("zero", 1.0), ("plain", 0.0)])
def test_norm_convention_is_found(tmp_path: Path, norm: str, offset: float) -> None:
    tensors = make_checkpoint(tmp_path / "in", norm=norm)
    export_checkpoint(tmp_path / "in", tmp_path / "out", recipe="f32")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["clover_edge"]["spec"]["norm_offset"] == offset
    mean = float(np.mean(tensors["layers.0.input_layernorm.weight"]))
    assert abs(mean + offset - 1) < 0.1  # weights stay as they are in the checkpoint


def test_norm_convention_can_be_stated(tiny: Any, tmp_path: Path) -> None:
    export_checkpoint(tiny().folder, tmp_path / "out", norm="plain")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["clover_edge"]["spec"]["norm_offset"] == 0.0
