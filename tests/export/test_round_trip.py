"""Export of whole tiny checkpoints: values, names, layouts, side files."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracle.packed import read_packed
from tiny_clover import make_checkpoint, write_checkpoint_files

from clover_edge.export import export_checkpoint
from clover_edge.quant import CODEBOOK, RECIPES

# max |difference| / max |source| of a matrix of random weights, by scheme; 0: exact (the source is
# bf16). The search clips: at 0.85 of the full step, 1 - 0.85 * 7/8 of an int4 element may be lost.
WORST = {"int8": 0.005, "int4": 0.26, "codebook4": 0.26, "int3": 0.48, "bf16": 0, "f32": 0}
KEPT = ("norm.weight", "mlp.gate.weight", "A_log", "dt_bias", "conv1d.weight", "in_proj_b.weight")
KEPT += ("in_proj_a.weight", "shared_expert_gate.weight", "conv_right_weight", "logit_scale")
KEPT += ("history_bias", "history_c")


def weights(folder: Path) -> dict[str, str]:
    """A digest of every weight file and of config.json."""
    files = [*folder.glob("*.safetensors"), folder / "config.json"]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def assert_close(tensors: dict[str, np.ndarray], packed: Path, recipe: str) -> None:
    got, _ = read_packed(packed)
    assert set(got) == set(tensors)
    for name, source in tensors.items():
        worst = np.abs(got[name].reshape(source.shape) - source).max() / np.abs(source).max()
        limit = WORST[RECIPES[recipe].classes["expert" if "mlp.experts." in name else "dense"]]
        assert worst <= (0 if name.endswith(KEPT) else limit), name


@pytest.mark.parametrize("group", [32, 64, 128])
@pytest.mark.parametrize("recipe", RECIPES)
def test_every_tensor_comes_back(tiny: Any, tmp_path: Path, recipe: str, group: int) -> None:
    widths = {"shared_expert_intermediate_size": 128, "moe_intermediate_size": 128}
    source = tiny(hidden=128, layers=5, overrides=widths)
    export_checkpoint(source.folder, tmp_path / "out", recipe=recipe, group_size=group)
    assert_close(source.tensors, tmp_path / "out", recipe)


@pytest.mark.parametrize(
    "overrides",
    [
        {"vocab_size": 333},
        {"moe_intermediate_size": 48, "linear_num_value_heads": 6, "num_experts": 5},
        {"attn_output_gate": False},
        {"shared_expert_intermediate_size": 0},
        {"tie_word_embeddings": True},
        {"linear_conv_kernel_dim": 3},
        {"layer_types": ["full_attention", "linear_attention"], "num_hidden_layers": 2},
        {"num_experts_per_tok": 1, "num_experts": 1},
    ],
    ids=lambda overrides: next(iter(overrides)),
)
def test_unusual_shapes_come_back(tmp_path: Path, overrides: dict[str, Any]) -> None:
    tensors = make_checkpoint(tmp_path / "in", overrides=overrides, shards=1)
    export_checkpoint(tmp_path / "in", tmp_path / "out", recipe="int4")
    got, _ = read_packed(tmp_path / "out")
    assert set(got) == set(tensors)
    assert_close(tensors, tmp_path / "out", "int4")


def test_columns_that_no_group_divides_stay_bf16_and_the_report_says_so(tmp_path: Path) -> None:
    overrides = {"moe_intermediate_size": 40}
    tensors = make_checkpoint(tmp_path / "in", overrides=overrides)
    report = export_checkpoint(tmp_path / "in", tmp_path / "out")
    parts = report.as_dict()["tensors"]["layers.0.experts"]["parts"]
    assert [parts[p]["scheme"] for p in ("gate", "up", "down")] == ["int4", "int4", "bf16"]
    assert any("layers.0.experts.down" in line and "40" in line for line in report.plan.warnings)
    got, _ = read_packed(tmp_path / "out")
    name = "layers.0.mlp.experts.down_proj"
    assert (got[name] == tensors[name]).all()


def test_experts_that_int3_does_not_fit_are_int4_and_the_report_says_so(tmp_path: Path) -> None:
    tensors = make_checkpoint(tmp_path / "in", overrides={"moe_intermediate_size": 96})
    report = export_checkpoint(tmp_path / "in", tmp_path / "out", recipe="int4-small")
    parts = report.as_dict()["tensors"]["layers.0.experts"]["parts"]
    assert [parts[p]["scheme"] for p in ("gate", "up", "down")] == ["int3", "int3", "int4"]
    assert [parts[p]["group"] for p in ("gate", "up", "down")] == [64, 64, 32]
    wanted = "layers.0.experts.down: 96 columns are no multiple of 64; stored as int4"
    assert wanted in report.plan.warnings
    assert_close(tensors, tmp_path / "out", "int4-small")


def test_a_codebook_stands_beside_every_tensor_that_uses_it(tiny: Any, tmp_path: Path) -> None:
    export_checkpoint(tiny().folder, tmp_path / "out", recipe="codebook4")
    tensors = json.loads((tmp_path / "out" / "config.json").read_text())["clover_edge"]["tensors"]
    for part in tensors["layers.1.experts"]["parts"].values():
        assert (part["scheme"], part["codebook"]) == ("codebook4", list(CODEBOOK))
    assert tensors["embed"]["scheme"] == "int8" and "codebook" not in tensors["embed"]


def test_both_expert_namings_give_the_same_bytes(tiny: Any, tmp_path: Path) -> None:
    make_checkpoint(tmp_path / "in", fused_experts=False)
    export_checkpoint(tmp_path / "in", tmp_path / "separate")
    export_checkpoint(tiny().folder, tmp_path / "fused")
    assert weights(tmp_path / "separate") == weights(tmp_path / "fused")


@pytest.mark.parametrize("shards", [1, 5])
def test_prefix_nesting_and_shards_change_no_tensor(tiny: Any, tmp_path: Path, shards: int) -> None:
    make_checkpoint(tmp_path / "in", prefix="model.language_model.", nested=True, shards=shards)
    export_checkpoint(tmp_path / "in", tmp_path / "nested")
    export_checkpoint(tiny().folder, tmp_path / "flat")
    nested, flat = weights(tmp_path / "nested"), weights(tmp_path / "flat")
    assert nested.pop("config.json") != flat.pop("config.json")
    assert nested == flat
    ours = [json.loads((tmp_path / n / "config.json").read_text()) for n in ("nested", "flat")]
    assert ours[0]["clover_edge"] == ours[1]["clover_edge"]


def test_the_same_checkpoint_gives_the_same_folder(tiny: Any, tmp_path: Path) -> None:
    for name in ("one", "two"):
        export_checkpoint(tiny().folder, tmp_path / name)
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert files == sorted(path.name for path in (tmp_path / "two").iterdir())
    for name in files:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_f16_and_f32_sources_are_read(tmp_path: Path, dtype: str) -> None:
    tensors = make_checkpoint(tmp_path / "in", dtype=dtype)
    export_checkpoint(tmp_path / "in", tmp_path / "out", recipe="f32")
    assert_close(tensors, tmp_path / "out", "f32")


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("conv1d.weight", lambda s: (s[0], s[-1])),
        ("conv_right_weight", lambda s: (s[0], 1, s[1])),
        ("conv_right_weight", lambda s: (s[0], s[1], 1)),
        ("bd_softmax_history_c", lambda s: (1, s[0], 1)),
    ],
)
def test_singleton_axes_are_accepted(
    tiny: Any, tmp_path: Path, name: str, shape: Callable[[tuple[int, ...]], tuple[int, ...]]
) -> None:
    folder = tmp_path / "in"
    shutil.copytree(tiny(shards=1).folder, folder)
    stored = {}
    for key, value in tiny(shards=1).tensors.items():
        new = value.reshape(shape(value.shape)) if key.endswith(name) else value
        stored[key if key.startswith("lm_head") else "model." + key] = new
    write_checkpoint_files(folder, stored)
    export_checkpoint(folder, tmp_path / "out", recipe="f32")
    assert_close(tiny(shards=1).tensors, tmp_path / "out", "f32")


def test_parts_of_a_release_that_the_text_model_does_not_use_are_ignored(
    tiny: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    shutil.copytree(tiny(shards=1).folder, folder)
    extra = {name: np.ones(4, np.float32) for name in ("mtp.norm.weight", "model.visual.x.bias")}
    named = {
        key if key.startswith("lm_head") else "model." + key: value
        for key, value in tiny(shards=1).tensors.items()
    }
    write_checkpoint_files(folder, {**named, **extra})
    export_checkpoint(folder, tmp_path / "out")
    assert_close(tiny(shards=1).tensors, tmp_path / "out", "int4")


def test_side_files_are_copied_and_the_source_configuration_is_kept(
    tiny: Any, tmp_path: Path
) -> None:
    export_checkpoint(tiny().folder, tmp_path / "out")
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        assert (tmp_path / "out" / name).read_bytes() == (tiny().folder / name).read_bytes()
    assert (tmp_path / "out" / "chat_template.jinja").exists()
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    ours = config.pop("clover_edge")
    assert config == tiny().config
    assert (ours["format_version"], ours["family"], ours["recipe"]) == (1, "clover", "int4")
    assert ours["group_size"] == 32


def test_report_measures_every_tensor(tiny: Any, tmp_path: Path) -> None:
    report = export_checkpoint(tiny().folder, tmp_path / "out")
    written = json.loads((tmp_path / "out" / "export_report.json").read_text())
    assert written == report.as_dict()
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert set(written["tensors"]) == set(config["clover_edge"]["tensors"])
    digest = hashlib.sha256((tiny().folder / "config.json").read_bytes()).hexdigest()
    assert written["source"]["config_sha256"] == digest
    assert written["tensors"]["layers.0.norm1"]["relative_error"] == 0
    assert 43 < written["tensors"]["embed"]["sqnr_db"] < 48
    gate = written["tensors"]["layers.0.experts"]["parts"]["gate"]
    assert 20 < gate["sqnr_db"] < 24 and 0 < gate["relative_error"] < 0.26
    assert (
        sum(row["bytes"] for row in written["classes"].values())
        == (written["totals"]["tensor_bytes"])
    )


def test_progress_ends_at_the_total(tiny: Any, tmp_path: Path) -> None:
    seen: list[tuple[int, int, str]] = []
    report = export_checkpoint(
        tiny().folder, tmp_path / "out", progress=lambda *event: seen.append(event)
    )
    assert seen[-1][0] == seen[-1][1] == report.plan.parameters
    assert [done for done, _, _ in seen] == sorted(done for done, _, _ in seen)
