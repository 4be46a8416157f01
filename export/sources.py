"""Where a checkpoint's weights come from: safetensors files, or PyTorch state dicts.

Both are lazy: opening reads headers only, and rows are read on demand into the caller's buffer.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import CheckpointError, ExportError
from .files import diagnose, read_json
from .safetensors_header import Header, read_header

Rows = NDArray[Any]  # float32, float16, or uint16: the bits of bfloat16

FLOAT_DTYPES = ("BF16", "F16", "F32")
ROW_DTYPES: dict[str, np.dtype[Any]] = {
    "BF16": np.dtype(np.uint16),
    "F16": np.dtype(np.float16),
    "F32": np.dtype(np.float32),
}
_OPEN_FILES = 64
_READ_AHEAD = 64 << 20  # bytes that the system is asked to have ready


@dataclass(frozen=True)
class TensorInfo:
    """What a source says of a tensor. ``dtype`` in safetensors spelling."""

    dtype: str
    shape: tuple[int, ...]
    file: Path
    nbytes: int


class Source(Protocol):
    @property
    def tensors(self) -> Mapping[str, TensorInfo]: ...

    def row_dtype(self, name: str) -> np.dtype[Any]:
        """What ``read_rows`` fills without a conversion: float32, float16, or uint16 (bfloat16)."""

    def read_rows(self, name: str, start: int, out: Rows) -> None:
        """Fill ``out [rows, width]``, of the type above or float32, from flat element
        ``start * width`` of a float tensor."""

    def close(self) -> None: ...


class SafetensorsSource:
    """Reads with plain file reads, never a mapping: what is in memory is what was asked for."""

    def __init__(self, files: list[Path]) -> None:
        self._headers: dict[str, Header] = {}
        self._open: dict[Path, FileIO] = {}
        self._advised: dict[Path, int] = {}  # where the stretch that was asked for last ends
        tensors: dict[str, TensorInfo] = {}
        for path in files:
            for name, header in read_header(path, CheckpointError).items():
                if name in tensors:
                    raise CheckpointError(str(path), name, f"is in {tensors[name].file.name}, too")
                tensors[name] = TensorInfo(header.dtype, header.shape, path, header.nbytes)
                self._headers[name] = header
        self.tensors: Mapping[str, TensorInfo] = tensors

    def row_dtype(self, name: str) -> np.dtype[Any]:
        return ROW_DTYPES[self.tensors[name].dtype]

    def read_rows(self, name: str, start: int, out: Rows) -> None:
        header, dtype = self._headers[name], self.row_dtype(name)
        offset = header.offset + start * out.shape[1] * dtype.itemsize
        if out.dtype == dtype and sys.byteorder == "little":
            self._read(name, offset, out.reshape(-1).view(np.uint8))
            return
        raw = np.empty(out.size * dtype.itemsize, np.uint8)
        self._read(name, offset, raw)
        values = raw.view(dtype.newbyteorder("<")).reshape(out.shape)
        if header.dtype == "BF16" and out.dtype == np.float32:
            bits = out.view(np.uint32)
            bits[...] = values
            bits <<= 16
        else:
            out[...] = values

    def _read(self, name: str, offset: int, raw: NDArray[np.uint8]) -> None:
        info = self.tensors[name]
        file = self._file(info.file)
        file.seek(offset)
        done = 0
        while done < raw.size:
            got = file.readinto(raw.data[done:])
            if not got:
                raise CheckpointError(
                    str(info.file), name, "the file became shorter while it was read"
                )
            done += got
        self._read_ahead(info.file, file, offset + raw.size)

    def _read_ahead(self, path: Path, file: FileIO, offset: int) -> None:
        """Have the system read on while these rows are quantised: most reads are in file order."""
        if hasattr(os, "posix_fadvise") and not (
            offset <= self._advised.get(path, 0) - _READ_AHEAD // 2 <= offset + _READ_AHEAD // 2
        ):
            os.posix_fadvise(file.fileno(), offset, _READ_AHEAD, os.POSIX_FADV_WILLNEED)
            self._advised[path] = offset + _READ_AHEAD

    def close(self) -> None:
        for file in self._open.values():
            file.close()
        self._open.clear()

    def _file(self, path: Path) -> FileIO:
        if path not in self._open:
            if len(self._open) >= _OPEN_FILES:
                self.close()
            self._open[path] = path.open("rb", buffering=0)
        return self._open[path]


class TorchSource:
    """State dicts through torch's memory-mapped, weights-only loading: never arbitrary pickle."""

    def __init__(self, files: list[Path]) -> None:
        self._torch = _import_torch(files[0])
        self._values: dict[str, Any] = {}
        tensors: dict[str, TensorInfo] = {}
        for path in files:
            for name, value in self._load(path).items():
                if name in tensors:
                    raise CheckpointError(str(path), name, f"is in {tensors[name].file.name}, too")
                tensors[name] = self._info(path, name, value)
                self._values[name] = value
        self.tensors: Mapping[str, TensorInfo] = tensors

    def row_dtype(self, name: str) -> np.dtype[Any]:
        return ROW_DTYPES[self.tensors[name].dtype]

    def read_rows(self, name: str, start: int, out: Rows) -> None:
        first = start * out.shape[1]
        flat = self._values[name].reshape(-1)[first : first + out.size]
        if out.dtype == np.uint16:
            flat, out = flat.view(self._torch.int16), out.view(np.int16)
        self._torch.from_numpy(out).view(-1).copy_(flat)

    def close(self) -> None:
        self._values.clear()

    def _load(self, path: Path) -> dict[str, Any]:
        try:
            with path.open("rb") as file:
                if reason := diagnose(file.read(256)):
                    raise CheckpointError(str(path), "file", reason)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                loaded = self._torch.load(path, map_location="cpu", mmap=True, weights_only=True)
        except OSError as problem:
            raise CheckpointError(str(path), "file", problem.strerror or str(problem)) from problem
        except UnpicklingError as problem:
            reason = "holds more than tensors and is refused: unpickling it could run any code"
            raise CheckpointError(str(path), "file", reason) from problem
        except (RuntimeError, ValueError, EOFError, KeyError) as problem:
            first = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
            reason = f"cannot be opened as a memory-mapped state dict ({first})"
            raise CheckpointError(str(path), "file", reason) from problem
        if isinstance(loaded, dict) and isinstance(loaded.get("state_dict"), dict):
            loaded = loaded["state_dict"]
        if not isinstance(loaded, dict) or not loaded:
            raise CheckpointError(
                str(path), "file", f"holds a {type(loaded).__name__}, no state dict"
            )
        return loaded

    def _info(self, path: Path, name: Any, value: Any) -> TensorInfo:
        torch = self._torch
        if not isinstance(name, str) or not isinstance(value, torch.Tensor):
            reason = f"is a {type(value).__name__}, not a tensor under a name"
            raise CheckpointError(str(path), str(name), reason)
        if value.layout is not torch.strided or value.is_quantized:
            raise CheckpointError(
                str(path), name, "is sparse or quantised; a plain tensor is needed"
            )
        short = {torch.bfloat16: "BF16", torch.float16: "F16", torch.float32: "F32"}
        dtype = short.get(value.dtype, str(value.dtype).removeprefix("torch."))
        nbytes = value.numel() * value.element_size()
        return TensorInfo(dtype, tuple(value.shape), path, nbytes)


def _import_torch(path: Path) -> Any:
    try:
        import torch
    except ImportError as problem:
        raise ExportError(
            f"{path}: reading PyTorch files needs torch, which is not installed: "
            "pip install 'clover-edge[torch]'"
        ) from problem
    return torch


def open_source(folder: Path) -> Source:
    """The weights of a checkpoint folder; safetensors are preferred to PyTorch files."""
    for single, index, kind in _LAYOUTS:
        if (folder / single).exists():
            return kind([folder / single])
        if (folder / index).exists():
            return _open_sharded(folder, folder / index, kind)
    loose = sorted(path for path in folder.iterdir() if path.suffix in (".pt", ".pth", ".bin"))
    if len(loose) == 1:
        return TorchSource(loose)
    found = f"{len(loose)} PyTorch files and no index" if loose else "no weights"
    raise CheckpointError(
        str(folder),
        "folder",
        f"holds {found}; looked for {', '.join(n for n, *_ in _LAYOUTS)}, *.pt",
    )


_LAYOUTS: tuple[tuple[str, str, type[SafetensorsSource] | type[TorchSource]], ...] = (
    ("model.safetensors", "model.safetensors.index.json", SafetensorsSource),
    ("pytorch_model.bin", "pytorch_model.bin.index.json", TorchSource),
)


def _open_sharded(
    folder: Path, index: Path, kind: type[SafetensorsSource] | type[TorchSource]
) -> Source:
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(str(index), "weight_map", "is missing or empty")
    for shard in weight_map.values():
        if not isinstance(shard, str) or Path(shard).name != shard:
            raise CheckpointError(str(index), "weight_map", f"{shard!r} is not a plain file name")
    shards = sorted(set(weight_map.values()))
    for shard in shards:
        if not (folder / shard).exists():
            raise CheckpointError(str(index), "weight_map", f"names {shard}, which does not exist")
    source = kind([folder / shard for shard in shards])
    for name, shard in weight_map.items():
        if name not in source.tensors or source.tensors[name].file.name != shard:
            raise CheckpointError(
                str(folder / shard), name, "is in the index, but not in this file"
            )
    for name, info in source.tensors.items():
        if name not in weight_map:
            raise CheckpointError(str(info.file), name, "is in this file, but not in the index")
    return source
