"""A source, and one more tensor that no file holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from .base import Floats, Rows, Source, Stored, TensorInfo


class WithTensor(Source):
    """``values`` under ``name``; everything else is the other source's, files included."""

    def __init__(self, other: Source, name: str, values: Floats) -> None:
        self._other, self._name, self._values = other, name, values
        info = TensorInfo("F32", values.shape, Path("memory"), values.nbytes)
        self.tensors = {**other.tensors, name: info}

    def row_dtype(self, name: str) -> np.dtype[Any]:
        return self._values.dtype if name == self._name else self._other.row_dtype(name)

    def read_rows(self, name: str, start: int, out: Rows) -> None:
        if name == self._name:
            out[...] = self._values.reshape(-1, out.shape[-1])[start : start + len(out)]
        else:
            self._other.read_rows(name, start, out)

    def stored(self, name: str) -> Stored | None:
        return None if name == self._name else self._other.stored(name)
