"""ONNX folders as load(), the command line and the loader see them: what they say, what is refused.
None of it needs a graph that computes."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import clover_edge
from clover_edge.cli.main import main
from clover_edge.errors import ArgumentError, ModelFormatError
from clover_edge.loader import read_folder

GRAPHS = {"preview": "preview.onnx", "commit": "commit.onnx", "head": "head.onnx"}
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def packed(tiny: Open, pack: Open) -> Path:
    folder: Path = pack(tiny(seed=3), "f32")
    return folder


@pytest.fixture
def folder(packed: Path, tmp_path: Path) -> Path:
    """The description and the tokenizer of an ONNX folder, whose graphs are no graphs."""
    out = tmp_path / "onnx"
    out.mkdir()
    for path in packed.iterdir():
        if "safetensors" not in path.name:
            shutil.copy(path, out)
    for name in (*GRAPHS.values(), "model.onnx.data"):
        (out / name).write_bytes(b"nothing")
    describe(out, format="onnx", graphs=GRAPHS, tensors=None)
    return out


def describe(folder: Path, **changes: Any) -> None:
    """Fields of config.json's own section; None takes one away."""
    config = json.loads((folder / "config.json").read_text())
    ours = {**config["clover_edge"], **changes}
    ours = {name: value for name, value in ours.items() if value is not None}
    (folder / "config.json").write_text(json.dumps({**config, "clover_edge": ours}))


def test_what_it_says(folder: Path) -> None:
    found = read_folder(folder)
    assert found.graphs == GRAPHS
    assert [path.name for path in found.files] == [*GRAPHS.values(), "model.onnx.data"]
    assert not found.table and not found.entries


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"format": "gguf"}, "clover_edge.format: 'gguf' is neither packed nor onnx"),
        ({"graphs": None}, "clover_edge.graphs: is missing"),
        ({"graphs": {"commit": "commit.onnx"}}, "are commit, not commit, head, preview"),
        ({"graphs": {**GRAPHS, "head": "../head.onnx"}}, "graphs.head: '../head.onnx' is no plain"),
        ({"graphs": {**GRAPHS, "head": "other.onnx"}}, "other.onnx: file: does not exist"),
    ],
)
def test_descriptions_that_do_not_fit(folder: Path, changes: dict[str, Any], said: str) -> None:
    describe(folder, **changes)
    with pytest.raises(ModelFormatError, match=said):
        read_folder(folder)


def test_the_wrong_backend_says_what_to_do(folder: Path, packed: Path) -> None:
    with pytest.raises(ModelFormatError, match="backend='onnxruntime'"):
        clover_edge.load(folder)
    with pytest.raises(ModelFormatError, match=r"clover-export .* --format onnx"):
        clover_edge.load(packed, backend="onnxruntime")


def test_arguments_that_do_not_fit(folder: Path, packed: Path) -> None:
    for named, arguments in {
        "backend: 'tpu' is none of": {"backend": "tpu"},
        "providers: .*: are for backend": {"providers": ["CPUExecutionProvider"]},
        "drafter: ": {"backend": "onnxruntime", "drafter": packed},
        "mmap: False": {"backend": "onnxruntime", "mmap": False},
    }.items():
        with pytest.raises(ArgumentError, match=named):
            clover_edge.load(folder, **arguments)


def test_without_onnxruntime(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ArgumentError, match=r"pip install 'clover-edge\[onnx\]'"):
        clover_edge.load(folder, backend="onnxruntime")


def test_providers_and_graphs_that_are_none(folder: Path) -> None:
    pytest.importorskip("onnxruntime", reason="needs extra onnx")
    with pytest.raises(ArgumentError, match=r"'NoSuchProvider' is not in this build .*CPU"):
        clover_edge.load(folder, backend="onnxruntime", providers=["NoSuchProvider"])
    for none in ([], "CPUExecutionProvider"):
        with pytest.raises(ArgumentError, match="is no list of names"):
            clover_edge.load(folder, backend="onnxruntime", providers=none)
    with pytest.raises(ModelFormatError, match=r"preview\.onnx: graph: onnxruntime: "):
        clover_edge.load(folder, backend="onnxruntime")


def test_a_spec_that_does_not_fit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The core's own words, and the file that they are about."""
    from clover_edge.backends import onnxruntime, open_onnxruntime

    class Nothing:
        def __init__(self, *_: Any) -> None:
            self.providers = ("CPUExecutionProvider",)

        forward = head = None

    monkeypatch.setattr(onnxruntime, "Graphs", Nothing)
    describe(folder, spec={**read_folder(folder).spec, "hidden_size": -1})
    with pytest.raises(ModelFormatError, match=r"config\.json: spec\.hidden_size: -1"):
        open_onnxruntime(read_folder(folder))


def test_inspect_and_doctor(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(folder)]) == 0
    assert "ONNX graphs, 28 bytes: preview.onnx" in capsys.readouterr().out
    assert main(["inspect", str(folder), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["format"], facts["graphs"]) == ("onnx", GRAPHS)
    pytest.importorskip("onnxruntime", reason="needs extra onnx")
    assert main(["doctor", str(folder)]) == 0
    assert "CPUExecutionProvider" in capsys.readouterr().out


def test_doctor_without_onnxruntime(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clover_edge.machine.find_spec", lambda name: None)
    assert main(["doctor", str(folder)]) == 1
    assert "clover-edge[onnx]" in capsys.readouterr().out


def test_commands_name_the_backend(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(folder), "hello"]) == 1
    assert "--backend onnxruntime" in capsys.readouterr().err
    assert main(["run", str(folder), "hello", "--provider", "CPUExecutionProvider"]) == 2
    assert "are for backend 'onnxruntime'" in capsys.readouterr().err
