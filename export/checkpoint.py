"""A Hugging Face checkpoint folder, opened lazily: its configuration and its tensors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import CheckpointError
from .files import parse_json, read_bytes, read_json
from .sources import FLOAT_DTYPES, Rows, Source, TensorInfo, open_source

Floats = NDArray[np.float32]


class Checkpoint:
    """A folder with ``config.json`` and weights. A context manager: closes its files."""

    def __init__(self, path: str | Path) -> None:
        """Reads configuration and headers, no weight.

        Raises CheckpointError naming the file, and the tensor or field in it, that is missing,
        truncated or contradicts itself.
        """
        self.path = Path(path)
        if not self.path.is_dir():
            reason = "is a file, not a folder" if self.path.exists() else "does not exist"
            raise CheckpointError(str(self.path), "folder", reason)
        self.config_path = self.path / "config.json"
        self.config_bytes = read_bytes(self.config_path)
        self.config: dict[str, Any] = parse_json(self.config_bytes, self.config_path)
        if "clover_edge" in self.config:
            reason = "is there already: this folder is packed; export its source instead"
            raise CheckpointError(str(self.config_path), "clover_edge", reason)
        self._source: Source = open_source(self.path)

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        return self._source.tensors

    @property
    def nbytes(self) -> int:
        return sum(info.nbytes for info in self.tensors.values())

    def optional_json(self, name: str) -> dict[str, Any]:
        """A JSON file beside the configuration; empty when there is none."""
        path = self.path / name
        return read_json(path) if path.exists() else {}

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
