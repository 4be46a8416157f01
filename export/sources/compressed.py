"""Layouts that keep ``[n, k]``: compressed-tensors' integers, 8-bit floats with scales, MLX.

compressed-tensors packs signed codes plus 2^(bits-1) into int32, lowest bits first, along k (zero
points along n), or keeps int8 as it is; its scales are ``[n, k / group]``, ``[n, 1]`` or ``[1]``.
An 8-bit float has a scale for the tensor, a row, or a block. MLX packs codes into uint32 along k:
value = code * scale + bias.
"""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray

from ...errors import CheckpointError
from .affine import Affine, Bytes, Integers
from .base import Files, Floats, Stored, TensorInfo
from .int32_codes import unpack


def _refuse(files: Files, name: str, reason: str) -> CheckpointError:
    return CheckpointError(str(files.tensors[name].file), name, reason)


class _Scales:
    """Scales of rows and groups of columns, however many of either share one."""

    def __init__(self, files: Files, name: str, n: int, k: int, *, blocks: bool = False) -> None:
        self._files, self._name = files, name
        shape = files.tensors[name].shape
        rows, columns = (prod(shape[:-1]), shape[-1]) if len(shape) > 1 else (prod(shape), 1)
        whole = rows and columns and n % rows == 0 and k % columns == 0
        if not whole and not (blocks and rows and columns):
            raise _refuse(files, name, f"shape {list(shape)} does not fit a matrix [{n}, {k}]")
        self.count, self.groups = rows, columns
        self.height, self.group = -(-n // rows), -(-k // columns)

    def read(self, start: int, stop: int) -> NDArray[np.float32]:
        """``[stop - start, groups]``."""
        if self.count == 1:
            one = self._files.read_raw(self._name, (0, 1), (0, self.groups))
            return np.repeat(one, stop - start, axis=0)
        first, last = start // self.height, -(-stop // self.height)
        flat = len(self._files.tensors[self._name].shape) == 1
        if flat:
            held = self._files.read_raw(self._name, (0, 1), (first, last)).T
        else:
            held = self._files.read_raw(self._name, (first, last))
        rows = np.repeat(held, self.height, axis=0)[start - first * self.height :]
        return rows[: stop - start]


class Compressed(Affine):
    """compressed-tensors: ``weight_packed`` int32 ``[n, k * bits / 32]``, or ``weight`` int8."""

    def __init__(self, files: Files, base: str, shape: tuple[int, int], bits: int) -> None:
        self._files, self._base, (n, k) = files, base, shape
        self._packed = f"{base}.weight_packed" in files.tensors
        self._weight = f"{base}.weight_packed" if self._packed else f"{base}.weight"
        self._scale = _Scales(files, f"{base}.weight_scale", n, k)
        names = [self._weight, f"{base}.weight_scale"]
        self._zero = f"{base}.weight_zero_point"
        if self._zero in files.tensors:
            names.append(self._zero)
        infos = [files.tensors[name] for name in names]
        packing = f"compressed-tensors int{bits} g{self._scale.group}"
        info = TensorInfo("F32", shape, infos[0].file, sum(x.nbytes for x in infos), packing)
        super().__init__(f"{base}.weight", info, bits, self._scale.group)
        self._order = self._read_order(f"{base}.weight_g_idx")

    @property
    def column_groups(self) -> NDArray[np.int64] | None:
        return self._order

    def codes(self, start: int, stop: int) -> Bytes:
        raw = self._files.read_raw(self._weight, (start, stop))
        if self._packed:
            return unpack(raw, self.bits)[:, : self.info.width]
        shifted: Bytes = raw.view(np.uint8) ^ np.uint8(128)  # signed codes plus 128
        return shifted

    def groups(self, start: int, stop: int) -> tuple[Floats, Floats]:
        scales = self._scale.read(start, stop)
        middle = np.float32(1 << (self.bits - 1))
        if self._zero not in self._files.tensors:
            return scales, np.full_like(scales, middle)
        return scales, self._zeros(start, stop).astype(np.float32)

    def _zeros(self, start: int, stop: int) -> Bytes | Integers:
        """Zero points of unsigned codes."""
        info = self._files.tensors[self._zero]
        if info.dtype == "I8":
            signed = _Scales(self._files, self._zero, *self.info.shape).read(start, stop)
            return signed.astype(np.int16) + (1 << (self.bits - 1))
        per_word = 32 // self.bits
        first, last = start // per_word, -(-stop // per_word)
        expected = (-(-self.info.shape[0] // per_word), self._scale.groups)
        if info.shape != expected:
            reason = f"shape {list(info.shape)}, {list(expected)} expected"
            raise _refuse(self._files, self._zero, reason)
        words = self._files.read_raw(self._zero, (first, last))
        codes = unpack(words.T, self.bits).T
        return codes[start - first * per_word : stop - first * per_word]

    def _read_order(self, name: str) -> NDArray[np.int64] | None:
        if name not in self._files.tensors:
            return None
        order: NDArray[np.int64] = self._files.read_raw(name, (0, 1))[0].astype(np.int64)
        if (order == -1).all() or (order == np.arange(len(order)) // self.group).all():
            return None
        if len(order) != self.info.width or order.min() < 0 or order.max() >= self._scale.groups:
            reason = f"is no list of {self.info.width} groups below {self._scale.groups}"
            raise _refuse(self._files, name, reason)
        return order


class Float8:
    """Float8 e4m3 ``[n, k]``, or a stack ``[E, n, k]`` of whole blocks, times a scale for the
    tensor, a row, or a block."""

    def __init__(self, files: Files, name: str, scale: str, block: tuple[int, int] | None) -> None:
        self._files, self._weight = files, name
        weight, scales = files.tensors[name], files.tensors[scale]
        *stack, n, k = weight.shape
        self._scale = _Scales(files, scale, prod([*stack, n]), k, blocks=block is not None)
        if block is not None:
            expected = (*stack, -(-n // block[0]), -(-k // block[1]))
            if scales.shape != expected or (stack and n % block[0]):
                reason = f"shape {list(scales.shape)}, {list(expected)} expected"
                raise _refuse(files, scale, f"{reason}: blocks of {list(block)}")
            self._scale.height, self._scale.group = block
        nbytes = weight.nbytes + scales.nbytes
        self._info = TensorInfo("F32", weight.shape, weight.file, nbytes, "float8 e4m3")

    @property
    def info(self) -> TensorInfo:
        return self._info

    def rows(self, start: int, stop: int) -> Floats:
        values: Floats = _E4M3[self._files.read_raw(self._weight, (start, stop))]
        scales = self._scale.read(start, stop)
        values *= np.repeat(scales, self._scale.group, axis=1)[:, : self.info.width]
        return values

    def stored(self) -> Stored | None:
        return None


class Mlx(Affine):
    """MLX: ``weight`` uint32 ``[..., k * bits / 32]``, ``scales`` and ``biases`` ``[..., k / g]``;
    leading axes are flattened into rows."""

    def __init__(self, files: Files, base: str, bits: int, group: int) -> None:
        self._files, self._names = files, [f"{base}.{x}" for x in ("weight", "scales", "biases")]
        weight, scales, biases = (files.tensors[name] for name in self._names)
        k = weight.width * 32 // bits
        expected = (*weight.shape[:-1], k // group)
        for name, found in zip(self._names[1:], (scales, biases), strict=True):
            if found.shape != expected or k % group:
                reason = f"shape {list(found.shape)}, {list(expected)} expected: groups of {group}"
                raise _refuse(files, name, reason)
        nbytes = weight.nbytes + scales.nbytes + biases.nbytes
        shape, packing = (*weight.shape[:-1], k), f"mlx int{bits} g{group}"
        super().__init__(
            f"{base}.weight", TensorInfo("F32", shape, weight.file, nbytes, packing), bits, group
        )

    def codes(self, start: int, stop: int) -> Bytes:
        return unpack(self._files.read_raw(self._names[0], (start, stop)), self.bits)

    def groups(self, start: int, stop: int) -> tuple[Floats, Floats]:
        """A bias that is the scale times a whole number is a zero point, of the other sign."""
        scales, biases = self._floats(start, stop)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            zeros = np.rint(-biases / scales)
            zeros[zeros * scales != -biases] = np.nan
        zeros[(scales == 0) & (biases == 0)] = 1 << (self.bits - 1)  # any will do
        return scales, zeros

    def rows(self, start: int, stop: int) -> Floats:
        scales, biases = (self.by_column(x) for x in self._floats(start, stop))
        values: Floats = self.codes(start, stop).astype(np.float32)
        values *= scales
        values += biases
        return values

    def _floats(self, start: int, stop: int) -> tuple[Floats, Floats]:
        scales, biases = (self._files.read_raw(x, (start, stop)) for x in self._names[1:])
        return scales, biases


def _e4m3() -> NDArray[np.float32]:
    """Values of all 256 bit patterns of float8 e4m3 (no infinities; 0x7f and 0xff are NaN)."""
    bits = np.arange(256)
    exponent, mantissa = bits >> 3 & 15, bits & 7
    normal = np.ldexp(1 + mantissa / 8, exponent - 7)
    value = np.where(exponent, normal, np.ldexp(mantissa / 8, -6))
    value[(bits & 127) == 127] = np.nan
    return np.where(bits < 128, value, -value).astype(np.float32)


_E4M3 = _e4m3()
