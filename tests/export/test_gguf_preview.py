"""A GGUF file of Clover has lost its preview tensors: autoregressive alone, or with them from
elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_gguf
from tiny_clover import special_ids, write_checkpoint_files

import clover_edge
from clover_edge.errors import ArgumentError, CheckpointError, UnsupportedModelError
from clover_edge.export import export_checkpoint
from clover_edge.export.cli import main

pytest.importorskip("gguf", reason="GGUF files need the extra: gguf")

IDS = [5, 71, 8, 130, 250, 3, 3, 99]


@pytest.fixture(scope="module")
def clover(tiny: Any) -> Any:
    return tiny(overrides={"coreset_size": 4})


@pytest.fixture(scope="module")
def gguf_file(clover: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "clover.gguf"
    keys = tiny_gguf.hybrid_keys(clover.config)
    tiny_gguf.write_gguf(path, "clover-moe", keys, tiny_gguf.hybrid(clover.tensors, clover.config))
    return path


def preview_tensors(clover: Any) -> dict[str, np.ndarray]:
    return {
        f"model.language_model.{name}": value
        for name, value in clover.tensors.items()
        if name.endswith(tiny_gguf.PREVIEW)
    }


def spec(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "config.json").read_text())["clover_edge"]["spec"]
    return found


def assert_close(got: np.ndarray, wanted: np.ndarray) -> None:
    assert np.abs(got - wanted).max() <= 1e-5 * np.abs(wanted).max()


def test_it_exports_as_an_autoregressive_model(
    clover: Any, gguf_file: Path, tmp_path: Path, pack: Any, open_core: Any
) -> None:
    report = export_checkpoint(gguf_file, tmp_path / "out", recipe="f32")
    assert any("no preview tensors" in line for line in report.plan.warnings)
    assert spec(tmp_path / "out")["preview"] is False
    core, whole = open_core(tmp_path / "out"), open_core(pack(clover, "f32"))
    state, other = core.new_state(64), whole.new_state(64)
    assert_close(core.commit(state, IDS, logits="all"), whole.commit(other, IDS, logits="all"))
    with pytest.raises(UnsupportedModelError, match="autoregressive"):
        core.preview(state, [1, 2, 3])
    with pytest.raises(UnsupportedModelError, match="autoregressive"):
        core.generate(state, [1, 2], {"mode": "diffusion", "max_new_tokens": 4})
    result = core.generate(state, [1, 2], {"mode": "ar", "max_new_tokens": 4})
    assert len(result["ids"]) == 4


def test_the_warning_is_printed(
    gguf_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(gguf_file), "-o", str(tmp_path / "out"), "--int4"]) == 0
    printed = capsys.readouterr().err
    assert "warning:" in printed and "--preview-tensors FOLDER" in printed


@pytest.mark.parametrize("whole", [True, False], ids=["the release", "the tensors alone"])
def test_preview_tensors_from_a_folder(
    clover: Any, gguf_file: Path, tmp_path: Path, pack: Any, open_core: Any, whole: bool
) -> None:
    folder = clover.folder
    if not whole:
        folder = tmp_path / "side"
        folder.mkdir()
        write_checkpoint_files(folder, preview_tensors(clover))
        keys = {"mask_token_id": clover.config["mask_token_id"], "coreset_size": 4}
        (folder / "config.json").write_text(json.dumps({"text_config": keys}))
    out = tmp_path / "out"
    arguments = [gguf_file, "-o", out, "--f32", "--preview-tensors", folder]
    assert main([str(argument) for argument in arguments]) == 0
    original = spec(pack(clover, "f32"))
    # no tokenizer in this file, so padding is not known; norms are 1 + w already
    assert spec(out) == {**original, "valid_vocab": 320, "norm_offset": 0.0}
    core, complete = open_core(out), open_core(pack(clover, "f32"))
    state, other = core.new_state(64), complete.new_state(64)
    core.commit(state, IDS)
    complete.commit(other, IDS)
    block = [special_ids(320)["<|mask|>"]] * 6 + [7, 9]
    assert_close(core.preview(state, block), complete.preview(other, block))
    if whole:
        generation = json.loads((out / "config.json").read_text())["clover_edge"]["generation"]
        assert generation["threshold"] == 0.9 and len(generation["eos_token_id"]) == 2


def test_a_folder_without_them_is_refused(gguf_file: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match="holds no safetensors"):
        export_checkpoint(gguf_file, tmp_path / "out", preview_tensors=tmp_path / "empty")
    write_checkpoint_files(tmp_path / "empty", {"a": np.ones(3, np.float32)})
    with pytest.raises(CheckpointError, match=r"conv_right_weight.*are in none"):
        export_checkpoint(gguf_file, tmp_path / "out", preview_tensors=tmp_path / "empty")
    assert not (tmp_path / "out").exists()


def test_one_of_them_missing_is_refused(clover: Any, gguf_file: Path, tmp_path: Path) -> None:
    (tmp_path / "side").mkdir()
    tensors = preview_tensors(clover)
    del tensors["model.language_model.layers.2.linear_attn.bd_softmax_history_c"]
    write_checkpoint_files(tmp_path / "side", tensors)
    (tmp_path / "side" / "config.json").write_text('{"mask_token_id": 3}')
    with pytest.raises(CheckpointError, match=r"layers\.2.*history_c.*missing"):
        export_checkpoint(gguf_file, tmp_path / "out", preview_tensors=tmp_path / "side")


def test_the_python_face_says_so(clover: Any, gguf_file: Path, tmp_path: Path) -> None:
    export_checkpoint(gguf_file, tmp_path / "out")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "out" / name).write_bytes((clover.folder / name).read_bytes())
    with clover_edge.load(tmp_path / "out") as model:
        assert len(model.generate([1, 2, 3], max_new_tokens=4).token_ids) <= 4
        with pytest.raises(ArgumentError, match=r"mode.*autoregressive"):
            model.generate([1, 2, 3], mode="diffusion")
