"""The output folder is complete or untouched, and memory stays bounded."""

from __future__ import annotations

import errno
import tracemalloc
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tiny_clover import make_checkpoint, tensor_shapes, tiny_config

from clover_edge.errors import ArgumentError, ExportError, OutOfMemoryError
from clover_edge.export import coding, export_checkpoint, pipeline
from clover_edge.export.packed_file import PackedWriter


def listing(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_empty_folder_is_filled(tiny: Any, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    export_checkpoint(tiny().folder, tmp_path / "out")
    assert (tmp_path / "out" / "config.json").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_folder_that_is_not_empty_is_refused(tiny: Any, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("keep me")
    with pytest.raises(ExportError, match="out: is not empty"):
        export_checkpoint(tiny().folder, tmp_path / "out")
    assert listing(tmp_path) == ["out", "out/notes.txt"]


def test_file_in_place_of_the_folder_is_refused(tiny: Any, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(ExportError, match="not a folder"):
        export_checkpoint(tiny().folder, tmp_path / "out")


def test_missing_parent_is_refused(tiny: Any, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="nowhere: does not exist"):
        export_checkpoint(tiny().folder, tmp_path / "nowhere" / "out")
    assert listing(tmp_path) == []


def test_exporting_onto_the_checkpoint_is_refused(tmp_path: Path) -> None:
    make_checkpoint(tmp_path / "in", layers=1)
    before = listing(tmp_path)
    with pytest.raises(ExportError, match="not empty"):
        export_checkpoint(tmp_path / "in", tmp_path / "in")
    assert listing(tmp_path) == before


@pytest.mark.parametrize("stop", [KeyboardInterrupt, RuntimeError])
def test_interruption_leaves_nothing(tiny: Any, tmp_path: Path, stop: type[BaseException]) -> None:
    def halfway(done: int, total: int, name: str) -> None:
        if done > total // 2:
            assert listing(tmp_path)  # there is something to clean up
            raise stop

    with pytest.raises(stop):
        export_checkpoint(tiny().folder, tmp_path / "out", progress=halfway)
    assert listing(tmp_path) == []


def test_disk_that_fills_up_leaves_nothing(
    tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(writer: PackedWriter, name: str, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(PackedWriter, "write", full)
    with pytest.raises(ExportError, match="No space left"):
        export_checkpoint(tiny().folder, tmp_path / "out")
    assert listing(tmp_path) == []


class _Usage(NamedTuple):
    free: int


def test_disk_that_is_too_small_is_refused_before_writing(
    tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline.shutil, "disk_usage", lambda path: _Usage(1000))
    with pytest.raises(ExportError, match="1,000 are free"):
        export_checkpoint(tiny().folder, tmp_path / "out")
    assert listing(tmp_path) == []


def test_too_little_memory_is_refused_before_writing(
    tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "available_memory", lambda: 1000)
    with pytest.raises(OutOfMemoryError) as caught:
        export_checkpoint(tiny().folder, tmp_path / "out")
    assert caught.value.available == 1000 < caught.value.needed
    assert listing(tmp_path) == []


@pytest.mark.parametrize(
    "wrong", [{"recipe": "int5"}, {"group_size": 48}, {"norm": "odd"}, {"shard_bytes": 1}]
)
def test_wrong_argument_is_refused_before_writing(
    tiny: Any, tmp_path: Path, wrong: dict[str, Any]
) -> None:
    with pytest.raises(ArgumentError, match=str(next(iter(wrong.values())))):
        export_checkpoint(tiny().folder, tmp_path / "out", **wrong)
    assert listing(tmp_path) == []


def test_memory_is_bounded_by_a_chunk_not_by_a_tensor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = {"hidden": 256, "experts": 32, "layers": 2}
    make_checkpoint(tmp_path / "in", **shape)
    largest = tensor_shapes(tiny_config(**shape))["layers.0.mlp.experts.gate_up_proj"]
    assert largest == (32, 256, 256)  # 8 MB as float32
    monkeypatch.setattr(coding, "CHUNK", 1 << 15)
    export_checkpoint(tmp_path / "in", tmp_path / "warm")
    tracemalloc.start()
    try:
        export_checkpoint(tmp_path / "in", tmp_path / "out")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20
