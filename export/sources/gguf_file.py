"""GGUF files as tensors: rows through the gguf package's ``dequantize``, and the codes of those
block types that a scheme of ours holds exactly."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import CheckpointError, ExportError, UnsupportedModelError
from ...quant.schemes import Scheme
from .affine import positive_scales
from .base import Codes, Floats, Halves, Source, Stored, TensorInfo
from .gguf_header import GgufEntry, GgufHeader, read_gguf_header
from .safetensors import OpenFiles

Bytes = NDArray[np.uint8]
_PLAIN = {"F32": "F32", "F16": "F16", "BF16": "BF16"}
_BLOCK = 32  # columns of a block of every type that is kept
_CHUNK = 1 << 20
_SPLIT = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")
# fmt: off
IQ4_NL_LEVELS = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
# fmt: on
# Twice the values of float4 e2m1; 0 and -0 are one level, and the sixteenth is never used.
MXFP4_LEVELS = (-12, -8, -6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6, 8, 12, 16)


def import_gguf(path: Path) -> Any:
    try:
        import gguf
    except ImportError as problem:
        raise ExportError(
            f"{path}: reading GGUF files needs gguf, which is not installed: "
            "pip install 'clover-edge[gguf]'"
        ) from problem
    return gguf


def gguf_files(path: Path) -> list[Path]:
    """The files of a model: one, or all parts of a split one; empty when a folder holds none.

    Raises CheckpointError when parts are missing, or a folder holds several models.
    """
    found = sorted(path.glob("*.gguf")) if path.is_dir() else [path]
    if not found:
        return []
    first = _SPLIT.fullmatch(found[0].name)
    if first is None:
        if len(found) > 1:
            names = ", ".join(file.name for file in found)
            raise CheckpointError(str(path), "folder", f"holds {names}: name the file to export")
        return found
    stem, count = first[1], int(first[3])
    parts = [found[0].with_name(f"{stem}-{n:05d}-of-{count:05d}.gguf") for n in range(1, count + 1)]
    for part in parts:
        if not part.exists():
            raise CheckpointError(str(part), "file", f"is missing: the model has {count} parts")
    if path.is_dir() and (extra := sorted(set(found) - set(parts))):
        reason = f"holds {extra[0].name} beside {parts[0].name}: name the file to export"
        raise CheckpointError(str(path), "folder", reason)
    return parts


class GgufFiles(Source):
    """Keys of the first file, tensors of all; under their own names, so none of a source's."""

    tensors: Mapping[str, TensorInfo] = {}

    def __init__(self, paths: list[Path]) -> None:
        self._gguf = import_gguf(paths[0])
        self.path = paths[0]
        self.files = OpenFiles()
        self.values: dict[str, Any] = {}
        self.found: dict[str, GgufTensor] = {}
        for path in paths:
            header = read_gguf_header(path)
            self.values = self.values or header.values
            self._add(path, header)
        wanted = self.values.get("split.tensors.count", len(self.found))
        if wanted != len(self.found):
            reason = f"{wanted}, but the parts hold {len(self.found)} tensors"
            raise CheckpointError(str(self.path), "split.tensors.count", reason)

    def _add(self, path: Path, header: GgufHeader) -> None:
        size = path.stat().st_size
        for name, entry in header.tensors.items():
            if name in self.found:
                reason = f"is in {self.found[name].info.file.name}, too"
                raise CheckpointError(str(path), name, reason)
            tensor = GgufTensor(self._gguf, self.files, path, name, entry, header.data)
            if tensor.end > size:
                reason = f"ends at byte {tensor.end}, the file has {size}: truncated download?"
                raise CheckpointError(str(path), name, reason)
            self.found[name] = tensor

    def close(self) -> None:
        self.files.close()


class GgufTensor:
    """One tensor of a GGUF file, under its own name."""

    def __init__(
        self, gguf: Any, files: OpenFiles, path: Path, name: str, entry: GgufEntry, data: int
    ) -> None:
        self._gguf, self._files, self.name = gguf, files, name
        try:
            self.kind = gguf.GGMLQuantizationType(entry.kind)
        except ValueError as problem:
            raise UnsupportedModelError(
                f"{path}: {name}: type {entry.kind} is unknown"
            ) from problem
        self._offset = data + entry.offset
        width = entry.shape[-1]
        block, block_bytes = gguf.GGML_QUANT_SIZES[self.kind]
        if width % block:
            reason = f"{width} columns are no multiple of the {block} of {self.kind.name}"
            raise CheckpointError(str(path), name, reason)
        self._row_bytes = width // block * block_bytes
        nbytes = prod(entry.shape[:-1]) * self._row_bytes
        plain = _PLAIN.get(self.kind.name)
        packing = "" if plain else f"gguf {self.kind.name}"
        self._info = TensorInfo(plain or "F32", entry.shape, path, nbytes, packing)
        self._held: Stored | None = None
        self._looked = False

    @property
    def info(self) -> TensorInfo:
        return self._info

    @property
    def end(self) -> int:
        return self._offset + self._info.nbytes

    def check_readable(self) -> None:
        """UnsupportedModelError when the package cannot decode the type."""
        block_bytes = self._gguf.GGML_QUANT_SIZES[self.kind][1]
        try:
            self._gguf.quants.dequantize(np.zeros((1, block_bytes), np.uint8), self.kind)
        except NotImplementedError as problem:
            raise UnsupportedModelError(
                f"{self._info.file}: {self.name}: type {self.kind.name} is not read"
            ) from problem

    def rows(self, start: int, stop: int) -> Floats:
        with np.errstate(over="ignore", invalid="ignore"):  # the caller refuses what is not finite
            values = self._gguf.quants.dequantize(self._raw(start, stop), self.kind)
        return np.asarray(values, np.float32).reshape(stop - start, self._info.width)

    def stored(self) -> Stored | None:
        if not self._looked:
            self._looked, self._held = True, self._find()
        return self._held

    def _find(self) -> Stored | None:
        if self.kind.name not in _KEPT:
            return None
        scheme, read, fits = _KEPT[self.kind.name]
        if fits is not None:
            total = prod(self._info.shape[:-1])
            step = max(1, _CHUNK // self._info.width)
            for start in range(0, total, step):
                if not fits(self._blocks(start, min(start + step, total))):
                    return None
        return Stored(scheme, lambda start, stop: self._codes(read, start, stop))

    def _codes(self, read: _Read, start: int, stop: int) -> tuple[Codes, Halves]:
        codes, scales = read(self._blocks(start, stop))
        return codes.reshape(stop - start, -1), scales

    def _blocks(self, start: int, stop: int) -> Bytes:
        """``[rows, blocks, bytes of a block]``."""
        return self._raw(start, stop).reshape(stop - start, self._info.width // _BLOCK, -1)

    def _raw(self, start: int, stop: int) -> Bytes:
        """``[rows, bytes of a row]``."""
        offset, nbytes = self._offset + start * self._row_bytes, (stop - start) * self._row_bytes
        raw = self._files.read(self._info.file, self.name, offset, nbytes)
        return raw.reshape(stop - start, self._row_bytes)


_Read = Callable[[Bytes], tuple[Codes, Halves]]
_Fits = Callable[[Bytes], bool]


def _nibbles(packed: Bytes) -> Bytes:
    """16 bytes of a block: low nibbles are columns 0 .. 15, high ones 16 .. 31."""
    return np.concatenate([packed & 15, packed >> 4], axis=-1)


def _half(raw: Bytes) -> Halves:
    return np.ascontiguousarray(raw[..., :2]).view("<f2")[..., 0]


def _read_nibbles(blocks: Bytes) -> tuple[Codes, Halves]:
    return _nibbles(blocks[..., 2:]), _half(blocks)


def _read_q5_0(blocks: Bytes) -> tuple[Codes, Halves]:
    """float16, 32 high bits, 16 bytes of low nibbles; value = (code - 16) * scale."""
    high = np.unpackbits(blocks[..., 2:6], axis=-1, bitorder="little")
    levels = (_nibbles(blocks[..., 6:]) | high << 4).view(np.int8) - np.int8(16)
    return _signed(levels, _half(blocks))


def _read_q8_0(blocks: Bytes) -> tuple[Codes, Halves]:
    return _signed(blocks[..., 2:].view(np.int8), _half(blocks))


def _signed(levels: NDArray[np.int8], scales: Halves) -> tuple[Codes, Halves]:
    return positive_scales(levels.reshape(levels.shape[0], -1), scales)


def _read_mxfp4(blocks: Bytes) -> tuple[Codes, Halves]:
    """Exponent e8m0, 16 bytes of e2m1 nibbles, sign in the top bit; twice the value times
    2^(e - 128)."""
    nibbles = _nibbles(blocks[..., 1:])
    codes = np.where(nibbles < 8, 7 + nibbles, 15 - nibbles).astype(np.uint8)
    exponents = np.where(_zero(blocks), -128, blocks[..., 0].astype(np.int32) - 128)
    return codes, np.ldexp(np.float32(1), exponents).astype(np.float16)


def _fits_mxfp4(blocks: Bytes) -> bool:
    """Powers of two that float16 has, subnormal ones included."""
    exponents = blocks[..., 0]
    return bool((((exponents >= 104) & (exponents <= 143)) | _zero(blocks)).all())


def _zero(blocks: Bytes) -> NDArray[np.bool_]:
    """Blocks of zeros, whose exponent does not matter: theirs becomes scale 0."""
    zero: NDArray[np.bool_] = ((blocks[..., 1:] & 0x77) == 0).all(axis=-1)
    return zero


_KEPT: dict[str, tuple[Scheme, _Read, _Fits | None]] = {
    "Q4_0": (Scheme("int4", _BLOCK), _read_nibbles, None),
    "IQ4_NL": (Scheme("codebook4", _BLOCK, IQ4_NL_LEVELS), _read_nibbles, None),
    "Q5_0": (Scheme("int8", _BLOCK), _read_q5_0, None),
    # -128 is no code of int8
    "Q8_0": (Scheme("int8", _BLOCK), _read_q8_0, lambda b: bool((b[..., 2:] != 128).all())),
    "MXFP4": (Scheme("codebook4", _BLOCK, MXFP4_LEVELS), _read_mxfp4, _fits_mxfp4),
}
