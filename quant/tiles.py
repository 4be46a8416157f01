"""Tile layout 1: the order in which codes and scales of a quantised matrix lie in the file.

This module is the contract; kernels read exactly this. A matrix ``[n, k]`` with groups of ``g``
columns is cut into tiles of 16 rows (``n`` is padded with rows of scale 0). Bytes run tile by tile,
inside a tile group by group, and a group is

    32 bytes          16 float16 scales, little-endian, row 0 to 15
    int4: g/8 chunks  of 64 bytes; chunk c covers columns 8c .. 8c+7 of the group. Byte 4r + j
                      (row r in 0..15, j in 0..3) holds the code of (r, 8c + j) in its low nibble
                      and of (r, 8c + 4 + j) in its high nibble. value = (code - 8) * scale
    int8: g/4 chunks  of 64 bytes; chunk c covers columns 4c .. 4c+3. Byte 4r + j is the signed
                      code of (r, 4c + j). value = code * scale

so a group takes 32 + 8g bytes (int4) or 32 + 16g (int8). Why: one 64-byte load holds four
consecutive columns of all 16 rows, which is what a 4-way int8 dot product accumulates per lane,
and the scales come just before the codes they belong to, so the file is read as one stream.
Padded rows hold code 8 (int4) or 0 (int8): zero even without the scale.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError
from .schemes import TILE_ROWS, Scheme

Bytes = NDArray[np.uint8]
Codes = NDArray[np.uint8] | NDArray[np.int8]
Halves = NDArray[np.float16]

_SCALE_BYTES = 2 * TILE_ROWS


def pack(codes: Codes, scales: Halves, scheme: Scheme) -> Bytes:
    """Codes ``[n, k]`` (uint8 0..15, or int8) and scales ``[n, k/group]`` to the file's bytes."""
    n, k = codes.shape
    tiles, groups = -(-n // TILE_ROWS), k // scheme.group
    padding = ((0, tiles * TILE_ROWS - n), (0, 0))
    out = np.empty((tiles, groups, scheme.group_bytes), np.uint8)

    rows = np.pad(scales, padding).astype("<f2").reshape(tiles, TILE_ROWS, groups)
    out[:, :, :_SCALE_BYTES] = np.ascontiguousarray(rows.transpose(0, 2, 1)).view(np.uint8)

    zero = 8 if scheme.name == "int4" else 0
    flat: Bytes = codes.view(np.uint8)
    padded = np.pad(flat, padding, constant_values=zero)
    if scheme.name == "int4":
        # [tile, row, group, chunk, half, j]: halves share a byte
        halves = padded.reshape(tiles, TILE_ROWS, groups, scheme.group // 8, 2, 4)
        low, high = halves[:, :, :, :, 0], halves[:, :, :, :, 1]
        quads: Bytes = (low | (high << 4)).astype(np.uint8, copy=False)
    else:
        quads = padded.reshape(tiles, TILE_ROWS, groups, scheme.group // 4, 4)
    chunks = quads.transpose(0, 2, 3, 1, 4)  # [tile, group, chunk, row, j]
    out[:, :, _SCALE_BYTES:] = chunks.reshape(tiles, groups, -1)
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

    quads = blocks[:, :, _SCALE_BYTES:].reshape(tiles, groups, -1, TILE_ROWS, 4)
    rows = quads.transpose(0, 3, 1, 2, 4)  # [tile, row, group, chunk, j]
    if scheme.name == "int8":
        return np.ascontiguousarray(rows.reshape(-1, k)[:n]).view(np.int8), scales
    halves = np.stack([rows & 15, rows >> 4], axis=4)  # [tile, row, group, chunk, half, j]
    return np.ascontiguousarray(halves.reshape(-1, k)[:n]), scales
