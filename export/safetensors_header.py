"""The header of a safetensors file, read and checked without touching the data behind it.

Eight bytes of length, that many bytes of JSON, then the tensors back to back: no overlap, no hole,
nothing behind the last one.
"""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from ..errors import ModelFormatError
from .files import FileError, diagnose, parse_json

# The stock library's own limit.
MAX_HEADER_BYTES = 100_000_000
# fmt: off
DTYPE_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "U16": 2, "I16": 2, "F16": 2,
    "BF16": 2, "U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8,
}
# fmt: on


class Header(NamedTuple):
    """One tensor as its file's header describes it; ``offset`` counts from the file's start."""

    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int


def read_header(path: str | Path, error: FileError = ModelFormatError) -> dict[str, Header]:
    """Every tensor of a safetensors file, in file order.

    Raises ``error`` (ModelFormatError, or CheckpointError for a source) naming the file, the
    tensor and what its header claims.
    """
    path = Path(path)
    text, size = _read_text(path, error)
    claims = parse_json(text, path, error)
    claims.pop("__metadata__", None)
    start = 8 + len(text)
    found = {name: _entry(path, name, claim, error) for name, claim in claims.items()}
    ordered = dict(sorted(found.items(), key=lambda item: (item[1].offset, item[1].nbytes)))
    end, before = 0, ""
    for name, entry in ordered.items():
        if entry.offset < end:
            raise error(str(path), name, f"overlaps the data of {before}")
        if entry.offset > end:
            raise error(
                str(path), name, f"leaves {entry.offset - end} bytes in front of it unclaimed"
            )
        end, before = entry.offset + entry.nbytes, name
        if end > size - start:
            reason = f"ends at byte {start + end}, the file has {size}: truncated download?"
            raise error(str(path), name, reason)
    if end < size - start:
        raise error(str(path), "file", f"{size - start - end} bytes behind the last tensor")
    return {name: entry._replace(offset=start + entry.offset) for name, entry in ordered.items()}


def _read_text(path: Path, error: FileError) -> tuple[bytes, int]:
    """The JSON text of the header and the size of the file."""
    try:
        with path.open("rb") as file:
            head = file.read(256)
            size = path.stat().st_size
            length = int.from_bytes(head[:8], "little")
            # Any text makes an absurd length; a sane one may well begin with the byte of a "<".
            if (size < 8 or length > MAX_HEADER_BYTES) and (reason := diagnose(head)):
                raise error(str(path), "file", reason)
            if size < 8:
                raise error(
                    str(path), "file", f"has {size} bytes; a safetensors file has at least 8"
                )
            if length > MAX_HEADER_BYTES:
                reason = f"claims a header of {length} bytes: not a safetensors file"
                raise error(str(path), "header", reason)
            if length > size - 8:
                reason = f"claims {length} bytes, the file has {size}: truncated download?"
                raise error(str(path), "header", reason)
            file.seek(8)
            return file.read(length), size
    except OSError as problem:
        raise error(str(path), "file", problem.strerror or str(problem)) from problem


def _entry(path: Path, name: str, claim: Any, error: FileError) -> Header:
    """One header entry; its offset still counts from the end of the header."""
    if not isinstance(claim, dict):
        raise error(str(path), name, "its header entry is not an object")
    dtype, shape = claim.get("dtype"), claim.get("shape")
    offsets = claim.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in DTYPE_BYTES:
        raise error(str(path), name, f"dtype {dtype!r} is unknown")
    if not _counts(shape):
        raise error(str(path), name, f"shape {shape!r} is not a list of sizes")
    if not _counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise error(str(path), name, f"data_offsets {offsets!r} are no range")
    needed, nbytes = prod(shape) * DTYPE_BYTES[dtype], offsets[1] - offsets[0]
    if needed != nbytes:
        raise error(str(path), name, f"{dtype} of shape {shape} takes {needed} bytes, not {nbytes}")
    return Header(dtype, tuple(shape), offsets[0], nbytes)


def _counts(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(n) is int and n >= 0 for n in value)
