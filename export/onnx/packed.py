"""The tensors of a packed folder, read a few rows at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import ModelFormatError
from ...loader import PackedFolder
from ...quant.schemes import TILE_ROWS, Scheme
from ...quant.tiles import Codes, unpack
from .numbers import Bytes, Floats, values_of

Halves = NDArray[np.float16]

CHUNK = 1 << 20  # weights that are in memory at a time, in each of the forms that they take


class PackedTensors:
    """Rows of the core's table by name; an expert stack's parts are `layers.N.experts.gate` and so
    on, of one expert at a time."""

    def __init__(self, folder: PackedFolder) -> None:
        self._folder = folder
        self._rows = {row["name"]: row for row in folder.table}

    def row(self, name: str) -> Mapping[str, Any]:
        if name not in self._rows:
            raise ModelFormatError(str(self._folder.path), name, "is missing")
        return self._rows[name]

    def scheme(self, name: str) -> Scheme:
        row = self.row(name)
        return Scheme(row["scheme"], row["group"], tuple(row.get("codebook", ())))

    def shape(self, name: str) -> tuple[int, ...]:
        """Of an expert stack's part: [experts, rows, columns]."""
        return tuple(self.row(name)["shape"])

    def raw(self, name: str) -> Iterator[Bytes]:
        """A float tensor's bytes as stored."""
        row = self.row(name)
        for start in range(0, row["bytes"], 4 * CHUNK):
            yield self._read(row, start, min(4 * CHUNK, row["bytes"] - start))

    def codes(self, name: str, expert: int = 0) -> Iterator[tuple[Codes, Halves]]:
        """Codes [r, k] and scales [r, k / group] of the next rows of a quantised matrix."""
        row, scheme = self.row(name), self.scheme(name)
        n, k = self.shape(name)[-2:]
        tile = k // scheme.group * scheme.group_bytes
        most = TILE_ROWS * max(1, CHUNK // (TILE_ROWS * k))
        for first in range(0, n, most):
            rows = min(most, n - first)
            start = expert * row["stride"] + first // TILE_ROWS * tile
            data = self._read(row, start, scheme.nbytes((rows, k)))
            yield unpack(data, (rows, k), scheme)

    def values(self, name: str, expert: int = 0) -> Iterator[Floats]:
        """float32 [r, k] of the next rows, whatever the scheme."""
        row, scheme = self.row(name), self.scheme(name)
        if scheme.quantised:
            for codes, scales in self.codes(name, expert):
                yield values_of(codes, scales, scheme)
            return
        n, k = self.shape(name)[-2:]
        width = scheme.nbytes((1, k))
        most = max(1, CHUNK // k)
        for first in range(0, n, most):
            rows = min(most, n - first)
            data = self._read(row, expert * row["stride"] + first * width, rows * width)
            yield _floats(data, scheme).reshape(rows, k)

    def vector(self, name: str) -> Floats:
        """A small tensor whole, in its shape."""
        row = self.row(name)
        return _floats(self._read(row, 0, row["bytes"]), self.scheme(name)).reshape(row["shape"])

    def _read(self, row: Mapping[str, Any], start: int, count: int) -> Bytes:
        path = self._folder.files[row["file"]]
        data = np.fromfile(path, np.uint8, count, offset=row["offset"] + start)
        if data.size != count:
            raise ModelFormatError(str(path), row["name"], "ends before its last byte")
        return data


def _floats(data: Bytes, scheme: Scheme) -> Floats:
    if scheme.name == "f32":
        return data.view("<f4").astype(np.float32, copy=False)
    return (data.view("<u2").astype(np.uint32) << 16).view(np.float32)
