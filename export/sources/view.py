"""A tensor seen through another name: some of its rows, rows or columns in another order, or a
function of its values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from ...quant.schemes import GROUPS, Scheme, Shape
from .base import Codes, Floats, Halves, RowTensor, Stored, TensorInfo

Order = NDArray[np.int64]


class View:
    """``shape``'s rows, from row ``first`` of ``tensor`` on, or those that ``order`` lists.

    ``columns``: column j is column ``columns[j]`` of the tensor. ``change`` maps values.
    """

    def __init__(
        self,
        tensor: RowTensor,
        shape: Shape,
        *,
        first: int = 0,
        order: Order | None = None,
        columns: Order | None = None,
        change: Callable[[Floats], Floats] | None = None,
    ) -> None:
        self._tensor, self._first, self._order = tensor, first, order
        self._columns, self._change = columns, change
        whole = tensor.info
        nbytes = whole.nbytes * prod(shape) // max(1, prod(whole.shape))
        self._info = replace(whole, shape=shape, nbytes=nbytes)

    @property
    def info(self) -> TensorInfo:
        return self._info

    def rows(self, start: int, stop: int) -> Floats:
        parts = [self._tensor.rows(*span) for span in self._spans(start, stop)]
        values = np.concatenate(parts) if len(parts) != 1 else parts[0]
        if self._columns is not None:
            values = values[:, self._columns]
        return values if self._change is None else self._change(values)

    def stored(self) -> Stored | None:
        held = None if self._change is not None else self._tensor.stored()
        if held is None:
            return None
        scheme = held.scheme
        if self._columns is not None:
            group = _whole_groups(self._columns, scheme.group)
            if group is None:
                return None
            scheme = Scheme(scheme.name, group, scheme.codebook)
        return Stored(scheme, lambda start, stop: self._codes(held, scheme, start, stop))

    def _codes(self, held: Stored, scheme: Scheme, start: int, stop: int) -> tuple[Codes, Halves]:
        parts = [held.read(*span) for span in self._spans(start, stop)]
        codes = np.concatenate([codes for codes, _ in parts])
        scales = np.concatenate([scales for _, scales in parts])
        if self._columns is not None:
            scales = np.repeat(scales, held.scheme.group // scheme.group, axis=1)
            scales = scales[:, self._columns[:: scheme.group] // scheme.group]
            codes = codes[:, self._columns]
        return codes, scales

    def _spans(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Runs of the tensor's rows, one after the other."""
        if self._order is None:
            yield self._first + start, self._first + stop
            return
        wanted = self._order[start:stop]
        cuts = np.flatnonzero(np.diff(wanted) != 1) + 1
        for run in np.split(wanted, cuts):
            yield int(run[0]), int(run[-1]) + 1


def _whole_groups(columns: Order, largest: int) -> int | None:
    """The widest group of columns that moves as a whole, if any does."""
    for group in reversed(GROUPS):
        if group <= largest and len(columns) % group == 0:
            blocks = columns.reshape(-1, group)
            together = (blocks == blocks[:, :1] + np.arange(group)).all()
            if together and (blocks[:, 0] % group == 0).all():
                return group
    return None


def paired_rows(heads: int, width: int) -> Order:
    """llama's converters put row i of a head's second half behind row i of its first: where each
    row of the halves lies then."""
    within = np.arange(width).reshape(-1, 2).T.reshape(-1)
    return (np.arange(heads)[:, None] * width + within).reshape(-1)
