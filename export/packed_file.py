"""The packed folder's weight files: laid out in advance, written as a stream.

Every size is known from the plan, so a file's header is written first and the data follows in one
pass. Each tensor's data starts on its alignment, counted from the start of the file; the gaps are
``__pad__.K`` tensors, because the format forbids holes. docs/format.md has the whole picture.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from ..errors import ExportError
from ..quant.schemes import Shape
from .safetensors_header import Header, read_header

__all__ = ["INDEX_NAME", "PAD_PREFIX", "Blob", "Header", "PackedWriter", "lay_out", "read_header"]

ALIGNMENT = 64
PAGE = 4096
PAD_PREFIX = "__pad__."
INDEX_NAME = "model.safetensors.index.json"


@dataclass(frozen=True)
class Blob:
    """A tensor as the file stores it: U8 for packed tiles and expert records."""

    name: str
    dtype: str
    shape: Shape
    nbytes: int
    alignment: int = ALIGNMENT


@dataclass
class FileLayout:
    """One weight file: its blobs in order, pads between them, offsets from the data's start."""

    name: str = ""
    blobs: list[tuple[Blob, int]] = field(default_factory=list)
    end: int = 0

    @property
    def header(self) -> bytes:
        """Length and JSON, padded with spaces so that the data starts on the widest alignment."""
        entries: dict[str, Any] = {"__metadata__": {"format": "clover-edge"}}
        for blob, offset in self.blobs:
            entries[blob.name] = {
                "dtype": blob.dtype,
                "shape": list(blob.shape),
                "data_offsets": [offset, offset + blob.nbytes],
            }
        text = json.dumps(entries, separators=(",", ":")).encode()
        widest = max(blob.alignment for blob, _ in self.blobs)
        text += b" " * (-(8 + len(text)) % widest)
        return len(text).to_bytes(8, "little") + text

    @property
    def nbytes(self) -> int:
        return len(self.header) + self.end


def lay_out(blobs: Iterable[Blob], shard_bytes: int) -> list[FileLayout]:
    """Blobs to files of at most ``shard_bytes`` of data each; a larger blob has its own file."""
    files: list[FileLayout] = []
    pads = 0
    for blob in blobs:
        if not files or (files[-1].end + blob.alignment + blob.nbytes > shard_bytes):
            files.append(FileLayout())
        last = files[-1]
        if gap := -last.end % blob.alignment:
            last.blobs.append((Blob(f"{PAD_PREFIX}{pads}", "U8", (gap,), gap, 1), last.end))
            last.end += gap
            pads += 1
        last.blobs.append((blob, last.end))
        last.end += blob.nbytes
    for number, layout in enumerate(files, 1):
        layout.name = f"model-{number:05d}-of-{len(files):05d}.safetensors"
    return files


class PackedWriter:
    """Writes the files of a layout one after the other: ``write`` takes the next bytes of the
    blob that is due, and its name, so that a wrong order cannot go unnoticed."""

    def __init__(self, folder: Path, files: list[FileLayout], done: int = 0) -> None:
        """``done``: so many blobs are there already, pads not counted; whatever the files hold
        behind them is cut off."""
        self._folder, self._files = folder, files
        self._due = [(layout, *item) for layout in files for item in layout.blobs]
        named = [i for i, (_, blob, _) in enumerate(self._due) if not _is_pad(blob)]
        self._next, self._left = named[done - 1] + 1 if done else 0, 0
        self._file: BinaryIO | None = None
        self._open: FileLayout | None = None
        self._advance()

    def write(self, name: str, data: memoryview | bytes) -> None:
        """Append bytes to the blob ``name``; ExportError when it is not due or would overflow."""
        size = len(data)
        if self._next >= len(self._due) or self._due[self._next][1].name != name:
            raise ExportError(f"{name}: not the tensor that the layout has next")
        if size > self._left:
            raise ExportError(f"{name}: {size} bytes, room for {self._left}")
        assert self._file is not None
        self._file.write(memoryview(data))
        self._left -= size
        if not self._left:
            self._next += 1
            self._advance()

    def finish(self) -> None:
        """Write the index; ExportError when a blob is incomplete."""
        if self._next < len(self._due):
            raise ExportError(f"{self._due[self._next][1].name}: {self._left} bytes are missing")
        self.close()
        weight_map = {
            blob.name: layout.name
            for layout in self._files
            for blob, _ in layout.blobs
            if not _is_pad(blob)
        }
        total = sum(blob.nbytes for layout in self._files for blob, _ in layout.blobs)
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        (self._folder / INDEX_NAME).write_text(json.dumps(index, indent=2) + "\n")

    def sync(self) -> None:
        """What was written is on the disk."""
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())

    def close(self) -> None:
        if self._file is not None:
            self.sync()
            self._file.close()
            self._file = None

    def _advance(self) -> None:
        """Make the next blob due: open its file, fill pads."""
        while self._next < len(self._due):
            layout, blob, offset = self._due[self._next]
            if layout is not self._open:
                self.close()
                self._open = layout
                self._file = _begin(self._folder / layout.name, layout.header, offset)
            self._left = blob.nbytes
            if not _is_pad(blob):
                return
            assert self._file is not None
            self._file.write(bytes(blob.nbytes))
            self._next += 1

    def __enter__(self) -> PackedWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()


def _is_pad(blob: Blob) -> bool:
    return blob.name.startswith(PAD_PREFIX)


def _begin(path: Path, header: bytes, offset: int) -> BinaryIO:
    """A weight file, opened where its data goes on ``offset`` bytes from their start."""
    file = path.open("r+b" if offset else "wb")
    if offset:
        file.truncate(len(header) + offset)
        file.seek(0, os.SEEK_END)
    else:
        file.write(header)
    return file
