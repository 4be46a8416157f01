"""The weight files: alignment, sizes, the stock reader, the writer's own checks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_clover import make_checkpoint

from clover_edge.errors import ExportError
from clover_edge.export import export_checkpoint
from clover_edge.export.packed_file import (
    INDEX_NAME,
    PAD_PREFIX,
    PAGE,
    Blob,
    PackedWriter,
    lay_out,
    read_header,
)
from clover_edge.export.plan import make_plan
from clover_edge.quant import RECIPES as BUILT_IN

RECIPES = ("int4", "int4-all", "int8", "bf16", "f32")


@pytest.fixture(params=RECIPES)
def packed(request: pytest.FixtureRequest, tiny: Any, tmp_path: Path) -> Path:
    """A packed folder of several files whose parts do not fall on 64 bytes by themselves."""
    source = tiny(overrides={"moe_intermediate_size": 48, "vocab_size": 333})
    out = tmp_path / "out"
    export_checkpoint(source.folder, out, recipe=request.param, shard_bytes=200_000)
    return out


def test_every_tensor_starts_on_64_bytes(packed: Path) -> None:
    for path in packed.glob("*.safetensors"):
        for name, header in read_header(path).items():
            assert header.offset % 64 == 0 or name.startswith(PAD_PREFIX)


def test_parts_of_a_record_start_on_64_bytes(packed: Path) -> None:
    tensors = json.loads((packed / "config.json").read_text())["clover_edge"]["tensors"]
    stacks = [entry for entry in tensors.values() if entry["scheme"] == "experts"]
    assert stacks
    for entry in stacks:
        assert entry["record_bytes"] % 64 == 0
        ends = 0
        for part in entry["parts"].values():
            assert part["offset"] % 64 == 0 and part["offset"] >= ends
            ends = part["offset"] + part["bytes"]
        assert ends <= entry["record_bytes"]


def test_stock_library_opens_every_file(packed: Path) -> None:
    safetensors = pytest.importorskip("safetensors", reason="the stock reader is not installed")
    index = json.loads((packed / INDEX_NAME).read_text())["weight_map"]
    seen = {}
    for path in sorted(packed.glob("*.safetensors")):
        with safetensors.safe_open(path, framework="numpy") as file:
            for name in file.keys():  # noqa: SIM118 (not a mapping)
                seen[name] = path.name
                shape = tuple(file.get_slice(name).get_shape())
                assert shape == read_header(path)[name].shape
    assert {name: file for name, file in seen.items() if not name.startswith(PAD_PREFIX)} == index


def test_files_keep_to_the_shard_size_and_are_numbered(packed: Path) -> None:
    files = sorted(path.name for path in packed.glob("*.safetensors"))
    assert len(files) > 1
    assert files == [
        f"model-{i + 1:05d}-of-{len(files):05d}.safetensors" for i in range(len(files))
    ]
    for name in files:
        headers = read_header(packed / name)
        data = sum(header.nbytes for header in headers.values())
        assert data <= 200_000 or sum(not n.startswith(PAD_PREFIX) for n in headers) == 1


def test_plan_knows_the_bytes_before_anything_is_read(tiny: Any, tmp_path: Path) -> None:
    for recipe in RECIPES:
        out = tmp_path / recipe
        report = export_checkpoint(tiny().folder, out, recipe=recipe, shard_bytes=150_000)
        sizes = {path.name: path.stat().st_size for path in out.glob("*.safetensors")}
        assert sizes == {layout.name: layout.nbytes for layout in report.plan.files}
        assert sum(sizes.values()) == report.plan.file_bytes


def test_records_of_large_models_start_on_pages(tmp_path: Path) -> None:
    from clover_edge.export import Checkpoint
    from clover_edge.export.families import read_model

    make_checkpoint(tmp_path / "in", layers=1)
    with Checkpoint(tmp_path / "in") as checkpoint:
        model = read_model(checkpoint)
    stack = next(item for item in model.tensors if hasattr(item, "experts"))
    # the plan believes the spec: a stack of a billion bytes needs no file behind it
    stack.parts["gate"] = type(stack.parts["gate"])((1 << 16, 1 << 16), stack.parts["gate"].pieces)
    plan = make_plan(model, BUILT_IN["int4"], 32, 0, 10**12)
    (experts,) = [item for item in plan.tensors if item.name.endswith("experts")]
    assert experts.record_bytes % PAGE == 0
    for layout in plan.files:
        assert len(layout.header) % PAGE == 0
        for blob, offset in layout.blobs:
            assert offset % PAGE == 0 or not blob.name.endswith("experts")


def blobs() -> list[Blob]:
    return [Blob("a", "U8", (3,), 3), Blob("b", "F32", (2, 2), 16)]


def test_writer_fills_gaps_with_pads(tmp_path: Path) -> None:
    (layout,) = files = lay_out(blobs(), 1 << 20)
    with PackedWriter(tmp_path, files) as writer:
        writer.write("a", b"\x01\x02")
        writer.write("a", b"\x03")
        writer.write("b", np.arange(4, dtype="<f4").view(np.uint8).data)
        writer.finish()
    headers = read_header(tmp_path / layout.name)
    assert list(headers) == ["a", f"{PAD_PREFIX}0", "b"]
    data = (tmp_path / layout.name).read_bytes()
    assert data[headers["a"].offset :][:64] == b"\x01\x02\x03" + bytes(61)
    assert np.frombuffer(data[headers["b"].offset :], "<f4").tolist() == [0, 1, 2, 3]


def test_writer_refuses_a_tensor_out_of_turn(tmp_path: Path) -> None:
    writer = PackedWriter(tmp_path, lay_out(blobs(), 1 << 20))
    with writer, pytest.raises(ExportError, match="b: not the tensor"):
        writer.write("b", bytes(16))


def test_writer_refuses_too_many_bytes(tmp_path: Path) -> None:
    writer = PackedWriter(tmp_path, lay_out(blobs(), 1 << 20))
    with writer, pytest.raises(ExportError, match="a: 4 bytes, room for 3"):
        writer.write("a", bytes(4))


def test_writer_refuses_to_finish_early(tmp_path: Path) -> None:
    with PackedWriter(tmp_path, lay_out(blobs(), 1 << 20)) as writer:
        writer.write("a", bytes(2))
        with pytest.raises(ExportError, match="a: 1 bytes are missing"):
            writer.finish()
