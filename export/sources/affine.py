"""Integer codes with a scale, and a zero point or none, for each group of columns.

All integer layouts come down to this: value = (code - zero) * scale. A layout's own class says
where codes, scales and zeros lie; here they become floats, or codes of our schemes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from math import prod

import numpy as np
from numpy.typing import NDArray

from ...errors import CheckpointError
from ...quant.schemes import GROUPS, Scheme
from .base import Codes, Floats, Halves, Stored, TensorInfo

Bytes = NDArray[np.uint8]
Integers = NDArray[np.int16]
_CHUNK = 1 << 20  # codes looked at together


class Affine(ABC):
    """A matrix ``[n, k]`` of ``bits``-bit codes, a scale and a zero point for ``group`` columns."""

    def __init__(self, name: str, info: TensorInfo, bits: int, group: int) -> None:
        self.name, self._info, self.bits, self.group = name, info, bits, group
        self._held: Stored | None = None
        self._looked = False

    @property
    def info(self) -> TensorInfo:
        return self._info

    @abstractmethod
    def codes(self, start: int, stop: int) -> Bytes:
        """Codes ``[rows, k]``, from 0 to 2^bits - 1."""

    @abstractmethod
    def groups(self, start: int, stop: int) -> tuple[Floats, Floats]:
        """Scales and zero points ``[rows, groups]``; a zero point that is no integer is NaN."""

    @property
    def column_groups(self) -> NDArray[np.int64] | None:
        """The group of each column, where groups are no runs of columns."""
        return None

    def rows(self, start: int, stop: int) -> Floats:
        scales, zeros = (self.by_column(x) for x in self.groups(start, stop))
        values: Floats = self.codes(start, stop).astype(np.float32)
        values -= zeros
        values *= scales
        return values

    def by_column(self, grouped: Floats) -> Floats:
        """What holds for a group ``[rows, groups]``, for each of its columns ``[rows, k]``."""
        if self.column_groups is not None:
            return grouped[:, self.column_groups]
        return np.repeat(grouped, self.group, axis=1)[:, : self.info.width]

    def stored(self) -> Stored | None:
        if not self._looked:
            self._looked, self._held = True, self._find()
        return self._held

    def _find(self) -> Stored | None:
        """int4 where every zero point is 8, else int8 where codes less zeros fit; groups that are
        longer than ours are cut, their scale repeated. None when a scale is no float16."""
        group = next((g for g in reversed(GROUPS) if self.group % g == 0), None)
        if group is None or self.info.width % self.group or self.column_groups is not None:
            return None
        all_eights, low, high = self.bits == 4, 0.0, 0.0
        for start, stop in self._chunks():
            scales, zeros = self.groups(start, stop)
            self._check(scales)
            if not _halves(scales) or not (zeros == np.rint(zeros)).all():
                return None
            all_eights = all_eights and bool((zeros == 8).all())
            low, high = min(low, -float(zeros.max())), max(high, -float(zeros.min()))
        if all_eights:
            return Stored(Scheme("int4", group), self._int4)
        fits = low >= -127 and high + (1 << self.bits) - 1 <= 127
        if fits or all(self._small(*chunk) for chunk in self._chunks()):
            return Stored(Scheme("int8", group), self._int8)
        return None

    def _chunks(self) -> Iterator[tuple[int, int]]:
        total, width = prod(self.info.shape[:-1]), self.info.width
        step = max(1, _CHUNK // width)
        for start in range(0, total, step):
            yield start, min(start + step, total)

    def _check(self, scales: Floats) -> None:
        if not np.isfinite(scales).all():
            bad = scales[~np.isfinite(scales)][0]
            raise CheckpointError(str(self.info.file), self.name, f"holds a scale of {bad}")

    def _small(self, start: int, stop: int) -> bool:
        return bool((np.abs(self._levels(start, stop)) <= 127).all())

    def _levels(self, start: int, stop: int) -> Integers:
        zeros = self.groups(start, stop)[1].astype(np.int16)
        levels: Integers = self.codes(start, stop).astype(np.int16)
        levels -= np.repeat(zeros, self.group, axis=1)
        return levels

    def _scales(self, start: int, stop: int, scheme_group: int) -> Halves:
        scales = self.groups(start, stop)[0].astype(np.float16)
        return np.repeat(scales, self.group // scheme_group, axis=1)

    def _int4(self, start: int, stop: int) -> tuple[Codes, Halves]:
        return self.codes(start, stop), self._scales(start, stop, self._cut)

    def _int8(self, start: int, stop: int) -> tuple[Codes, Halves]:
        levels = self._levels(start, stop).astype(np.int8)
        return positive_scales(levels, self._scales(start, stop, self._cut))

    @property
    def _cut(self) -> int:
        return next(g for g in reversed(GROUPS) if self.group % g == 0)


def positive_scales(codes: NDArray[np.int8], scales: Halves) -> tuple[Codes, Halves]:
    """int8's scales are >= 0: where one is not, it and the codes of its group change sign."""
    negative = np.signbit(scales)
    if negative.any():
        group = codes.shape[1] // scales.shape[1]
        flip = np.repeat(negative, group, axis=1)
        codes, scales = np.where(flip, -codes, codes), np.abs(scales)
    return codes, scales


def _halves(scales: Floats) -> bool:
    with np.errstate(over="ignore"):
        return bool((scales.astype(np.float16).astype(np.float32) == scales).all())
