"""PyTorch state dicts give the folder that safetensors give; hostile ones are refused."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from tiny_clover import to_bf16

from clover_edge.errors import CheckpointError, ExportError
from clover_edge.export import export_checkpoint


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch", reason="reading .bin needs the extra: torch")


@pytest.fixture
def folder(tiny: Any, tmp_path: Path) -> Path:
    """A checkpoint folder without its weights."""
    shutil.copytree(tiny().folder, tmp_path / "in", ignore=shutil.ignore_patterns("*.safetensors*"))
    return tmp_path / "in"


def state_dict(torch: Any, tiny: Any) -> dict[str, Any]:
    return {
        name if name.startswith("lm_head") else "model." + name: torch.from_numpy(
            to_bf16(value)
        ).view(torch.bfloat16)
        for name, value in tiny().tensors.items()
    }


def assert_same_folder(tiny: Any, folder: Path, out: Path) -> None:
    export_checkpoint(folder, out / "torch")
    export_checkpoint(tiny().folder, out / "safetensors")
    names = sorted(path.name for path in (out / "safetensors").iterdir())
    assert sorted(path.name for path in (out / "torch").iterdir()) == names
    for name in names:
        assert (out / "torch" / name).read_bytes() == (out / "safetensors" / name).read_bytes()


@pytest.mark.parametrize("name", ["pytorch_model.bin", "weights.pt", "last.pth"])
def test_single_file_gives_the_same_folder(
    torch: Any, tiny: Any, folder: Path, tmp_path: Path, name: str
) -> None:
    torch.save(state_dict(torch, tiny), folder / name)
    assert_same_folder(tiny, folder, tmp_path)


def test_state_dict_inside_a_training_checkpoint_is_found(
    torch: Any, tiny: Any, folder: Path, tmp_path: Path
) -> None:
    torch.save({"step": 7, "state_dict": state_dict(torch, tiny)}, folder / "pytorch_model.bin")
    assert_same_folder(tiny, folder, tmp_path)


def test_sharded_files_give_the_same_folder(
    torch: Any, tiny: Any, folder: Path, tmp_path: Path
) -> None:
    tensors = state_dict(torch, tiny)
    names = list(tensors)
    weight_map = {}
    for number, part in enumerate((names[:30], names[30:])):
        file = f"pytorch_model-{number + 1:05d}-of-00002.bin"
        torch.save({name: tensors[name] for name in part}, folder / file)
        weight_map.update(dict.fromkeys(part, file))
    index = folder / "pytorch_model.bin.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    assert_same_folder(tiny, folder, tmp_path)


def test_transposed_and_shared_storage_is_read_as_the_tensor_says(
    torch: Any, tiny: Any, folder: Path, tmp_path: Path
) -> None:
    tensors = state_dict(torch, tiny)
    name = "model.layers.0.linear_attn.out_proj.weight"
    tensors[name] = tensors[name].t().contiguous().t()
    torch.save(tensors, folder / "pytorch_model.bin")
    assert_same_folder(tiny, folder, tmp_path)


class _Harmful:
    def __reduce__(self) -> Any:
        return (print, ("this must not run",))


def test_pickle_that_would_run_code_is_refused(
    torch: Any, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save({"model.norm.weight": _Harmful()}, folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin.*refused"):
        export_checkpoint(folder, tmp_path / "out")
    assert "must not run" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS"),
        (b"<!DOCTYPE html><html></html>", "HTML"),
        (b"PK\x03\x04" + bytes(100), "cannot be opened"),
        (bytes(5000), "bin"),
    ],
    ids=["empty", "lfs-pointer", "html", "cut-zip", "zeros"],
)
def test_file_that_is_no_state_dict_is_refused(
    torch: Any, folder: Path, tmp_path: Path, content: bytes, reason: str
) -> None:
    (folder / "pytorch_model.bin").write_bytes(content)
    with pytest.raises(CheckpointError, match=reason):
        export_checkpoint(folder, tmp_path / "out")


def test_truncated_file_is_refused(torch: Any, tiny: Any, folder: Path, tmp_path: Path) -> None:
    path = folder / "pytorch_model.bin"
    torch.save(state_dict(torch, tiny), path)
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin"):
        export_checkpoint(folder, tmp_path / "out")


def test_entry_that_is_no_tensor_is_refused(
    torch: Any, tiny: Any, folder: Path, tmp_path: Path
) -> None:
    torch.save({**state_dict(torch, tiny), "model.note": "hello"}, folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"model\.note.*str"):
        export_checkpoint(folder, tmp_path / "out")


def test_integer_weights_are_refused(torch: Any, tiny: Any, folder: Path, tmp_path: Path) -> None:
    tensors = state_dict(torch, tiny)
    tensors["model.norm.weight"] = torch.ones(64, dtype=torch.int8)
    torch.save(tensors, folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"model\.norm\.weight.*I8"):
        export_checkpoint(folder, tmp_path / "out")


def test_without_torch_the_error_names_the_extra(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "pytorch_model.bin").write_bytes(b"PK\x03\x04")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ExportError, match=r"clover-edge\[torch\]"):
        export_checkpoint(folder, tmp_path / "out")
