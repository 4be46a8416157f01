"""A Hugging Face checkpoint folder, opened lazily: its configuration and its tensors."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import CheckpointError
from .files import parse_json
from .sources import (
    FLOAT_DTYPES,
    Opened,
    Rows,
    Stored,
    TensorInfo,
    WithTensor,
    add_preview,
    open_checkpoint,
)

Floats = NDArray[np.float32]


class Checkpoint:
    """Configuration and weights of whatever kind of file. A context manager: closes its files."""

    def __init__(
        self, path: str | Path | Opened, *, preview_tensors: str | Path | None = None
    ) -> None:
        """Reads configuration and headers, no weight. ``path``: a Hugging Face folder, a GGUF file
        or a folder with one, or what was opened otherwise; ``preview_tensors``: a folder that
        holds those of a Clover checkpoint which lost them.

        Raises CheckpointError naming the file, and the tensor or field in it, that is missing,
        truncated or contradicts itself; UnsupportedModelError naming a quantisation, block type or
        architecture that is not read.
        """
        opened = path if isinstance(path, Opened) else open_checkpoint(Path(path))
        self.path = opened.config_path.parent if isinstance(path, Opened) else Path(path)
        if preview_tensors is not None:
            try:
                opened = add_preview(opened, Path(preview_tensors))
            except BaseException:
                opened.source.close()
                raise
        self.config_path, self.config = opened.config_path, opened.config
        self.config_bytes, self._side = opened.config_bytes, opened.side
        self._source = opened.source
        self._stored: dict[str, Stored | None] = {}

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        return self._source.tensors

    @property
    def nbytes(self) -> int:
        return sum(info.nbytes for info in self.tensors.values())

    def side_file(self, name: str) -> bytes | None:
        """A file beside the configuration, or what stands for it in a GGUF file."""
        return self._side(name)

    def optional_json(self, name: str) -> dict[str, Any]:
        """A JSON file beside the configuration; empty when there is none."""
        data = self.side_file(name)
        return {} if data is None else parse_json(data, self.path / name)

    def with_tensor(self, name: str, values: Floats) -> Checkpoint:
        """This checkpoint and one more tensor, float32, which is in memory; shares its files."""
        other = copy(self)
        other._source, other._stored = WithTensor(self._source, name, values), {}
        return other

    def stored(self, name: str) -> Stored | None:
        """A tensor's own codes, where one of our schemes holds them exactly. Looks at scales, and
        at codes of 8 bits, when it is asked for the first time."""
        if name not in self._stored:
            self._stored[name] = self._source.stored(name)
        return self._stored[name]

    def row_dtype(self, name: str) -> np.dtype[Any]:
        """The type in which ``read_rows`` need not convert: float32, float16, or uint16 for the
        bits of bfloat16. CheckpointError when the tensor is none of these."""
        info = self.tensors[name]
        if info.dtype not in FLOAT_DTYPES:
            known = ", ".join(FLOAT_DTYPES)
            raise CheckpointError(str(info.file), name, f"dtype {info.dtype} is not one of {known}")
        return self._source.row_dtype(name)

    def read_rows(self, name: str, start: int, out: Rows) -> None:
        """Fill ``out [rows, width]``, of ``row_dtype`` or float32, with rows ``start ...`` of a
        tensor seen as rows of ``width``. Values may be NaN or infinite."""
        self._source.read_rows(name, start, out)

    def not_finite(self, name: str, row: int, column: int, value: float) -> CheckpointError:
        """The error that a value which is no number deserves."""
        reason = f"holds {value} (row {row}, column {column})"
        return CheckpointError(str(self.tensors[name].file), name, reason)

    def read(self, name: str) -> Floats:
        """A whole small tensor as a float32 vector; CheckpointError when a value is not finite."""
        self.row_dtype(name)
        out = np.empty((1, int(np.prod(self.tensors[name].shape, dtype=np.int64))), np.float32)
        self.read_rows(name, 0, out)
        for column in np.flatnonzero(~np.isfinite(out))[:1]:
            raise self.not_finite(name, 0, int(column), float(out[0, column]))
        return out.reshape(-1)

    def close(self) -> None:
        self._source.close()

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
