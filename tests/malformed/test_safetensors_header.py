"""Lies in the header of a safetensors file, each under its own name.

``read_header`` serves both sides: sources (CheckpointError) and packed folders (ModelFormatError).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clover_edge.errors import CheckpointError, ModelFormatError
from clover_edge.export.packed_file import read_header

Error = type[CheckpointError] | type[ModelFormatError]


class Lie:
    """Writes a file and expects it refused with the path and these words."""

    def __init__(self, path: Path, error: Error) -> None:
        self.path, self.error = path, error

    def raw(self, content: bytes, *words: str) -> None:
        self.path.write_bytes(content)
        with pytest.raises(self.error) as caught:
            read_header(self.path, self.error)
        for word in (str(self.path), *words):
            assert word in str(caught.value)

    def text(self, header: bytes, data: bytes, *words: str) -> None:
        self.raw(len(header).to_bytes(8, "little") + header + data, *words)

    def header(self, header: Any, data: bytes, *words: str) -> None:
        self.text(json.dumps(header).encode(), data, *words)


@pytest.fixture(params=[CheckpointError, ModelFormatError])
def lie(request: pytest.FixtureRequest, tmp_path: Path) -> Lie:
    return Lie(tmp_path / "model.safetensors", request.param)


def entry(start: int, end: int, *shape: int, dtype: str = "U8") -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape or (end - start,)), "data_offsets": [start, end]}


def test_the_truth_is_accepted(tmp_path: Path) -> None:
    header = {"b": entry(4, 8), "a": entry(0, 4, 2, dtype="BF16"), "__metadata__": {"x": "y"}}
    text = json.dumps(header).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(8))
    assert list(read_header(path)) == ["a", "b"]
    assert read_header(path)["b"] == ("U8", (4,), 8 + len(text) + 4, 4)


def test_length_that_begins_like_a_web_page_is_no_lie(tmp_path: Path) -> None:
    """A header of 0x3c bytes: the file's first byte is that of "<"."""
    text = json.dumps({"a": entry(0, 4)}).encode().ljust(0x3C)
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(4))
    assert path.read_bytes()[:1] == b"<"
    assert list(read_header(path)) == ["a"]


def test_empty_file(lie: Lie) -> None:
    lie.raw(b"", "is empty")


def test_file_shorter_than_its_length_field(lie: Lie) -> None:
    lie.raw(bytes(5), "has 5 bytes")


def test_git_lfs_pointer(lie: Lie) -> None:
    lie.raw(b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n", "Git LFS")


def test_html_page(lie: Lie) -> None:
    lie.raw(b"\n<!DOCTYPE html><html>login first</html>", "HTML")


def test_header_length_of_exabytes(lie: Lie) -> None:
    lie.raw((1 << 62).to_bytes(8, "little") + b"{}", "header", str(1 << 62))


def test_header_longer_than_the_file(lie: Lie) -> None:
    lie.raw((500).to_bytes(8, "little") + b"{}", "500", "truncated")


def test_header_that_is_not_json(lie: Lie) -> None:
    lie.text(b"{not json", b"", "JSON")


def test_header_that_is_not_utf8(lie: Lie) -> None:
    lie.text(b'{"\xff": 1}', b"", "JSON")


def test_header_that_is_a_list(lie: Lie) -> None:
    lie.header([1], b"", "object")


def test_header_nested_to_the_bottom(lie: Lie) -> None:
    lie.text(b"[" * 100_000, b"", "JSON")


def test_duplicate_tensor_name(lie: Lie) -> None:
    one = json.dumps(entry(0, 4)).encode()
    lie.text(b'{"twice":' + one + b',"twice":' + one + b"}", bytes(4), "twice")


def test_entry_that_is_no_object(lie: Lie) -> None:
    lie.header({"odd": 7}, b"", "odd")


def test_unknown_dtype(lie: Lie) -> None:
    lie.header({"odd": entry(0, 4, dtype="F3")}, bytes(4), "odd", "F3")


def test_dtype_that_is_a_list(lie: Lie) -> None:
    lie.header({"odd": {**entry(0, 4), "dtype": ["U8"]}}, bytes(4), "odd", "dtype")


def test_negative_size(lie: Lie) -> None:
    lie.header({"odd": {**entry(0, 4), "shape": [-2, -2]}}, bytes(4), "odd", "-2")


def test_size_that_is_a_fraction(lie: Lie) -> None:
    lie.header({"odd": {**entry(0, 4), "shape": [4.0]}}, bytes(4), "odd", "4.0")


def test_size_that_is_a_boolean(lie: Lie) -> None:
    lie.header({"odd": {**entry(0, 1), "shape": [True]}}, bytes(1), "odd", "True")


def test_missing_shape(lie: Lie) -> None:
    lie.header({"odd": {"dtype": "U8", "data_offsets": [0, 4]}}, bytes(4), "odd", "shape")


def test_shape_whose_product_overflows(lie: Lie) -> None:
    lie.header({"odd": {**entry(0, 4), "shape": [1 << 40, 1 << 40]}}, bytes(4), "odd", "takes")


def test_shape_that_does_not_fit_its_bytes(lie: Lie) -> None:
    lie.header({"odd": entry(0, 4, 4, dtype="BF16")}, bytes(4), "odd", "takes 8 bytes, not 4")


def test_offsets_that_run_backwards(lie: Lie) -> None:
    lie.header({"odd": {**entry(0, 4), "data_offsets": [4, 0]}}, bytes(4), "odd", "[4, 0]")


def test_negative_offset(lie: Lie) -> None:
    lie.header({"odd": {**entry(0, 4), "data_offsets": [-4, 0]}}, bytes(4), "odd", "-4")


def test_three_offsets(lie: Lie) -> None:
    lie.header({"odd": {**entry(0, 4), "data_offsets": [0, 2, 4]}}, bytes(4), "odd")


def test_offsets_behind_the_end(lie: Lie) -> None:
    lie.header({"cut": entry(0, 40)}, bytes(39), "cut", "truncated")


def test_overlapping_tensors(lie: Lie) -> None:
    lie.header({"a": entry(0, 4), "b": entry(2, 6)}, bytes(6), "b", "overlaps the data of a")


def test_two_tensors_in_one_place(lie: Lie) -> None:
    lie.header({"a": entry(0, 4), "b": entry(0, 4)}, bytes(4), "overlaps")


def test_hole_between_tensors(lie: Lie) -> None:
    lie.header({"a": entry(0, 4), "b": entry(6, 8)}, bytes(8), "b", "2 bytes")


def test_hole_before_the_first_tensor(lie: Lie) -> None:
    lie.header({"a": entry(4, 8)}, bytes(8), "a", "4 bytes")


def test_bytes_behind_the_last_tensor(lie: Lie) -> None:
    lie.header({"a": entry(0, 4)}, bytes(5), "1 bytes behind")


def test_folder_in_place_of_the_file(lie: Lie) -> None:
    lie.path.mkdir()
    with pytest.raises(lie.error, match="directory"):
        read_header(lie.path, lie.error)


def test_missing_file(lie: Lie) -> None:
    with pytest.raises(lie.error, match="No such file"):
        read_header(lie.path, lie.error)
