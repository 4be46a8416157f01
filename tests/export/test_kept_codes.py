"""Whole quantised checkpoints to packed folders: what is kept, what is rounded anew, what the
report says."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import quantised_layouts as layouts
import tiny_gguf
from oracle.packed import read_packed

from clover_edge.export import export_checkpoint
from clover_edge.export.cli import main

GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": True}
PACKED = {"quant_method": "compressed-tensors", "format": "pack-quantized"}


class Quantised:
    """A tiny Clover of which attention, DeltaNet and one layer's experts are quantised."""

    def __init__(self, tiny: Any, folder: Path) -> None:
        self.source = tiny(hidden=128, shards=1, fused_experts=False)
        self.folder = folder
        shutil.copytree(self.source.folder, folder, ignore=shutil.ignore_patterns("*.safetensors"))
        self.rng = np.random.default_rng(0)
        self.parts: layouts.Parts = {}
        self.values: dict[str, np.ndarray] = {}
        for name, value in self.source.tensors.items():
            full = name if name.startswith("lm_head") else f"model.{name}"
            stem = full.removesuffix(".weight")
            if "mlp.experts.gate_up_proj" in name:
                stem = stem.removesuffix("gate_up_proj")
                for e, pair in enumerate(value):
                    gate, up = np.split(pair, 2)
                    self.parts[f"{stem}{e}.gate_proj.weight"] = ("BF16", gate)
                    self.parts[f"{stem}{e}.up_proj.weight"] = ("BF16", up)
            elif "mlp.experts.down_proj" in name:
                stem = stem.removesuffix("down_proj")
                for e, down in enumerate(value):
                    self.parts[f"{stem}{e}.down_proj.weight"] = ("BF16", down)
            else:
                self.parts[full] = ("BF16", value)

    def draw(self, name: str, group: int = 32, bits: int = 4) -> tuple[np.ndarray, np.ndarray]:
        """Codes and scales in place of a matrix; takes it out of the folder."""
        n, k = self.parts.pop(f"{name}.weight")[1].shape
        q = self.rng.integers(1, 1 << bits, (n, k))
        scales = np.exp2(self.rng.uniform(-8, -4, (n, k // group))).astype(np.float16)
        self.values[f"{name}.weight"] = layouts.values(
            q, scales, np.full(scales.shape, 1 << bits - 1)
        )
        return q, scales

    def middle(self, scales: np.ndarray, bits: int = 4) -> np.ndarray:
        return np.full(scales.shape, 1 << (bits - 1))

    def write(self, config: dict[str, Any], key: str = "quantization_config") -> None:
        layouts.write(self.folder / "model.safetensors", self.parts)
        path = self.folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), key: config}))

    def check(self, out: Path) -> None:
        """The drawn matrices came back bit for bit."""
        got, _ = read_packed(out)
        for name, wanted in self.values.items():
            assert (got[name.removeprefix("model.")] == wanted).all(), name


MATRICES = [
    *(f"model.layers.3.self_attn.{x}_proj" for x in "qkvo"),
    *(f"model.layers.0.linear_attn.{x}" for x in ("in_proj_qkv", "in_proj_z", "out_proj")),
]


@pytest.fixture
def quantised(tiny: Any, tmp_path: Path) -> Quantised:
    return Quantised(tiny, tmp_path / "in")


def entry(out: Path, name: str) -> dict[str, Any]:
    tensors: dict[str, Any] = json.loads((out / "export_report.json").read_text())["tensors"]
    found: dict[str, Any] = tensors[name]
    return found


@pytest.mark.parametrize("group", [32, 64, 128])
@pytest.mark.parametrize("layout", ["gptq", "compressed", "mlx", "awq"])
def test_codes_are_kept_though_the_recipe_says_int8(
    quantised: Quantised, tmp_path: Path, layout: str, group: int
) -> None:
    config: dict[str, Any] = {**GPTQ, "group_size": group, "quant_method": layout}
    for base in MATRICES:
        q, scales = quantised.draw(base, group)
        middle = quantised.middle(scales)
        if layout == "gptq":
            quantised.parts |= layouts.gptq(base, q, scales, middle)
        elif layout == "awq":
            quantised.parts |= layouts.awq(base, q, scales, middle)
        elif layout == "compressed":
            quantised.parts |= layouts.compressed(base, q, scales)
            config = PACKED
        else:
            biases = -8 * scales.astype(np.float32)
            quantised.parts |= layouts.mlx(base, q, scales, biases, 4, "F32")
            config = {"group_size": group, "bits": 4}
    quantised.write(config, "quantization" if layout == "mlx" else "quantization_config")
    report = export_checkpoint(quantised.folder, tmp_path / "out", recipe="int8")
    quantised.check(tmp_path / "out")
    for name in (
        "layers.3.attn.in",
        "layers.3.attn.out",
        "layers.0.delta.in",
        "layers.0.delta.out",
    ):
        found = entry(tmp_path / "out", name)
        assert (found["origin"], found["scheme"], found["group"]) == ("kept", "int4", group), name
        assert (found["relative_error"], found["sqnr_db"]) == (0, None)
    assert report.plan.origins["kept"] == 4 and "requantised" not in report.plan.origins
    assert entry(tmp_path / "out", "embed")["origin"] == "from float"


def test_a_matrix_whose_pieces_differ_takes_what_holds_all(
    quantised: Quantised, tmp_path: Path
) -> None:
    """q in groups of 64, k in groups of 32, v in 8 bits: attn.in is int8, group 32."""
    for base, group, bits in ((MATRICES[0], 64, 4), (MATRICES[1], 32, 4), (MATRICES[2], 128, 8)):
        q, scales = quantised.draw(base, group, bits)
        scales[::3] *= -1
        wanted = layouts.values(q, scales, quantised.middle(scales, bits))
        quantised.values[f"{base}.weight"] = wanted
        quantised.parts |= layouts.compressed(base, q, scales, bits=bits)
    quantised.write(PACKED)
    export_checkpoint(quantised.folder, tmp_path / "out", recipe="int4")
    quantised.check(tmp_path / "out")
    found = entry(tmp_path / "out", "layers.3.attn.in")
    assert (found["origin"], found["scheme"], found["group"]) == ("kept", "int8", 32)


def test_a_matrix_of_which_a_piece_is_float_is_rounded_anew(
    quantised: Quantised, tmp_path: Path
) -> None:
    q, scales = quantised.draw(MATRICES[0])
    quantised.parts |= layouts.gptq(MATRICES[0], q, scales, quantised.middle(scales))
    quantised.write(GPTQ)
    export_checkpoint(quantised.folder, tmp_path / "out", recipe="int8")
    found = entry(tmp_path / "out", "layers.3.attn.in")
    assert (found["origin"], found["scheme"]) == ("requantised", "int8")
    got, _ = read_packed(tmp_path / "out")
    wanted = quantised.values[f"{MATRICES[0]}.weight"]
    error = np.abs(got[MATRICES[0].removeprefix("model.") + ".weight"] - wanted).max()
    assert 0 < error < 0.005 * np.abs(wanted).max()


@pytest.mark.parametrize(("recipe", "kept"), [("int8", True), ("int4-all", False)])
def test_more_bits_than_the_recipe_spends_are_not_kept(
    quantised: Quantised, tmp_path: Path, recipe: str, kept: bool
) -> None:
    q, scales = quantised.draw(MATRICES[3], bits=8)
    quantised.parts |= layouts.compressed(MATRICES[3], q, scales, bits=8)
    quantised.write(PACKED)
    export_checkpoint(quantised.folder, tmp_path / "out", recipe=recipe)
    found = entry(tmp_path / "out", "layers.3.attn.out")
    assert found["origin"] == ("kept" if kept else "requantised")
    assert found["scheme"] == ("int8" if kept else "int4")
    if kept:
        quantised.check(tmp_path / "out")


@pytest.mark.parametrize("recipe", ["f32", "bf16"])
def test_float_recipes_hold_the_values(quantised: Quantised, tmp_path: Path, recipe: str) -> None:
    q, scales = quantised.draw(MATRICES[3])
    quantised.parts |= layouts.gptq(MATRICES[3], q, scales, quantised.middle(scales))
    quantised.write(GPTQ)
    export_checkpoint(quantised.folder, tmp_path / "out", recipe=recipe)
    found = entry(tmp_path / "out", "layers.3.attn.out")
    assert (found["origin"], found["scheme"]) == ("dequantised", recipe)
    if recipe == "f32":
        quantised.check(tmp_path / "out")


def test_experts_are_kept_when_all_of_a_layer_fit(quantised: Quantised, tmp_path: Path) -> None:
    stem = "model.layers.1.mlp.experts."
    for part in ("gate", "up", "down"):
        for e in range(16):
            base = f"{stem}{e}.{part}_proj"
            group = 64 if e == 3 and part != "down" else 32
            q, scales = quantised.draw(base, group)
            wide = scales.astype(np.float32)
            if (part, e) == ("up", 7):
                wide[0, 0] = 1e-9  # no float16
            quantised.parts |= layouts.compressed(base, q, wide, scale_dtype="F32")
    drawn, quantised.values = quantised.values, {}
    quantised.write(PACKED)
    export_checkpoint(quantised.folder, tmp_path / "out", recipe="int4")
    parts = entry(tmp_path / "out", "layers.1.experts")["parts"]
    origins = {name: part["origin"] for name, part in parts.items()}
    assert origins == {"gate": "kept", "up": "requantised", "down": "kept"}
    got, _ = read_packed(tmp_path / "out")
    both, down = (got[f"layers.1.mlp.experts.{x}"] for x in ("gate_up_proj", "down_proj"))
    for e in range(16):
        assert (both[e, :64] == drawn[f"{stem}{e}.gate_proj.weight"]).all()
        assert (down[e] == drawn[f"{stem}{e}.down_proj.weight"]).all()


def test_mlx_expert_stacks_and_names(quantised: Quantised, tmp_path: Path) -> None:
    stem = "model.layers.1.mlp."
    for part in ("gate", "up", "down"):
        drawn = [quantised.draw(f"{stem}experts.{e}.{part}_proj") for e in range(16)]
        q, scales = (np.stack(x) for x in zip(*drawn, strict=True))
        base, biases = f"{stem}switch_mlp.{part}_proj", -8 * scales.astype(np.float32)
        quantised.parts |= layouts.mlx(base, q, scales, biases, 4, "F32")
    quantised.parts = {f"language_model.{name}": part for name, part in quantised.parts.items()}
    wanted, quantised.values = quantised.values, {}
    quantised.write({"group_size": 32, "bits": 4}, "quantization")
    export_checkpoint(quantised.folder, tmp_path / "out", recipe="int4")
    parts = entry(tmp_path / "out", "layers.1.experts")["parts"]
    assert [part["origin"] for part in parts.values()] == ["kept"] * 3
    got, _ = read_packed(tmp_path / "out")
    for e in range(16):
        down = got["layers.1.mlp.experts.down_proj"][e]
        assert (down == wanted[f"{stem}experts.{e}.down_proj.weight"]).all()


def test_gptq_in_a_pytorch_file(quantised: Quantised, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="reading .bin needs the extra: torch")
    for base in MATRICES:
        q, scales = quantised.draw(base)
        quantised.parts |= layouts.gptq(base, q, scales, quantised.middle(scales))
    quantised.write(GPTQ)
    (quantised.folder / "model.safetensors").unlink()
    dtypes = {"I32": np.int32, "F16": np.float16, "BF16": np.float32}
    tensors = {
        name: torch.from_numpy(np.ascontiguousarray(value, dtypes[dtype]))
        for name, (dtype, value) in quantised.parts.items()
    }
    torch.save(tensors, quantised.folder / "pytorch_model.bin")
    report = export_checkpoint(quantised.folder, tmp_path / "out", recipe="int8")
    quantised.check(tmp_path / "out")
    assert report.plan.origins["kept"] == 4


def test_summary_counts_origins(
    quantised: Quantised, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for base in MATRICES[:5]:
        q, scales = quantised.draw(base)
        quantised.parts |= layouts.gptq(base, q, scales, quantised.middle(scales))
    quantised.write(GPTQ)
    assert main([str(quantised.folder), "-o", str(tmp_path / "out"), "--int4", "--json"]) == 0
    printed = capsys.readouterr()
    origins = json.loads(printed.out)["origins"]
    assert (origins["kept"], origins["requantised"]) == (2, 1)
    assert f"2 kept, 1 requantised, {origins['from float']} from float" in printed.err


def test_gguf_keeps_what_fits(tiny: Any, tmp_path: Path) -> None:
    pytest.importorskip("gguf", reason="GGUF files need the extra: gguf")
    source = tiny(hidden=256)
    theirs = tiny_gguf.hybrid(source.tensors, source.config)
    kinds = {"exps.weight": "Q4_0", "attn_qkv.weight": "Q8_0", "attn_gate.weight": "Q8_0"}
    kinds |= {"ssm_out.weight": "Q4_0", "token_embd.weight": "Q8_0", "attn_q.weight": "Q5_0"}
    kinds |= {"attn_k.weight": "Q4_0", "attn_v.weight": "Q8_0", "attn_output.weight": "Q4_1"}
    keys = tiny_gguf.hybrid_keys(source.config)
    tiny_gguf.write_gguf(tmp_path / "x.gguf", "qwen35moe", keys, theirs, kinds=kinds)
    export_checkpoint(tmp_path / "x.gguf", tmp_path / "f32", recipe="f32")
    report = export_checkpoint(tmp_path / "x.gguf", tmp_path / "int4", recipe="int4")
    exact, _ = read_packed(tmp_path / "f32")
    got, _ = read_packed(tmp_path / "int4")
    rounded = {"layers.3.self_attn.o_proj.weight", "lm_head.weight"}
    rounded |= {name for name in got if "shared_expert." in name}
    for name, value in got.items():
        assert (value == exact[name]).all() == (name not in rounded), name
    schemes = {t.name: t.scheme.name for t in report.plan.tensors if hasattr(t, "scheme")}
    assert schemes["layers.0.delta.out"] == "int4" and schemes["layers.3.attn.in"] == "int8"
