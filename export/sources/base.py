"""What every source of weights offers: tensors under Hugging Face names, read by rows.

A source is lazy: opening reads headers and configuration only. A tensor that is stored quantised is
presented like any other, with its logical shape; ``stored`` tells whether one of our schemes holds
its codes and scales as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...errors import CheckpointError
from ...quant.schemes import Scheme

Floats = NDArray[np.float32]
Rows = NDArray[Any]  # float32, float16, or uint16: the bits of bfloat16
Halves = NDArray[np.float16]
Codes = NDArray[np.uint8] | NDArray[np.int8]

FLOAT_DTYPES = ("BF16", "F16", "F32")
ROW_DTYPES: dict[str, np.dtype[Any]] = {
    "BF16": np.dtype(np.uint16),
    "F16": np.dtype(np.float16),
    "F32": np.dtype(np.float32),
}


@dataclass(frozen=True)
class TensorInfo:
    """What a source says of a tensor. ``dtype`` in safetensors spelling; ``packing`` names the
    quantised form that the file holds instead (the values are then presented as F32)."""

    dtype: str
    shape: tuple[int, ...]
    file: Path
    nbytes: int
    packing: str = ""

    @property
    def width(self) -> int:
        """Columns of a row, leading axes being flattened into rows; a vector is one row."""
        return self.shape[-1] if self.shape else 1


@dataclass(frozen=True)
class Stored:
    """A tensor's codes in a scheme of ours, without a bit changed.

    ``read(start, stop)`` gives rows of codes ``[rows, width]`` (int8 of int8, else uint8) and of
    float16 scales ``[rows, width / group]``.
    """

    scheme: Scheme
    read: Callable[[int, int], tuple[Codes, Halves]]


class Source:
    """Tensors by name."""

    tensors: Mapping[str, TensorInfo]

    def row_dtype(self, name: str) -> np.dtype[Any]:
        """What ``read_rows`` fills without a conversion: float32, float16, or uint16 (bfloat16)."""
        return ROW_DTYPES[self.tensors[name].dtype]

    def read_rows(self, name: str, start: int, out: Rows) -> None:
        """Fill ``out [rows, width]``, of the type above or float32, from flat element
        ``start * width`` of a float tensor."""
        raise NotImplementedError

    def stored(self, name: str) -> Stored | None:
        """The tensor's own codes, where one of our schemes holds them exactly."""
        return None

    def close(self) -> None:
        """Close its files."""


class Files(Source):
    """Tensors as their files hold them."""

    def read_raw(
        self, name: str, rows: tuple[int, int], columns: tuple[int, int] | None = None
    ) -> NDArray[Any]:
        """Rows ``start, stop``, and columns of them, of a tensor seen as rows of its last axis.

        Floats come as float32, 8-bit floats as their bits (uint8), integers as they are.
        """
        raise NotImplementedError


class RowTensor(Protocol):
    """A tensor that is decoded on the way: whole rows of its last axis."""

    @property
    def info(self) -> TensorInfo: ...

    def rows(self, start: int, stop: int) -> Floats:
        """Values ``[stop - start, width]``."""

    def stored(self) -> Stored | None: ...


class RowSource(Source):
    """Decoded tensors, and those of ``rest`` that are plain: presented name to its own."""

    def __init__(
        self, decoded: Mapping[str, RowTensor], rest: Source, plain: Mapping[str, str]
    ) -> None:
        self._decoded, self._rest, self._plain = decoded, rest, plain
        self.tensors = {ours: rest.tensors[theirs] for ours, theirs in plain.items()}
        self.tensors |= {name: tensor.info for name, tensor in decoded.items()}

    def row_dtype(self, name: str) -> np.dtype[Any]:
        if name in self._decoded:
            return np.dtype(np.float32)
        return self._rest.row_dtype(self._plain[name])

    def read_rows(self, name: str, start: int, out: Rows) -> None:
        tensor = self._decoded.get(name)
        if tensor is None:
            self._rest.read_rows(self._plain[name], start, out)
            return
        width = tensor.info.width
        first = start * out.shape[1]
        low, high = first // width, -(-(first + out.size) // width)
        flat = tensor.rows(low, high).reshape(-1)[first - low * width :]
        out[...] = flat[: out.size].reshape(out.shape)

    def stored(self, name: str) -> Stored | None:
        tensor = self._decoded.get(name)
        return None if tensor is None else tensor.stored()

    def close(self) -> None:
        self._rest.close()


def unique(known: Mapping[str, TensorInfo], name: str, path: Path) -> None:
    """CheckpointError when another file holds a tensor of this name, too."""
    if name in known:
        raise CheckpointError(str(path), name, f"is in {known[name].file.name}, too")
