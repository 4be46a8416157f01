"""What the graphs multiply by: planned while they are built, then written to one file as a stream.

Both body graphs and the head ask for the same tensors; each is planned, and stored, once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import ExportError
from ..weights import Progress
from .numbers import BITS, offset_codes, pack_codes
from .packed import PackedTensors

DATA_NAME = "model.onnx.data"
_SMALL, _PAGE = 64, 4096  # alignments; runtimes map what is large and starts on a page

Pieces = Callable[[], Iterator[Any]]  # arrays, whose bytes follow one another


@dataclass(frozen=True)
class Initializer:
    """A tensor of the data file: its element type in ONNX's words, its place."""

    name: str
    kind: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int
    pieces: Pieces


@dataclass(frozen=True)
class Matrix:
    """[rows, columns]: values (bits 0; `kind` FLOAT or BFLOAT16), or codes [rows, columns / block,
    block * bits / 8] and scales [rows, columns / block]. Both are names of initializers."""

    rows: int
    columns: int
    values: str
    kind: str = "FLOAT"
    scales: str = ""
    bits: int = 0
    block: int = 0


@dataclass(frozen=True)
class Experts:
    """Interleaved gate and up rows [E, 2I, H], and down [E, H, I]; as a Matrix, by expert."""

    gate_up: str
    down: str
    gate_up_scales: str = ""
    down_scales: str = ""
    bits: int = 0
    block: int = 0


_ITEM = {"FLOAT": 4, "BFLOAT16": 2, "UINT8": 1}


class Weights:
    """Initializers made from a packed folder's tensors."""

    def __init__(self, tensors: PackedTensors) -> None:
        self._tensors = tensors
        self._planned: dict[str, Initializer] = {}
        self.nbytes = 0

    def __getitem__(self, name: str) -> Initializer:
        return self._planned[name]

    def vector(self, name: str, *, offset: float = 0.0, transposed: bool = False) -> str:
        """A small float tensor, to which `offset` is added: norms are w + offset."""
        shape = self._tensors.shape(name)

        def pieces() -> Iterator[Any]:
            value = self._tensors.vector(name)
            yield (value.T if transposed else value) + np.float32(offset)

        return self._plan(name, "FLOAT", shape[::-1] if transposed else shape, pieces)

    def matrix(self, name: str) -> Matrix:
        n, k = self._tensors.shape(name)
        scheme = self._tensors.scheme(name)
        if not scheme.quantised:
            kind = "FLOAT" if scheme.name == "f32" else "BFLOAT16"
            values = self._plan(name, kind, (n, k), lambda: self._tensors.raw(name))
            return Matrix(n, k, values, kind)
        bits, block = BITS[scheme.name], scheme.group

        def codes() -> Iterator[Any]:
            for found, _ in self._tensors.codes(name):
                yield pack_codes(offset_codes(found, scheme, bits), bits)

        def scales() -> Iterator[Any]:
            for _, found in self._tensors.codes(name):
                yield found.astype(np.float32)

        blocks = k // block
        stored = self._plan(f"{name}.codes", "UINT8", (n, blocks, block * bits // 8), codes)
        sizes = self._plan(f"{name}.scales", "FLOAT", (n, blocks), scales)
        return Matrix(n, k, stored, "UINT8", sizes, bits, block)

    def expert_values(self, name: str) -> tuple[str, bool]:
        """One part of an expert stack in float32 [E, n, k], and whether its codes are quantised."""
        shape = self._tensors.shape(name)

        def pieces() -> Iterator[Any]:
            for expert in range(shape[0]):
                yield from self._tensors.values(name, expert)

        return self._plan(name, "FLOAT", shape, pieces), self._tensors.scheme(name).quantised

    def experts(self, name: str) -> Experts:
        """Of parts of different widths all take the largest, and the smallest group: no value
        changes. With a part in float all are."""
        parts = [f"{name}.{part}" for part in ("gate", "up", "down")]
        schemes = [self._tensors.scheme(part) for part in parts]
        count, inner, hidden = self._tensors.shape(parts[0])
        both, down = (count, 2 * inner, hidden), (count, hidden, inner)
        if not all(scheme.quantised for scheme in schemes):
            return Experts(*self._expert_stacks(name, "", "FLOAT", (both, down), self._values))
        bits = max(BITS[scheme.name] for scheme in schemes)
        block = min(scheme.group for scheme in schemes)

        def codes(part: str, expert: int) -> Any:
            found = np.concatenate([pair[0] for pair in self._tensors.codes(part, expert)])
            return pack_codes(offset_codes(found, self._tensors.scheme(part), bits), bits)

        def scales(part: str, expert: int) -> Any:
            found = np.concatenate([pair[1] for pair in self._tensors.codes(part, expert)])
            times = self._tensors.scheme(part).group // block
            return np.repeat(found.astype(np.float32), times, axis=1)

        stored = [(*shape[:2], shape[2] * bits // 8) for shape in (both, down)]
        blocks = [(*shape[:2], shape[2] // block) for shape in (both, down)]
        return Experts(
            *self._expert_stacks(name, ".codes", "UINT8", stored, codes),
            *self._expert_stacks(name, ".scales", "FLOAT", blocks, scales),
            bits,
            block,
        )

    def write(self, folder: Path, progress: Progress | None = None) -> None:
        """The data file; memory holds a chunk, or one expert, at a time."""
        with (folder / DATA_NAME).open("wb") as file:
            done = 0
            for item in self._planned.values():
                file.write(bytes(item.offset - done))
                done = item.offset
                for piece in item.pieces():
                    data = np.ascontiguousarray(piece)
                    file.write(data.data)
                    done += data.nbytes
                if done != item.offset + item.nbytes:
                    raise ExportError(
                        f"{item.name}: {done - item.offset} bytes, {item.nbytes} were planned"
                    )
                if progress:
                    progress(done, self.nbytes, item.name)
            file.flush()
            os.fsync(file.fileno())

    def _plan(self, name: str, kind: str, shape: tuple[int, ...], pieces: Pieces) -> str:
        if name not in self._planned:
            nbytes = int(np.prod(shape, dtype=np.int64)) * _ITEM[kind]
            offset = self.nbytes + -self.nbytes % (_PAGE if nbytes >= _PAGE else _SMALL)
            self._planned[name] = Initializer(name, kind, shape, offset, nbytes, pieces)
            self.nbytes = offset + nbytes
        return name

    def _values(self, part: str, expert: int) -> Any:
        return np.concatenate(list(self._tensors.values(part, expert)))

    def _expert_stacks(
        self,
        name: str,
        what: str,
        kind: str,
        shapes: Sequence[tuple[int, ...]],
        read: Callable[[str, int], Any],
    ) -> tuple[str, str]:
        """Of gate and up, a row of each in turn, and of down; `read` gives one expert's rows."""
        both, down = shapes

        def pairs() -> Iterator[Any]:
            for expert in range(both[0]):
                yield np.stack([read(f"{name}.{part}", expert) for part in ("gate", "up")], axis=1)

        def downs() -> Iterator[Any]:
            for expert in range(down[0]):
                yield read(f"{name}.down", expert)

        return (
            self._plan(f"{name}.gate_up{what}", kind, both, pairs),
            self._plan(f"{name}.down{what}", kind, down, downs),
        )
