"""Checkpoint folders that are incomplete, damaged, or not checkpoints at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clover_edge.errors import CheckpointError
from clover_edge.export import Checkpoint, export_checkpoint

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n"
PAGE = b"<!DOCTYPE html><html></html>"


def test_folder_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="nothing: folder: does not exist"):
        Checkpoint(tmp_path / "nothing")


def test_file_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"x")
    with pytest.raises(CheckpointError, match="is a file"):
        Checkpoint(tmp_path / "model.bin")


def test_missing_configuration(spoiled: Any) -> None:
    (spoiled.folder / "config.json").unlink()
    spoiled.refused(CheckpointError, "config.json", "No such file")


@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer.json", "generation_config.json", "tokenizer_config.json"]
)
@pytest.mark.parametrize(
    ("content", "word"),
    [(POINTER, "Git LFS"), (PAGE, "HTML"), (b"", "is empty"), (b'{"a": ', "JSON"), (b"[]", "JSON")],
    ids=["lfs-pointer", "html", "empty", "cut-off", "list"],
)
def test_json_file_that_is_something_else(
    spoiled: Any, name: str, content: bytes, word: str
) -> None:
    (spoiled.folder / name).write_bytes(content)
    spoiled.refused(CheckpointError, name, word)


def test_configuration_with_a_duplicate_key(spoiled: Any) -> None:
    (spoiled.folder / "config.json").write_text('{"hidden_size": 64, "hidden_size": 128}')
    spoiled.refused(CheckpointError, "config.json", "hidden_size")


def test_no_weights(spoiled: Any) -> None:
    spoiled.weights.unlink()
    spoiled.refused(CheckpointError, "no weights", "model.safetensors")


def test_several_pytorch_files_without_an_index(spoiled: Any) -> None:
    spoiled.weights.unlink()
    for name in ("a.pt", "b.pt"):
        (spoiled.folder / name).write_bytes(b"x")
    spoiled.refused(CheckpointError, "2 PyTorch files and no index")


def test_weights_that_are_a_git_lfs_pointer(spoiled: Any) -> None:
    spoiled.weights.write_bytes(POINTER)
    spoiled.refused(CheckpointError, "model.safetensors", "Git LFS")


def test_weights_that_are_a_web_page(spoiled: Any) -> None:
    spoiled.weights.write_bytes(PAGE)
    spoiled.refused(CheckpointError, "model.safetensors", "HTML")


def test_truncated_weights(spoiled: Any) -> None:
    spoiled.weights.write_bytes(spoiled.weights.read_bytes()[:-100])
    spoiled.refused(CheckpointError, "model.safetensors", "lm_head.weight", "truncated")


def test_weights_that_shrink_while_they_are_read(spoiled: Any) -> None:
    out = spoiled.folder.parent / "out"
    size = spoiled.weights.stat().st_size

    def cut(done: int, total: int, name: str) -> None:
        with spoiled.weights.open("r+b") as file:
            file.truncate(size // 2)

    with pytest.raises(CheckpointError, match="became shorter"):
        export_checkpoint(spoiled.folder, out, progress=cut)
    assert not out.exists()


def test_a_folder_that_is_packed_already(spoiled: Any, tmp_path: Path) -> None:
    export_checkpoint(spoiled.folder, tmp_path / "packed")
    with pytest.raises(CheckpointError, match="packed"):
        export_checkpoint(tmp_path / "packed", tmp_path / "again")


class Sharded:
    """The good checkpoint in two shards, and its index to spoil."""

    def __init__(self, spoiled: Any) -> None:
        self.spoiled = spoiled
        spoiled.write(spoiled.tensors, shards=2)
        self.path = spoiled.folder / "model.safetensors.index.json"
        self.index: dict[str, Any] = json.loads(self.path.read_text())
        self.map: dict[str, Any] = self.index["weight_map"]
        self.first, self.second = sorted(set(self.map.values()))

    def refused(self, *words: str) -> None:
        self.path.write_text(json.dumps(self.index))
        self.spoiled.refused(CheckpointError, *words)


@pytest.fixture
def sharded(spoiled: Any) -> Sharded:
    return Sharded(spoiled)


def test_index_without_a_weight_map(sharded: Sharded) -> None:
    del sharded.index["weight_map"]
    sharded.refused("index.json", "weight_map")


def test_index_naming_a_missing_shard(sharded: Sharded) -> None:
    (sharded.spoiled.folder / sharded.second).unlink()
    sharded.refused("index.json", sharded.second, "does not exist")


def test_index_naming_a_missing_tensor(sharded: Sharded) -> None:
    sharded.map["model.layers.9.norm.weight"] = sharded.first
    sharded.refused(sharded.first, "model.layers.9.norm.weight")


def test_index_naming_the_wrong_shard(sharded: Sharded) -> None:
    sharded.map["lm_head.weight"] = sharded.first
    sharded.refused(sharded.first, "lm_head.weight")


def test_tensor_that_the_index_does_not_name(sharded: Sharded) -> None:
    del sharded.map["lm_head.weight"]
    sharded.refused(sharded.second, "lm_head.weight", "not in the index")


@pytest.mark.parametrize("place", ["../model.safetensors", "/etc/passwd", 7, None, ["a"]])
def test_index_pointing_outside_the_folder(sharded: Sharded, place: Any) -> None:
    sharded.map["lm_head.weight"] = place
    sharded.refused("index.json", "plain file name")


def test_tensor_in_two_shards(sharded: Sharded) -> None:
    data = (sharded.spoiled.folder / sharded.first).read_bytes()
    (sharded.spoiled.folder / sharded.second).write_bytes(data)
    sharded.refused(sharded.second, "model.embed_tokens.weight", sharded.first)


def test_truncated_shard_is_named(sharded: Sharded) -> None:
    path = sharded.spoiled.folder / sharded.second
    path.write_bytes(path.read_bytes()[:-1])
    sharded.refused(sharded.second, "truncated")


def test_zero_tensor_is_no_lie(spoiled: Any) -> None:
    """A group of zeros is legal: scale 0, nothing divides by it."""
    name = "model.layers.0.mlp.experts.down_proj"
    spoiled.tensors[name] = np.zeros_like(spoiled.tensors[name])
    spoiled.write(spoiled.tensors)
    report = export_checkpoint(spoiled.folder, spoiled.folder.parent / "out")
    assert report.errors["layers.0.experts.down"].worst == 0
