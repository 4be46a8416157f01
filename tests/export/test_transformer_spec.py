"""Plain transformers: configuration to spec, rotary types, decode defaults, expert layouts."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import copier, model_of
from oracle.transformer import frequencies
from tiny_transformer import ARCHITECTURES, make_transformer

from clover_edge.errors import ArgumentError
from clover_edge.export import Checkpoint, export_checkpoint, plan_export

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}


@pytest.fixture
def folder(tiny_transformer: Any, tmp_path: Path) -> Callable[..., Path]:
    return copier(tiny_transformer, tmp_path / "in")


def spec_of(folder: Path) -> dict[str, Any]:
    spec: dict[str, Any] = model_of(folder).spec
    return spec


@pytest.mark.parametrize(
    ("family", "qk_norm", "in_bias", "head_dim"),
    [("llama", False, False, 16), ("qwen2", False, True, 16), ("qwen3", True, False, 32)],
)
def test_dense_families(
    folder: Callable[..., Path], family: str, qk_norm: bool, in_bias: bool, head_dim: int
) -> None:
    spec = spec_of(folder(family))
    assert (spec["qk_norm"], spec["attn_in_bias"], spec["attn_out_bias"]) == (
        qk_norm,
        in_bias,
        False,
    )
    assert spec["layer_types"] == ["attention"] * 3
    assert spec["ffn_types"] == ["dense"] * 3
    assert (spec["head_dim"], spec["rotary_dim"], spec["rope_theta"]) == (head_dim, head_dim, 1e4)
    assert (spec["attn_output_gate"], spec["preview"], spec["norm_offset"]) == (False, False, 0.0)
    assert (spec["dense_intermediate"], spec["valid_vocab"]) == (96, 288)
    assert not {"mask_token_id", "block_size", "num_experts"} & set(spec)


def test_experts_and_dense_layers(folder: Callable[..., Path]) -> None:
    spec = spec_of(folder("qwen3_moe"))
    assert spec["ffn_types"] == ["experts"] * 3
    assert (spec["num_experts"], spec["top_k"], spec["expert_intermediate"]) == (8, 2, 32)
    assert (spec["shared_intermediate"], spec["norm_topk"]) == (0, True)
    assert "dense_intermediate" not in spec


@pytest.mark.parametrize(
    ("keys", "kinds"),
    [
        ({"mlp_only_layers": [0, 2]}, ["dense", "experts", "dense", "experts"]),
        ({"decoder_sparse_step": 2}, ["dense", "experts", "dense", "experts"]),
        (
            {"decoder_sparse_step": 2, "mlp_only_layers": [1]},
            ["dense", "dense", "dense", "experts"],
        ),
    ],
)
def test_which_layers_have_experts(tmp_path: Path, keys: dict[str, Any], kinds: list[str]) -> None:
    make_transformer(tmp_path, "qwen3_moe", layers=4, **keys)
    assert spec_of(tmp_path)["ffn_types"] == kinds


def test_absent_keys_mean_what_the_classes_say(folder: Callable[..., Path]) -> None:
    path = folder("llama", attention_bias=None, mlp_bias=None, rope_theta=None, hidden_act=None)
    config = json.loads((path / "config.json").read_text())
    del config["tie_word_embeddings"]
    (path / "config.json").write_text(json.dumps(config))
    spec = spec_of(path)
    assert (spec["rope_theta"], spec["attn_in_bias"], spec["tie_embeddings"]) == (1e4, False, False)


@pytest.mark.parametrize("key", ["model_type", "architectures"])
@pytest.mark.parametrize("family", ARCHITECTURES)
def test_either_name_of_a_family_will_do(
    folder: Callable[..., Path], family: str, key: str
) -> None:
    assert model_of(folder(family, **{key: None})).family == family


@pytest.mark.parametrize(
    "keys",
    [
        {"rope_scaling": LLAMA3, "rope_theta": 500_000.0},
        {"rope_parameters": {**LLAMA3, "rope_theta": 500_000.0}, "rope_theta": None},
        {"rope_scaling": {"type": "linear", "factor": 4.0}},
        {"rope_scaling": YARN, "rope_theta": 1e6},
        {"rope_scaling": {**YARN, "beta_fast": 16.0, "beta_slow": 2.0}, "rope_theta": 1e6},
        {"rope_scaling": {**YARN, "attention_factor": 0.5}},
    ],
)
def test_stretched_rotation(folder: Callable[..., Path], keys: dict[str, Any]) -> None:
    """Head width 128 and real contexts, against the oracle's own reading of the definitions."""
    config = {**keys, "head_dim": 128, "num_attention_heads": 4}
    plain = {key: value for key, value in config.items() if value is not None}
    path = folder("qwen3", **config)
    make_transformer(path, "qwen3", **plain)
    spec = spec_of(path)
    want, factor = frequencies(plain, 128)
    assert "rope_theta" not in spec
    np.testing.assert_allclose(spec["rope_inv_freq"], want, rtol=1e-12)
    assert spec["rope_attention_factor"] == pytest.approx(factor, rel=1e-12)


def test_mscales_of_yarn(folder: Callable[..., Path]) -> None:
    scaling = {**YARN, "mscale": 1.0, "mscale_all_dim": 0.5}
    spec = spec_of(folder("llama", rope_scaling=scaling))
    want = (0.1 * math.log(4) + 1) / (0.05 * math.log(4) + 1)
    assert spec["rope_attention_factor"] == pytest.approx(want)


def test_default_rotation_by_either_name(folder: Callable[..., Path]) -> None:
    spec = spec_of(folder("llama", rope_parameters={"rope_type": "default", "rope_theta": 5e5}))
    assert (spec["rope_theta"], "rope_inv_freq" in spec) == (5e5, False)


def test_decode_defaults(folder: Callable[..., Path]) -> None:
    path = folder("qwen2")

    def defaults(**changes: Any) -> dict[str, Any]:
        file = path / "generation_config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
        generation: dict[str, Any] = model_of(path).generation
        return generation

    assert defaults() == {
        "eos_token_id": [287, 285],
        "temperature": 0.7,
        "top_k": 20,
        "top_p": 0.8,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "repetition_penalty": 1.1,
    }
    assert defaults(temperature=None)["temperature"] == 1.0  # sampling, and at no other temperature
    assert defaults(do_sample=False, temperature=0.7)["temperature"] == 0.0


def test_experts_fused_or_separate_give_the_same_folder(tmp_path: Path) -> None:
    for separate in (True, False):
        source = tmp_path / f"in-{separate}"
        make_transformer(source, "qwen3_moe", separate=separate)
        export_checkpoint(source, tmp_path / f"out-{separate}", recipe="int4")
    one, other = (
        {file.name: file.read_bytes() for file in (tmp_path / f"out-{separate}").iterdir()}
        for separate in (True, False)
    )
    for report in (one, other):  # the sources' own sizes and hashes differ
        del report["export_report.json"]
    assert one == other


def test_frequencies_of_old_checkpoints_are_left_out(tmp_path: Path) -> None:
    from tiny_clover import write_checkpoint_files

    tensors = make_transformer(tmp_path / "in", "llama")
    named = {n if n.startswith("lm_head") else "model." + n: value for n, value in tensors.items()}
    named["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(8, np.float32)
    write_checkpoint_files(tmp_path / "in", named)
    with Checkpoint(tmp_path / "in") as checkpoint:
        names = [tensor.name for tensor in plan_export(checkpoint).tensors]
    assert len(names) == 3 + 3 * 6


def test_norms_are_known_to_be_plain(folder: Callable[..., Path], tmp_path: Path) -> None:
    source = folder("llama")
    with pytest.raises(ArgumentError, match=r"norm: 'zero-centred'.* llama"):
        export_checkpoint(source, tmp_path / "out", norm="zero-centred")
    assert not (tmp_path / "out").exists()
    export_checkpoint(source, tmp_path / "out", norm="plain")
