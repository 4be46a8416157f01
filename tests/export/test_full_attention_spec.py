"""Families with full attention: configuration to spec, ids, decode defaults, what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkpoints import copier, model_of
from tiny_full_attention import FAMILIES, special_ids

import clover_edge
from clover_edge.cli.main import main
from clover_edge.errors import ArgumentError, CheckpointError, ContextLengthError
from clover_edge.errors import UnsupportedModelError as Unsupported
from clover_edge.export import export_checkpoint
from clover_edge.generation import GenerationConfig


@pytest.fixture
def folder(tiny_full_attention: Any, tmp_path: Path) -> Callable[..., Path]:
    return copier(tiny_full_attention, tmp_path / "in")


@pytest.mark.parametrize(("family", "shift"), [("dream", 1), ("llada", 0), ("llada_moe", 0)])
def test_families(tiny_full_attention: Any, family: str, shift: int) -> None:
    model, ids = model_of(tiny_full_attention(family).folder), special_ids(family, 320)
    spec, stops = model.spec, FAMILIES[family][4]
    assert model.family == family
    assert (spec["mask"], spec["logit_shift"], spec["block_size"]) == ("full", shift, 32)
    assert spec["mask_token_id"] == ids[FAMILIES[family][3]] == spec["valid_vocab"] - 1
    # the second one beside the checkpoint's own
    assert model.generation["eos_token_id"] == [ids[stop] for stop in stops]
    assert (model.generation["threshold"], model.generation["cache"]) == (0.9, "dual")
    assert model.generation["temperature"] == 0.0
    assert not model.warnings


def test_llada_moe_router(tiny_full_attention: Any) -> None:
    spec = model_of(tiny_full_attention("llada_moe").folder).spec
    names = ("router", "norm_topk", "num_experts", "top_k", "expert_intermediate", "qk_norm")
    assert [spec[name] for name in names] == ["softmax", False, 16, 4, 32, True]


@pytest.mark.parametrize("family", FAMILIES)
def test_either_name_will_do(folder: Callable[..., Path], family: str) -> None:
    assert model_of(folder(family, model_type=None)).family == family
    assert model_of(folder(family, model_type=FAMILIES[family][0])).family == family


@pytest.mark.parametrize("family", ["llada", "llada_moe"])
def test_llada_without_architectures(folder: Callable[..., Path], family: str) -> None:
    assert model_of(folder(family, architectures=None)).family == family


@pytest.mark.parametrize(
    ("family", "keys", "error", "said"),
    [
        ("dream", {"use_sliding_window": True}, Unsupported, "use_sliding_window: True"),
        ("dream", {"mask_token_id": 320}, CheckpointError, "mask_token_id: 320"),
        ("llada", {"architectures": ["LLaDAV"]}, Unsupported, r"architectures: \['LLaDAV'\]"),
        ("llada", {"alibi": True}, Unsupported, "alibi: True"),
        ("llada", {"include_qkv_bias": True}, Unsupported, "include_qkv_bias: True"),
        ("llada", {"block_type": "sequential"}, Unsupported, "block_type: 'sequential'"),
        ("llada", {"embedding_size": 384}, Unsupported, "embedding_size: 384"),
        ("llada", {"n_heads": 5}, CheckpointError, "d_model: 64 heads do not divide"),
        ("llada", {"n_kv_heads": 3}, CheckpointError, "n_heads: 4 heads"),
        ("llada", {"rope_scaling": {"type": "ntk"}}, Unsupported, "rope_type 'ntk'"),
        ("llada_moe", {"moe_layer_freq": [1, 0, 1]}, Unsupported, "moe_layer_freq"),
        ("llada_moe", {"shared_expert_intermediate_size": 32}, Unsupported, "shared_expert"),
        ("llada_moe", {"norm_topk_prob": True}, Unsupported, "norm_topk_prob: True"),
        ("llada_moe", {"qk_layernorm": False}, Unsupported, "qk_layernorm"),
        ("llada_moe", {"num_experts_per_tok": 17}, CheckpointError, "num_experts_per_tok: 17"),
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
    path = folder(family, mask_token_id=None)
    assert model_of(path).spec["mask_token_id"] == model_of(path).spec["valid_vocab"] - 1
    (path / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match="mask_token_id: is missing"):
        model_of(path)


def test_missing_and_surplus_tensors(tiny_full_attention: Any, tmp_path: Path) -> None:
    shutil.copytree(tiny_full_attention("llada").folder, tmp_path / "in")
    config = json.loads((tmp_path / "in" / "config.json").read_text())
    for layers, said in ((4, r"blocks\.3\.q_proj\.weight"), (2, r"blocks\.2\.\S+.*not known")):
        (tmp_path / "in" / "config.json").write_text(json.dumps({**config, "n_layers": layers}))
        with pytest.raises(CheckpointError, match=said):
            model_of(tmp_path / "in")


def test_dream_words_of_a_generation_configuration(folder: Callable[..., Path]) -> None:
    keys = {"alg": "topk_margin", "alg_temp": 0.2, "steps": 64, "eps": 1e-3, "cache": "none"}
    found = model_of(folder("dream", "generation_config.json", **keys)).generation
    names = ("confidence", "confidence_temperature", "steps", "eps", "cache")
    assert [found[name] for name in names] == ["margin", 0.2, 64, 1e-3, "none"]
    found = model_of(folder("dream", "generation_config.json", alg="origin")).generation
    assert found["confidence"] == "random" and "confidence_temperature" not in found


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"alg": "best"}, "alg: 'best' is none of origin"),
        ({"cache": "triple"}, "cache: 'triple' is none of none, prefix, dual"),
        ({"confidence": 1}, "confidence: 1 is none of"),
        ({"eps": 2}, "eps: 2"),
        ({"factor": -1}, "factor: -1"),
        ({"steps": -1}, "steps: -1"),
        ({"block_length": 5000}, "block_length: 5000"),
    ],
)
def test_defaults_out_of_their_domain(
    folder: Callable[..., Path], keys: dict[str, Any], said: str
) -> None:
    with pytest.raises(CheckpointError, match=r"generation_config\.json: " + said):
        model_of(folder("dream", "generation_config.json", **keys))


def test_decode_defaults(tiny_full_attention: Any) -> None:
    """The family's, then the caller's."""
    model = model_of(tiny_full_attention("llada").folder)
    config = GenerationConfig.resolve("x", model.spec, model.generation)
    assert (config.cache, config.block_length, config.threshold) == ("dual", 32, 0.9)
    assert config.fixed_schedule
    asked = {"cache": "prefix", "block_length": 256, "eps": 1e-3, "confidence": "entropy"}
    config = GenerationConfig.resolve("x", model.spec, model.generation, **asked)
    core = config.core_options(10)
    assert {name: core[name] for name in asked} == asked


FULL = {"mask": "full", "block_size": 32, "vocab_size": 320, "max_positions": 4096}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("cache", v) for v in ("", "both", 1)],
        *[("confidence", v) for v in ("low", True)],
        *[("factor", v) for v in (-1, float("nan"), "1")],
        *[("eps", v) for v in (-0.1, 1.5)],
        *[("confidence_temperature", v) for v in (-1, None.__class__)],
        *[("stop_penalty", v) for v in (-1, 1e7)],
        *[("block_length", v) for v in (0, 4097)],
        *[("edit_threshold", 0.5), ("sub_block", 8), ("coreset_size", 8), ("mode", "ar")],
    ],
)
def test_values_outside_their_domain(name: str, value: Any) -> None:
    with pytest.raises(ArgumentError, match=rf"^{name}: "):
        GenerationConfig.resolve("x", FULL, {}, **{name: value})


@pytest.mark.parametrize("name", ["cache", "eps", "confidence", "stop_penalty"])
def test_options_of_full_attention_alone(name: str) -> None:
    with pytest.raises(ArgumentError, match=rf"^{name}: .* for models with full attention"):
        GenerationConfig.resolve("x", {**FULL, "mask": "block"}, {}, **{name: 1})


def test_the_command_line(
    tiny_full_attention: Any, pack: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Options with dashes, and a line of counters that has no prefill."""
    folder = pack(tiny_full_attention("dream"), "f32")
    prompt = ["run", str(folder), "the cat", "--raw", "--max-new-tokens", "8"]
    eps = ["--steps", "8", "--eps", "0.001", "--confidence", "entropy", "--block-length", "8"]
    assert main([*prompt, *eps, "--cache", "none", "--confidence-temperature", "0.1"]) == 0
    assert capsys.readouterr().err.rstrip().endswith("after a prompt of 5")
    assert main([*prompt, "--factor", "1.0", "--stop-penalty", "2", "--cache", "prefix"]) == 0
    capsys.readouterr()
    assert main([*prompt, "--eps", "0.1"]) == 2
    assert "eps needs steps" in capsys.readouterr().err


@pytest.mark.parametrize("recipe", ["int8", "int4"])
@pytest.mark.parametrize("family", FAMILIES)
def test_text_in_text_out(
    tiny_full_attention: Any, tmp_path: Path, family: str, recipe: str
) -> None:
    """Through the face: drafts as wide as what is left of the canvas, and the same text as ids."""
    export_checkpoint(tiny_full_attention(family).folder, tmp_path / "out", recipe=recipe)
    asked: dict[str, Any] = {"max_new_tokens": 20, "block_length": 8}
    with clover_edge.load(tmp_path / "out", threads=1) as model:
        events = list(model.stream("the cat and the", **asked))
        done = events[-1].result
        again = model.generate("the cat and the", **asked)
        assert done.text == again.text and done.token_ids == again.token_ids
        assert done.counters.prefill_tps == 0 and done.counters.forward_passes > 0
        widths: dict[int, set[int]] = {}
        for event in events:
            if isinstance(event, clover_edge.DraftEvent):
                widths.setdefault(event.block, set()).add(len(event.states))
        assert all(found == {(8, 8, 4)[block]} for block, found in widths.items()), widths
        chat = [{"role": "user", "content": "Hello"}]
        assert model.chat(chat, max_new_tokens=8).counters.tokens > 0
        limit = model.spec["max_positions"]
        with pytest.raises(ContextLengthError, match=f"the model has {limit}"):
            model.generate("the cat", max_new_tokens=limit)
