"""The header of a GGUF file, read and checked without touching the data behind it.

"GGUF", version, two counts; key-value pairs; name, sizes, type and offset of each tensor; the data,
aligned. The gguf package's own reader believes counts and lengths, and keeps an array for every
token of the vocabulary; here a lying length is refused and a vocabulary is a list of strings.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...errors import CheckpointError
from ..files import diagnose

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q"}
_SCALARS[12] = "d"
_FLOAT32, _STRING, _ARRAY = 6, 8, 9
_VERSIONS = (2, 3)
_MAX_AXES = 4


class GgufEntry(NamedTuple):
    """One tensor as the header describes it; ``shape`` outermost first, ``offset`` in the data."""

    kind: int
    shape: tuple[int, ...]
    offset: int


class GgufHeader(NamedTuple):
    """``data``: where the data starts in the file."""

    values: dict[str, Any]
    tensors: dict[str, GgufEntry]
    data: int


def read_gguf_header(path: Path) -> GgufHeader:
    """Keys and tensors of a GGUF file.

    Raises CheckpointError naming the file and what it claims, or what it is instead of a GGUF file.
    """
    try:
        with path.open("rb") as file:
            head = file.read(256)
            if reason := diagnose(head):
                raise CheckpointError(str(path), "file", reason)
            if head[:4] != b"GGUF":
                raise CheckpointError(str(path), "file", "does not begin with GGUF")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _Cursor(data, path).header()
    except OSError as problem:
        raise CheckpointError(str(path), "file", problem.strerror or str(problem)) from problem


class _Cursor:
    """Reads the header from front to back."""

    def __init__(self, data: mmap.mmap, path: Path) -> None:
        self._data, self._path, self._at, self._field = data, path, 4, "header"

    def header(self) -> GgufHeader:
        version = self._number("I")
        if version not in _VERSIONS:
            other = " (big-endian?)" if version & 0xFFFF == 0 else ""
            raise self._refuse(f"version {version}{other} is not one of {_VERSIONS}")
        tensor_count, key_count = self._number("Q"), self._number("Q")
        values: dict[str, Any] = {}
        for _ in range(self._count(key_count, 13)):
            key = self._text()
            self._field = key
            if key in values:
                raise self._refuse("is there twice")
            values[key] = self._value(self._number("I"))
        self._field = "header"
        tensors: dict[str, GgufEntry] = {}
        for _ in range(self._count(tensor_count, 24)):
            name, entry = self._tensor()
            if name in tensors:
                raise self._refuse("is there twice")
            tensors[name] = entry
        alignment = values.get("general.alignment", 32)
        if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
            self._field = "general.alignment"
            raise self._refuse(f"{alignment!r} is no power of two")
        return GgufHeader(values, tensors, -(-self._at // alignment) * alignment)

    def _tensor(self) -> tuple[str, GgufEntry]:
        name = self._field = self._text()
        axes = self._number("I")
        if not 1 <= axes <= _MAX_AXES:
            raise self._refuse(f"has {axes} axes")
        sizes = struct.unpack(f"<{axes}Q", self._take(8 * axes))
        if any(not 0 < size < 2**31 for size in sizes):
            raise self._refuse(f"shape {list(sizes)} is not valid")
        kind, offset = self._number("I"), self._number("Q")
        return name, GgufEntry(kind, tuple(reversed(sizes)), offset)

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._text()
        if kind in _SCALARS:
            value = struct.unpack(f"<{_SCALARS[kind]}", self._take(_size(kind)))[0]
            # the shortest number that is this float32: 1e-05, not 9.999999747e-06
            return float(str(np.float32(value))) if kind == _FLOAT32 else value
        if kind != _ARRAY:
            raise self._refuse(f"type {kind} is unknown")
        inner = self._number("I")
        if inner == _STRING:
            return [self._text() for _ in range(self._count(self._number("Q"), 8))]
        if inner not in _SCALARS:
            raise self._refuse(f"an array of type {inner} is unknown")
        count = self._count(self._number("Q"), _size(inner))
        raw = self._take(count * _size(inner))
        return np.frombuffer(raw, np.dtype(_SCALARS[inner]).newbyteorder("<")).tolist()

    def _text(self) -> str:
        raw = self._take(self._number("Q"))
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as problem:
            raise self._refuse(f"{raw[:40]!r} is not UTF-8") from problem

    def _number(self, code: str) -> int:
        number: int = struct.unpack(f"<{code}", self._take(struct.calcsize(code)))[0]
        return number

    def _count(self, count: int, least: int) -> int:
        """A count of things that take at least so many bytes each."""
        if count * least > len(self._data) - self._at:
            raise self._refuse(f"{count} entries do not fit into the file: truncated download?")
        return count

    def _take(self, size: int) -> bytes:
        if size > len(self._data) - self._at:
            reason = f"{size} bytes at {self._at}, the file has {len(self._data)}"
            raise self._refuse(f"{reason}: truncated download?")
        self._at += size
        return self._data[self._at - size : self._at]

    def _refuse(self, reason: str) -> CheckpointError:
        return CheckpointError(str(self._path), self._field, reason)


def _size(kind: int) -> int:
    return struct.calcsize("=" + _SCALARS[kind])
