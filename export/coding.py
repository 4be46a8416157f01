"""A checkpoint's rows, read a few at a time, to the bytes that are stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from ..errors import ArgumentError, CheckpointError
from ..quant import METHODS, Calibration, ErrorStats, Scheme, encode, settle
from ..quant.encode import from_bf16
from ..quant.schemes import TILE_ROWS
from .checkpoint import Checkpoint
from .families import Piece
from .sources import Rows

CHUNK = 1 << 22  # elements read at once


class Calibrations(Protocol):
    def __call__(self, name: str, expert: int | None) -> Calibration | None:
        """What is known of the activations that meet a matrix: ``name`` as in the packed folder
        (``layers.3.attn.in``, ``layers.3.experts.down``), and which expert's it is."""


@dataclass
class Coding:
    """How an export finds codes; counts the methods that its matrices got."""

    method: str = "rtn"
    calibrations: Calibrations | None = None
    threads: int = 0
    methods: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        """ArgumentError for a method that does not exist."""
        if self.method not in METHODS:
            known = ", ".join(METHODS)
            raise ArgumentError(f"unknown method {self.method!r}; known: {known}")

    def chunks(
        self,
        source: Checkpoint,
        name: str,
        expert: int | None,
        pieces: tuple[Piece, ...],
        width: int,
        scheme: Scheme,
        stats: ErrorStats,
    ) -> Iterator[tuple[memoryview, int]]:
        """Stored bytes of a matrix, top to bottom, and how many weights each chunk holds."""
        calibration = None
        if scheme.quantised:
            if self.calibrations is not None:
                calibration = self.calibrations(name, expert)
            self.methods[settle(self.method, calibration, self.threads)] += 1
        for start, rows in _row_chunks(source, pieces, width):
            try:
                data = encode(
                    rows,
                    scheme,
                    stats,
                    method=self.method,
                    calibration=calibration,
                    threads=self.threads,
                )
            except ArgumentError as problem:
                raise _refusal(source, pieces, start, rows, problem) from problem
            yield data.data, rows.size

    @property
    def warnings(self) -> list[str]:
        """What could not be done as it was asked for."""
        total = sum(self.methods.values())
        return [
            f"{count} of {total} matrices have no calibration that {self.method} can use: {method}"
            for method, count in sorted(self.methods.items())
            if method != self.method
        ]


def _row_chunks(
    source: Checkpoint, pieces: tuple[Piece, ...], width: int
) -> Iterator[tuple[int, Rows]]:
    """The pieces' rows, top to bottom, in chunks of whole tiles, as the checkpoint has them if all
    are of one type; the buffer is used again."""
    total = sum(piece.stop - piece.start for piece in pieces)
    limit = max(1, CHUNK // (width * TILE_ROWS)) * TILE_ROWS
    kinds = {source.row_dtype(piece.source) for piece in pieces}
    kind = kinds.pop() if len(kinds) == 1 else np.dtype(np.float32)
    buffer: Rows = np.empty((min(limit, total), width), kind)
    done = filled = 0
    for piece in pieces:
        start = piece.start
        while start < piece.stop:
            take = min(piece.stop - start, len(buffer) - filled)
            source.read_rows(piece.source, start, buffer[filled : filled + take])
            start, filled = start + take, filled + take
            if filled == len(buffer):
                yield done, buffer
                done, filled = done + filled, 0
    if filled:
        yield done, buffer[:filled]


def _refusal(
    source: Checkpoint, pieces: tuple[Piece, ...], start: int, rows: Rows, problem: ArgumentError
) -> CheckpointError:
    """Names the value that made ``rows``, row ``start`` of the pieces on, fail; or the tensors."""
    values = from_bf16(rows) if rows.dtype == np.uint16 else rows
    for row, column in np.argwhere(~np.isfinite(values))[:1]:
        value, row = float(values[row, column]), int(row) + start
        for piece in pieces:
            if row < piece.stop - piece.start:
                return source.not_finite(piece.source, piece.start + row, int(column), value)
            row -= piece.stop - piece.start
    names = ", ".join(dict.fromkeys(piece.source for piece in pieces))
    return CheckpointError(str(source.path), names, str(problem))
