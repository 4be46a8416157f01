"""GPTQ and AWQ: codes packed into int32 matrices that lie transposed, ``[k, n]``.

GPTQ: eight (or four) codes of consecutive *rows k* in an int32, lowest bits first; scales ``[k /
group, n]``; zero points packed along n, in format 1 one less than they are; ``g_idx`` names the
group of each column k. AWQ: eight codes of consecutive *columns n* in an int32, in the order 0, 2,
4, 6, 1, 3, 5, 7; zero points likewise.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import CheckpointError
from .affine import Affine, Bytes
from .base import Files, Floats, TensorInfo

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # column that the i-th lowest nibble belongs to
PARTS = ("qweight", "qzeros", "scales", "g_idx")


def unpack(words: NDArray[Any], bits: int) -> Bytes:
    """Codes ``[a, b * 32 / bits]`` of 4 or 8 bits from words ``[a, b]``, lowest bits first."""
    stored = np.ascontiguousarray(words).astype(words.dtype.newbyteorder("<"), copy=False)
    raw: Bytes = stored.view(np.uint8)
    if bits == 8:
        return raw
    codes = np.empty((raw.shape[0], 2 * raw.shape[1]), np.uint8)
    np.bitwise_and(raw, 15, out=codes[:, ::2])
    np.right_shift(raw, 4, out=codes[:, 1::2])
    return codes


class _Transposed(Affine):
    """What both layouts share: shapes are checked against each other, n runs along the columns."""

    def __init__(self, files: Files, base: str, k: int, n: int, bits: int, asked: int) -> None:
        self._files, self._base = files, base
        infos = [files.tensors[f"{base}.{part}"] for part in PARTS if self._has(part)]
        groups = files.tensors[f"{base}.scales"].shape[0]
        group = asked if asked > 0 else k
        if -(-k // group) != groups:
            reason = f"has {groups} rows: {k} columns in groups of {group} take {-(-k // group)}"
            raise self._refuse("scales", reason)
        self._expect("scales", (groups, n))
        self._expect("qzeros", (groups, n * bits // 32))
        packing = f"{self._layout} int{bits} g{group}"
        info = TensorInfo("F32", (n, k), infos[0].file, sum(x.nbytes for x in infos), packing)
        super().__init__(f"{base}.weight", info, bits, group)

    _layout = ""

    def _has(self, part: str) -> bool:
        return f"{self._base}.{part}" in self._files.tensors

    def _refuse(self, part: str, reason: str) -> CheckpointError:
        name = f"{self._base}.{part}"
        return CheckpointError(str(self._files.tensors[name].file), name, reason)

    def _expect(self, part: str, shape: tuple[int, ...]) -> None:
        found = self._files.tensors[f"{self._base}.{part}"].shape
        if found != shape:
            raise self._refuse(part, f"shape {list(found)}, {list(shape)} expected")

    def _block(self, part: str, start: int, stop: int) -> NDArray[np.int32]:
        name = f"{self._base}.{part}"
        rows = self._files.tensors[name].shape[0]
        block: NDArray[np.int32] = self._files.read_raw(name, (0, rows), (start, stop))
        return block

    def _columns(self, part: str, start: int, stop: int) -> Bytes:
        """Codes of columns ``start .. stop`` of a matrix ``[a, n]`` that is packed along its
        columns, as rows ``[stop - start, a]``."""
        per_word = 32 // self.bits
        first, last = start // per_word, -(-stop // per_word)
        codes = np.ascontiguousarray(unpack(self._block(part, first, last), self.bits).T)
        return self._in_order(codes)[start - first * per_word : stop - first * per_word]

    def _in_order(self, codes: Bytes) -> Bytes:
        """Rows of whole words, in the order of the matrix."""
        return codes

    def groups(self, start: int, stop: int) -> tuple[Floats, Floats]:
        name = f"{self._base}.scales"
        rows = self._files.tensors[name].shape[0]
        scales = self._files.read_raw(name, (0, rows), (start, stop))
        zeros = self._zeros(self._columns("qzeros", start, stop))
        return np.ascontiguousarray(scales.T), zeros.astype(np.float32)

    def _zeros(self, stored: Bytes) -> Bytes:
        return stored


class Gptq(_Transposed):
    """``base.qweight`` int32 ``[k * bits / 32, n]`` and its companions."""

    _layout = "gptq"

    def __init__(self, files: Files, base: str, bits: int, group: int, version: int) -> None:
        words, n = files.tensors[f"{base}.qweight"].shape
        self._version = version
        super().__init__(files, base, words * 32 // bits, n, bits, group)
        self._order = self._read_order() if self._has("g_idx") else None

    @property
    def column_groups(self) -> NDArray[np.int64] | None:
        return self._order

    def codes(self, start: int, stop: int) -> Bytes:
        return unpack(self._block("qweight", start, stop).T, self.bits)

    def _zeros(self, stored: Bytes) -> Bytes:
        # Format 1 keeps the zero point less one, within its bits: 0 becomes 2^bits - 1.
        if self._version == 1:
            stored = (stored + np.uint8(1)) & np.uint8((1 << self.bits) - 1)
        return stored

    def _read_order(self) -> NDArray[np.int64] | None:
        """g_idx, where it is more than column // group."""
        k = self.info.width
        self._expect("g_idx", (k,))
        order = self._files.read_raw(f"{self._base}.g_idx", (0, 1))[0].astype(np.int64)
        groups = self._files.tensors[f"{self._base}.scales"].shape[0]
        if ((order < 0) | (order >= groups)).any():
            raise self._refuse("g_idx", f"names groups outside 0 .. {groups - 1}")
        return None if (order == np.arange(k) // self.group).all() else order


class Awq(_Transposed):
    """``base.qweight`` int32 ``[k, n / 8]`` and its companions, "gemm" order."""

    _layout = "awq"

    def __init__(self, files: Files, base: str, bits: int, group: int) -> None:
        k, words = files.tensors[f"{base}.qweight"].shape
        super().__init__(files, base, k, words * 8, bits, group)

    def codes(self, start: int, stop: int) -> Bytes:
        return self._columns("qweight", start, stop)

    def _in_order(self, codes: Bytes) -> Bytes:
        places = np.argsort(AWQ_ORDER)  # of the columns 0 .. 7 within their word
        rows = np.arange(0, len(codes), 8)[:, None] + places
        ordered: Bytes = codes[rows.reshape(-1)]
        return ordered
