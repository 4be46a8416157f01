"""Safetensors files, read with plain file reads: what is in memory is what was asked for."""

from __future__ import annotations

import os
import sys
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import CheckpointError
from ..safetensors_header import DTYPE_BYTES, Header, read_header
from .base import Files, Rows, TensorInfo, unique

_OPEN_FILES = 64
# Some columns of short rows come faster out of whole rows than with a call each.
_SHORT, _STRIP = 8192, 1 << 20
_READ_AHEAD = 64 << 20  # bytes that the system is asked to have ready
_NUMPY = {
    "BOOL": "?", "U8": "u1", "I8": "i1", "F8_E4M3": "u1", "F8_E5M2": "u1", "U16": "<u2",
    "I16": "<i2", "F16": "<f2", "BF16": "<u2", "U32": "<u4", "I32": "<i4", "F32": "<f4",
    "U64": "<u8", "I64": "<i8", "F64": "<f8",
}  # fmt: skip


class OpenFiles:
    """Unbuffered files by path, a bounded number of them open at a time."""

    def __init__(self) -> None:
        self._open: dict[Path, FileIO] = {}
        self._advised: dict[Path, int] = {}  # where the stretch that was asked for last ends

    def read(self, path: Path, name: str, offset: int, nbytes: int) -> NDArray[np.uint8]:
        """Bytes of the tensor ``name``; CheckpointError when the file ends before."""
        raw = np.empty(nbytes, np.uint8)
        self.read_into(path, name, offset, raw)
        return raw

    def read_into(self, path: Path, name: str, offset: int, raw: NDArray[np.uint8]) -> None:
        file = self._file(path)
        file.seek(offset)
        done = 0
        while done < raw.size:
            got = file.readinto(raw.data[done:])
            if not got:
                raise CheckpointError(str(path), name, "the file became shorter while it was read")
            done += got
        self._read_ahead(path, file, offset + raw.size)

    def close(self) -> None:
        for file in self._open.values():
            file.close()
        self._open.clear()

    def _read_ahead(self, path: Path, file: FileIO, offset: int) -> None:
        """Have the system read on while these rows are quantised: most reads are in file order."""
        if hasattr(os, "posix_fadvise") and not (
            offset <= self._advised.get(path, 0) - _READ_AHEAD // 2 <= offset + _READ_AHEAD // 2
        ):
            os.posix_fadvise(file.fileno(), offset, _READ_AHEAD, os.POSIX_FADV_WILLNEED)
            self._advised[path] = offset + _READ_AHEAD

    def _file(self, path: Path) -> FileIO:
        if path not in self._open:
            if len(self._open) >= _OPEN_FILES:
                self.close()
            self._open[path] = path.open("rb", buffering=0)
        return self._open[path]


class SafetensorsSource(Files):
    """The tensors of some safetensors files."""

    def __init__(self, files: list[Path]) -> None:
        self._headers: dict[str, Header] = {}
        self._files = OpenFiles()
        tensors: dict[str, TensorInfo] = {}
        for path in files:
            for name, header in read_header(path, CheckpointError).items():
                unique(tensors, name, path)
                tensors[name] = TensorInfo(header.dtype, header.shape, path, header.nbytes)
                self._headers[name] = header
        self.tensors = tensors

    def read_rows(self, name: str, start: int, out: Rows) -> None:
        header, dtype, file = self._headers[name], self.row_dtype(name), self.tensors[name].file
        offset = header.offset + start * out.shape[1] * dtype.itemsize
        if out.dtype == dtype and sys.byteorder == "little":
            self._files.read_into(file, name, offset, out.reshape(-1).view(np.uint8))
            return
        raw = self._files.read(file, name, offset, out.size * dtype.itemsize)
        values = raw.view(dtype.newbyteorder("<")).reshape(out.shape)
        if header.dtype == "BF16" and out.dtype == np.float32:
            bits = out.view(np.uint32)
            bits[...] = values
            bits <<= 16
        else:
            out[...] = values

    def read_raw(
        self, name: str, rows: tuple[int, int], columns: tuple[int, int] | None = None
    ) -> NDArray[Any]:
        info, itemsize = self.tensors[name], DTYPE_BYTES[self._headers[name].dtype]
        first, last = columns or (0, info.width)
        row_bytes, (low, high) = info.width * itemsize, (first * itemsize, last * itemsize)
        out = np.empty((rows[1] - rows[0], high - low), np.uint8)
        if row_bytes > _SHORT and high - low < row_bytes:
            for i, row in enumerate(range(*rows)):
                self._bytes(name, row * row_bytes + low, out[i])
        elif high - low == row_bytes:
            self._bytes(name, rows[0] * row_bytes, out.reshape(-1))
        else:
            step = max(1, _STRIP // row_bytes)
            strip = np.empty((step, row_bytes), np.uint8)
            for start in range(*rows, step):
                count = min(step, rows[1] - start)
                self._bytes(name, start * row_bytes, strip[:count].reshape(-1))
                out[start - rows[0] :][:count] = strip[:count, low:high]
        return _values(out, info.dtype)

    def _bytes(self, name: str, start: int, raw: NDArray[np.uint8]) -> None:
        """Bytes of the tensor from ``start`` on."""
        offset = self._headers[name].offset + start
        self._files.read_into(self.tensors[name].file, name, offset, raw)

    def close(self) -> None:
        self._files.close()


def _values(raw: NDArray[np.uint8], dtype: str) -> NDArray[Any]:
    if dtype == "BF16":
        return (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)
    values = raw.view(_NUMPY[dtype])
    return values.astype(np.float32) if dtype in ("F16", "F32", "F64") else values
