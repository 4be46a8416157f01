"""Codes that a checkpoint is stored in already: which are kept, and their way into our tiles.

A tensor keeps its codes when one of our schemes holds those of all its pieces exactly, in no more
bits than the recipe spends on it; otherwise the recipe rounds its values anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ..errors import CheckpointError
from ..quant import tiles
from ..quant.schemes import CODE_BITS, TILE_ROWS, Scheme
from .checkpoint import Checkpoint
from .families import Piece
from .sources.affine import positive_scales
from .sources.base import Codes, Halves, Stored

_CHUNK = 1 << 20  # codes read at once

# Where a stored tensor's values come from.
KEPT = "kept"
REQUANTISED = "requantised"
DEQUANTISED = "dequantised"
FROM_FLOAT = "from float"
ORIGINS = (KEPT, REQUANTISED, DEQUANTISED, FROM_FLOAT)


Choose = Callable[[tuple[Piece, ...], Scheme], tuple[Scheme, str]]


def from_float(pieces: tuple[Piece, ...], wanted: Scheme) -> tuple[Scheme, str]:
    """The choice where nothing is quantised already."""
    return wanted, FROM_FLOAT


def choose(checkpoint: Checkpoint, pieces: tuple[Piece, ...], wanted: Scheme) -> tuple[Scheme, str]:
    """The scheme of a tensor that the recipe wants in ``wanted``, and its values' origin."""
    names = dict.fromkeys(piece.source for piece in pieces)
    if not any(checkpoint.tensors[name].packing for name in names):
        return wanted, FROM_FLOAT
    if not wanted.quantised:
        return wanted, DEQUANTISED
    held = [checkpoint.stored(name) for name in names]
    common = _common([each.scheme for each in held if each is not None])
    whole = None not in held
    if whole and common and CODE_BITS[common.name] <= CODE_BITS[wanted.name]:
        return common, KEPT
    return wanted, REQUANTISED


def _common(schemes: list[Scheme]) -> Scheme | None:
    """A scheme that holds the codes of all: their own, or int8, whose levels include all others."""
    if not schemes:
        return None
    group = min(scheme.group for scheme in schemes)
    kinds = {(scheme.name, scheme.codebook) for scheme in schemes}
    name, codebook = kinds.pop() if len(kinds) == 1 else ("int8", ())
    return Scheme(name, group, codebook)


def packed_rows(
    checkpoint: Checkpoint, pieces: tuple[Piece, ...], width: int, scheme: Scheme
) -> Iterator[tuple[memoryview, int]]:
    """Bytes of the pieces' own codes in ``scheme``, and how many weights they hold, in chunks of
    whole tiles. CheckpointError when a scale is not finite."""
    limit = max(1, _CHUNK // (width * TILE_ROWS)) * TILE_ROWS
    waiting: list[tuple[Codes, Halves]] = []
    rows = 0
    for piece in pieces:
        start = piece.start
        while start < piece.stop:
            take = min(piece.stop - start, limit - rows)
            waiting.append(_read(checkpoint, piece.source, start, start + take, scheme))
            start, rows = start + take, rows + take
            if rows == limit:
                yield _pack(waiting, scheme), rows * width
                waiting, rows = [], 0
    if rows:
        yield _pack(waiting, scheme), rows * width


def _pack(waiting: list[tuple[Codes, Halves]], scheme: Scheme) -> memoryview:
    codes = np.concatenate([codes for codes, _ in waiting])
    scales = np.concatenate([scales for _, scales in waiting])
    return tiles.pack(codes, scales, scheme).data


def _read(
    checkpoint: Checkpoint, name: str, start: int, stop: int, scheme: Scheme
) -> tuple[Codes, Halves]:
    held = checkpoint.stored(name)
    assert held is not None  # choose() looked
    codes, scales = held.read(start, stop)
    if not np.isfinite(scales).all():
        bad = scales[~np.isfinite(scales)][0]
        file = checkpoint.tensors[name].file
        raise CheckpointError(str(file), name, f"holds a scale of {bad}")
    return _convert(codes, scales, held, scheme)


def _convert(codes: Codes, scales: Halves, held: Stored, to: Scheme) -> tuple[Codes, Halves]:
    scales = np.repeat(scales, held.scheme.group // to.group, axis=1)
    if held.scheme.name == to.name:
        return codes, scales
    book = held.scheme.codebook or range(-8, 8)  # int4's levels
    return positive_scales(np.array(book, np.int8)[codes], scales)
