"""What the ONNX export refuses, before anything is written."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from onnx_models import CASES
from tiny_canvas import make_canvas
from tiny_drafter import make_drafter

from clover_edge.errors import (
    ArgumentError,
    CheckpointError,
    ExportError,
    ModelFormatError,
    UnsupportedModelError,
)
from clover_edge.export import export_checkpoint, export_onnx
from clover_edge.export.cli import main

Make = Callable[..., Any]


def untouched(folder: Path, *names: str) -> None:
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)


@pytest.mark.parametrize(
    "field, value",
    [
        ("noise", "uniform"),
        ("self_conditioning_intermediate", 64),
        ("drafts_for_layers", [0, 2]),
        ("delete_token_id", 7),
        ("coreset_size", 4),
        ("layer_scales", True),
        ("head_dims", [16, 32]),
        ("values_from_keys", [1, 0]),
        ("router_norm", True),
        ("ffn_types", ["dense_and_experts"]),
        ("activation", "gelu_tanh"),
        ("a_field_of_tomorrow", 1),
    ],
)
def test_fields(field: str, value: Any) -> None:
    pytest.importorskip("onnx")
    from clover_edge.export.onnx import read_spec

    spec = {"layer_types": ["attention"], "hidden_size": 8, "vocab_size": 9, "rms_eps": 1e-6}
    read_spec({**spec, "ffn_types": ["experts"]})
    with pytest.raises(UnsupportedModelError, match=f"spec: {field} .*not supported by --format"):
        read_spec({**spec, field: value})


def test_windows_of_blocks() -> None:
    from clover_edge.export.onnx import read_spec

    spec = {"layer_types": ["attention"], "hidden_size": 8, "vocab_size": 9, "rms_eps": 1e-6}
    read_spec({**spec, "windows": [4]})
    with pytest.raises(UnsupportedModelError, match="spec: windows"):
        read_spec({**spec, "windows": [4], "mask": "block"})


@pytest.mark.parametrize("make, field", [(make_canvas, "noise"), (make_drafter, "drafts_for")])
def test_families(tmp_path: Path, make: Callable[[Path], Any], field: str) -> None:
    """A checkpoint is refused before it is packed, and a packed folder."""
    pytest.importorskip("onnx")
    make(tmp_path / "in")
    with pytest.raises(UnsupportedModelError, match=field):
        export_onnx(tmp_path / "in", tmp_path / "out", recipe="f32")
    untouched(tmp_path, "in")
    export_checkpoint(tmp_path / "in", tmp_path / "packed", recipe="f32")
    with pytest.raises(UnsupportedModelError, match=field):
        export_onnx(tmp_path / "packed", tmp_path / "out")
    untouched(tmp_path, "in", "packed")


def test_without_the_package(
    packed: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    source = packed("sdar", "f32")
    for each in (source, source.parent / "in"):
        with pytest.raises(ExportError, match=r"pip install 'clover-edge\[onnx\]'"):
            export_onnx(each, tmp_path / "out")
    assert main([str(source), "-o", str(tmp_path / "out"), "--format", "onnx"]) == 1
    assert "clover-edge[onnx]" in capsys.readouterr().err
    untouched(tmp_path)


def test_arguments(packed: Make, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    source = packed("sdar", "f32")
    with pytest.raises(ArgumentError, match="is packed already: recipe, method does not apply"):
        export_onnx(source, tmp_path / "out", recipe="int4", method="hqq")
    with pytest.raises(ArgumentError, match=r"activations must be .*, not 'bf16'"):
        export_onnx(source, tmp_path / "out", activations="bf16")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("")
    with pytest.raises(ExportError, match="is not empty"):
        export_onnx(source, tmp_path / "out")
    untouched(tmp_path, "out")
    untouched(tmp_path / "out", "mine")
    export_onnx(source, tmp_path / "graphs")
    with pytest.raises(ArgumentError, match="is an ONNX folder already"):
        export_onnx(tmp_path / "graphs", tmp_path / "new")
    with pytest.raises(CheckpointError, match="does not exist"):
        export_onnx(tmp_path / "nothing", tmp_path / "new")


def test_damaged_source(packed: Make, tmp_path: Path) -> None:
    """What the core would refuse to open is refused here."""
    pytest.importorskip("onnx")
    shutil.copytree(packed("sdar", "f32"), tmp_path / "in")
    path = tmp_path / "in" / "config.json"
    config = json.loads(path.read_text())
    config["clover_edge"]["spec"]["hidden_size"] += 32
    path.write_text(json.dumps(config))
    with pytest.raises(ModelFormatError, match="has shape"):
        export_onnx(tmp_path / "in", tmp_path / "out")
    untouched(tmp_path, "in")


def test_a_failure_leaves_nothing(
    packed: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnx")

    def stop(done: int, total: int, name: str) -> None:
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export_onnx(packed("sdar", "f32"), tmp_path / "out", progress=stop)
    untouched(tmp_path)


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--format", "onnx", "--int4", "--resume"], "--resume is not of --format onnx"),
        (["--format", "onnx", "--int4", "--report"], "--report is not of --format onnx"),
        (["--format", "onnx"], "one of --int4"),
        (["--int4", "--activations", "core"], "--activations is of --format onnx"),
    ],
)
def test_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    pytest.importorskip("onnx")
    CASES["sdar"](tmp_path / "in")
    with pytest.raises(SystemExit) as ended:
        main([str(tmp_path / "in"), "-o", str(tmp_path / "out"), *arguments])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
    untouched(tmp_path, "in")


def test_command(packed: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a packed folder: a dry run, the folder, and options that would pack it again."""
    pytest.importorskip("onnx")
    source, out = str(packed("sdar", "int4")), str(tmp_path / "out")
    assert main([source, "--format", "onnx", "--dry-run", "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    untouched(tmp_path)
    assert main([source, "-o", out, "--format", "onnx", "--int4", "--threads", "1"]) == 1
    assert "is packed already: --threads, --int4 does not apply" in capsys.readouterr().err
    untouched(tmp_path)
    assert main([source, "-o", out, "--format", "onnx", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == planned
    assert planned["activations"] == "int8"
    size = (tmp_path / "out" / "model.onnx.data").stat().st_size
    assert size == planned["data_bytes"]


def test_command_of_a_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnx")
    CASES["sdar"](tmp_path / "in")
    asked = [str(tmp_path / "in"), "--format", "onnx", "--int4", "--activations", "core"]
    assert main([*asked, "--dry-run"]) == 0
    untouched(tmp_path, "in")
    assert main([*asked, "-o", str(tmp_path / "out")]) == 0
    untouched(tmp_path, "in", "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["clover_edge"]["activations"] == "core"
    assert config["clover_edge"]["recipe"] == "int4"
    assert "bytes in" in capsys.readouterr().err
