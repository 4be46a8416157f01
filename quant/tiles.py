"""Tile layout 1: the order in which codes and scales of a quantised matrix lie in the file.

This module is the contract; kernels read exactly this. A matrix ``[n, k]`` with groups of ``g``
columns is cut into tiles of 16 rows (``n`` is padded with rows of scale 0). Bytes run tile by tile,
inside a tile group by group. A group is 32 bytes of scales (16 float16, little-endian, row 0 to 15)
and then vectors of 64 bytes. Byte 4r + j of every vector belongs to row r (0..15) and to column j
(0..3) of one or more quads; quad q of a group is its columns 4q .. 4q + 3.

    int8:       g/4 vectors; vector c is the signed codes of quad c. value = code * scale
    int4:       g/8 vectors; vector c holds the codes of quad 2c in its low nibbles and of quad
                2c + 1 in its high nibbles. value = (code - 8) * scale
    codebook4:  as int4. value = codebook[code] * scale
    int3:       g = 64. Four vectors of low bits: bits 2s, 2s + 1 of vector i (s in 0..3) are the
                two low bits of the codes of quad 4i + s. Then two vectors of high bits: bit s of
                vector i (s in 0..7) is the top bit of the codes of quad 8i + s.
                value = (code - 4) * scale

so a group takes 32 + 16g bytes (int8), 32 + 8g (int4, codebook4) or 416 (int3). Why: one 64-byte
load holds four consecutive columns of all 16 rows, which is what a 4-way int8 dot product
accumulates per lane, and the scales come just before the codes they belong to, so the file is read
as one stream. Padded rows hold code 0 (int8), 8 (int4, codebook4) or 4 (int3).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError
from .schemes import TILE_ROWS, Scheme

Bytes = NDArray[np.uint8]
Codes = NDArray[np.uint8] | NDArray[np.int8]
Halves = NDArray[np.float16]

PADDING_CODE = {"int8": 0, "int4": 8, "codebook4": 8, "int3": 4}
_SCALE_BYTES = 2 * TILE_ROWS
_VECTOR = (TILE_ROWS, 4)
_LOW_SHIFTS = np.arange(0, 8, 2, dtype=np.uint8)[:, None, None]
_HIGH_SHIFTS = np.arange(8, dtype=np.uint8)[:, None, None]


def pack(codes: Codes, scales: Halves, scheme: Scheme) -> Bytes:
    """Codes ``[n, k]`` (uint8, or int8 of int8) and scales ``[n, k/group]`` to the file's bytes."""
    n, k = codes.shape
    tiles, groups = -(-n // TILE_ROWS), k // scheme.group
    padding = ((0, tiles * TILE_ROWS - n), (0, 0))
    out = np.empty((tiles, groups, scheme.group_bytes), np.uint8)

    rows = np.pad(scales, padding).astype("<f2").reshape(tiles, TILE_ROWS, groups)
    out[:, :, :_SCALE_BYTES] = np.ascontiguousarray(rows.transpose(0, 2, 1)).view(np.uint8)

    flat: Bytes = codes.view(np.uint8)
    padded = np.pad(flat, padding, constant_values=PADDING_CODE[scheme.name])
    # [tile, group, quad, row, j]
    quads = padded.reshape(tiles, TILE_ROWS, groups, -1, 4).transpose(0, 2, 3, 1, 4)
    out[:, :, _SCALE_BYTES:] = _join(quads, scheme).reshape(tiles, groups, -1)
    return out.reshape(-1)


def unpack(data: Bytes, shape: tuple[int, int], scheme: Scheme) -> tuple[Codes, Halves]:
    """The inverse of ``pack``; ArgumentError when the byte count does not fit the shape."""
    n, k = shape
    if data.size != scheme.nbytes(shape):
        raise ArgumentError(f"{data.size} bytes, {scheme.nbytes(shape)} expected for {shape}")
    tiles, groups = -(-n // TILE_ROWS), k // scheme.group
    blocks = data.reshape(tiles, groups, scheme.group_bytes)
    stored = np.ascontiguousarray(blocks[:, :, :_SCALE_BYTES]).view("<f2")  # [tile, group, row]
    scales = stored.transpose(0, 2, 1).reshape(-1, groups)[:n].astype(np.float16)

    vectors = blocks[:, :, _SCALE_BYTES:].reshape(tiles, groups, -1, *_VECTOR)
    quads = _split(vectors, scheme)
    rows = np.ascontiguousarray(quads.transpose(0, 3, 1, 2, 4).reshape(-1, k)[:n])
    return rows.view(np.int8) if scheme.name == "int8" else rows, scales


def _join(quads: Bytes, scheme: Scheme) -> Bytes:
    """``[tile, group, quad, row, j]`` codes to ``[tile, group, vector, row, j]`` bytes."""
    head = quads.shape[:2]
    if scheme.name == "int8":
        return quads
    if scheme.name == "int3":
        low = (quads & 3).reshape(*head, 4, 4, *_VECTOR) << _LOW_SHIFTS
        high = (quads >> 2).reshape(*head, 2, 8, *_VECTOR) << _HIGH_SHIFTS
        vectors = [np.bitwise_or.reduce(bits, axis=3) for bits in (low, high)]
        return np.concatenate(vectors, axis=2)
    nibbles = quads[:, :, ::2] | (quads[:, :, 1::2] << 4)
    return nibbles.astype(np.uint8, copy=False)


def _split(vectors: Bytes, scheme: Scheme) -> Bytes:
    """The inverse of ``_join``."""
    head = vectors.shape[:2]
    if scheme.name == "int8":
        return vectors
    if scheme.name == "int3":
        low = (vectors[:, :, :4, None] >> _LOW_SHIFTS) & 3
        high = (vectors[:, :, 4:, None] >> _HIGH_SHIFTS) & 1
        quads = low.reshape(*head, -1, *_VECTOR) | (high.reshape(*head, -1, *_VECTOR) << 2)
        return quads.astype(np.uint8, copy=False)
    pairs = np.stack([vectors & 15, vectors >> 4], axis=3)  # [tile, group, vector, half, row, j]
    return pairs.reshape(*head, -1, *_VECTOR)
