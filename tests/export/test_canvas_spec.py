"""DiffusionGemma: configuration to spec, tensors, decode defaults, what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkpoints import model_of
from tiny_canvas import FULL, PROPORTIONAL, SLIDING, make_canvas
from tiny_clover import write_checkpoint_files

from clover_edge.errors import ArgumentError, CheckpointError, UnsupportedModelError
from clover_edge.export import export_checkpoint
from clover_edge.generation import GenerationConfig

GONE = object()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_canvas(tmp_path / "in")
    return tmp_path / "in"


def edit(folder: Path, file: str = "config.json", section: str | None = None, **keys: Any) -> None:
    path = folder / file
    outer = json.loads(path.read_text())
    inner = outer[section] if section else outer
    for key, value in keys.items():
        if value is GONE:
            inner.pop(key, None)
        else:
            inner[key] = value
    path.write_text(json.dumps(outer))


def test_spec(folder: Path) -> None:
    model = model_of(folder)
    spec = model.spec
    assert model.family == "diffusion_gemma"
    assert (spec["noise"], spec["mask"], spec["block_size"]) == ("uniform", "causal", 16)
    assert "mask_token_id" not in spec
    assert spec["windows"] == [9, 0, 0]
    assert spec["head_dims"] == [32, 64, 64] and spec["kv_heads"] == [2, 1, 1]
    assert spec["values_from_keys"] == [0, 1, 1] and spec["v_norm"]
    assert (spec["rotary_dim"], spec["rope_local_dim"], spec["rope_local_theta"]) == (64, 32, 1e4)
    turns = [1e6 ** (-2 * i / 64) for i in range(8)]  # a quarter of 32 pairs
    assert spec["rope_inv_freq"] == pytest.approx(turns + [0.0] * 24)
    assert (spec["attn_scale"], spec["logit_softcap"], spec["norm_offset"]) == (1.0, 30.0, 0.0)
    assert spec["router_logit_scale"] == 96**-0.5
    assert spec["self_conditioning_intermediate"] == spec["dense_intermediate"] == 160
    assert spec["ffn_types"] == ["dense_and_experts"] * 3
    (warning,) = model.warnings
    assert "1 of model.encoder.vision_tower.*" in warning


@pytest.mark.parametrize("key", ["model_type", "architectures"])
def test_either_name_will_do(folder: Path, key: str) -> None:
    edit(folder, **{key: GONE})
    assert model_of(folder).family == "diffusion_gemma"


def test_spellings(folder: Path) -> None:
    """Shapes by layer as newer versions of `transformers` write them, and what is left out."""
    spec = model_of(folder).spec
    own = {"head_dim": 64, "num_key_value_heads": 1}
    shapes = {"global_head_dim": GONE, "num_global_key_value_heads": GONE}
    shapes["per_layer_config"] = {"1": own, "2": own}
    text = "text_config"
    edit(folder, section=text, **shapes)
    assert model_of(folder).spec == spec
    edit(folder, section=text, rope_parameters=GONE, final_logit_softcapping=GONE)
    edit(folder, section=text, rms_norm_eps=GONE, use_bidirectional_attention="vision")
    assert model_of(folder).spec == spec
    edit(folder, canvas_length=GONE)
    assert model_of(folder).spec == {**spec, "block_size": 256}


def test_pattern_of_layers(tmp_path: Path) -> None:
    """Every sixth layer sees everything, where the configuration is silent."""
    make_canvas(tmp_path, num_hidden_layers=6, layer_types=[SLIDING] * 5 + [FULL])
    edit(tmp_path, section="text_config", layer_types=GONE)
    assert model_of(tmp_path).spec["windows"] == [9] * 5 + [0]


def test_decode_defaults(folder: Path) -> None:
    """The checkpoint's first, the family's second; and the caller's over both."""
    model = model_of(folder)
    assert {k: v for k, v in model.generation.items() if k not in ("eos_token_id",)} == {
        "block_length": 16,
        "steps": 12,
        "t_min": 0.3,
        "t_max": 0.7,
        "entropy_bound": 0.2,
        "stability_threshold": 1,
        "confidence_threshold": 0.01,
        "top_k": 0,
        "top_p": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "repetition_penalty": 1.0,
    }
    assert len(model.generation["eos_token_id"]) == 2
    (folder / "generation_config.json").unlink()
    edit(folder, section="text_config", eos_token_id=1)
    found = model_of(folder).generation
    assert (found["steps"], found["t_min"], found["t_max"]) == (48, 0.4, 0.8)
    assert (found["entropy_bound"], found["confidence_threshold"]) == (0.1, 0.005)
    assert found["eos_token_id"] == [1]

    def resolve(**options: Any) -> GenerationConfig:
        return GenerationConfig.resolve("config.json", model.spec, found, **options)

    assert resolve(entropy_bound=0.5).core_options(16)["entropy_bound"] == 0.5
    assert (resolve().t_min, resolve().t_max) == (0.4, 0.8)
    cold = resolve(temperature=0.0, t_max=0.3)  # a temperature stands for both ends
    assert (cold.t_min, cold.t_max) == (0.0, 0.3)
    for name in ("threshold", "edit_threshold", "sub_block", "fixed_schedule", "max_post_steps"):
        with pytest.raises(ArgumentError, match=f"^{name}: .*random ids"):
            resolve(**{name: 1})
    with pytest.raises(ArgumentError, match=r"^block_length"):
        resolve(block_length=17)
    masks = {"block_size": 16, "vocab_size": 320}
    with pytest.raises(ArgumentError, match=r"^t_max: .*masks"):
        GenerationConfig.resolve("config.json", masks, {}, t_max=0.5)


@pytest.mark.parametrize(
    ("section", "keys", "word"),
    [
        ("text_config", {"hidden_activation": "silu"}, "hidden_activation"),
        ("text_config", {"attention_bias": True}, "attention_bias"),
        ("text_config", {"use_bidirectional_attention": "all"}, "use_bidirectional_attention"),
        ("text_config", {"layer_types": [SLIDING, "chunked", FULL]}, "chunked"),
        ("text_config", {"per_layer_config": {"1": {"sliding_window": 3}}}, "sliding_window"),
        ("text_config", {"per_layer_config": {"1": {"head_dim": 32}}}, "per_layer_config"),
        ("text_config", {"rope_parameters": {FULL: {"rope_type": "longrope"}}}, "longrope"),
        (
            "text_config",
            {"rope_parameters": {SLIDING: {"rope_type": "linear"}, FULL: PROPORTIONAL}},
            "rope_type",
        ),
        (None, {"tie_word_embeddings": False}, "tie_word_embeddings"),
    ],
)
def test_what_is_not_served(
    folder: Path, section: str | None, keys: dict[str, Any], word: str
) -> None:
    if "layer_types" not in keys and "per_layer_config" in keys:
        edit(folder, section=section, head_dim=16)
    edit(folder, section=section, **keys)
    with pytest.raises(UnsupportedModelError, match=word) as caught:
        model_of(folder)
    assert str(folder / "config.json") in str(caught.value)


@pytest.mark.parametrize(
    ("section", "keys", "field"),
    [
        ("text_config", {"layer_types": [FULL]}, "layer_types"),
        ("text_config", {"layer_types": [FULL, FULL, SLIDING]}, "layer_types"),
        ("text_config", {"num_key_value_heads": 3}, "num_attention_heads"),
        ("text_config", {"num_experts": GONE}, "num_experts"),
        ("text_config", {"top_k_experts": 9}, "top_k_experts"),
        ("text_config", {"sliding_window": 0}, "sliding_window"),
        ("text_config", {"final_logit_softcapping": 0}, "final_logit_softcapping"),
        ("text_config", {"global_head_dim": 32}, "q_proj"),
        (None, {"canvas_length": 2000}, "canvas_length"),
    ],
)
def test_lies(folder: Path, section: str | None, keys: dict[str, Any], field: str) -> None:
    edit(folder, section=section, **keys)
    with pytest.raises(CheckpointError, match=field):
        model_of(folder)


@pytest.mark.parametrize(
    ("keys", "field"),
    [
        ({"t_max": 0.2}, "t_max"),
        ({"max_denoising_steps": 0}, "max_denoising_steps"),
        ({"sampler_config": {"entropy_bound": "0.1"}}, "entropy_bound"),
        ({"stability_threshold": -1}, "stability_threshold"),
        ({"eos_token_id": [400]}, "eos_token_id"),
    ],
)
def test_lies_of_the_generation_configuration(
    folder: Path, keys: dict[str, Any], field: str
) -> None:
    edit(folder, "generation_config.json", **keys)
    with pytest.raises(CheckpointError, match=field) as caught:
        model_of(folder)
    assert caught.value.path == str(folder / "generation_config.json")


def test_another_sampler_is_refused(folder: Path) -> None:
    edit(folder, "generation_config.json", sampler_config={"_cls_name": "Other", "beta": 1})
    with pytest.raises(UnsupportedModelError, match="_cls_name"):
        model_of(folder)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda t: t.pop("model.encoder.language_model.layers.1.layer_scalar"), "layers.1.layer"),
        (lambda t: t.pop("model.decoder.self_conditioning.pre_norm.weight"), "pre_norm"),
        (lambda t: t.update({"model.decoder.layers.1.self_attn.v_proj.weight": t["x"]}), "v_proj"),
        (
            lambda t: t.update({"model.encoder.language_model.norm.weight": t["x"]}),
            "language_model",
        ),
    ],
)
def test_tensors_that_are_missing_or_surplus(
    tmp_path: Path, change: Callable[[dict[str, Any]], Any], name: str
) -> None:
    tensors = make_canvas(tmp_path)
    tensors["x"] = tensors["model.decoder.norm.weight"]
    change(tensors)
    del tensors["x"]
    write_checkpoint_files(tmp_path, tensors, shards=2, dtype="f32")
    with pytest.raises(CheckpointError, match=name):
        model_of(tmp_path)


@pytest.mark.parametrize("method", ["weighted", "gptq"])
def test_calibration_is_refused(folder: Path, method: str) -> None:
    """Before anything is written."""
    with pytest.raises(UnsupportedModelError, match=method):
        export_checkpoint(folder, folder.parent / "out", recipe="int4", method=method)
    assert not (folder.parent / "out").exists()
