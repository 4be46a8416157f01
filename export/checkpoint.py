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
from .sources import FLOAT_DTYPES, Source, TensorInfo, open_source

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

    def read_rows(self, name: str, start: int, out: Floats) -> None:
        """Fill ``out [rows, width]`` with rows ``start ...`` of a tensor seen as rows of ``width``.

        Raises CheckpointError when the tensor is not bf16, f16 or f32, or a value is NaN or
        infinite.
        """
        info = self.tensors[name]
        if info.dtype not in FLOAT_DTYPES:
            known = ", ".join(FLOAT_DTYPES)
            raise CheckpointError(str(info.file), name, f"dtype {info.dtype} is not one of {known}")
        self._source.read_rows(name, start, out)
        finite = np.isfinite(out)
        if not finite.all():
            row, column = np.argwhere(~finite)[0]
            reason = f"holds {out[row, column]} (row {start + row}, column {column})"
            raise CheckpointError(str(info.file), name, reason)

    def read(self, name: str) -> Floats:
        """A whole small tensor as a float32 vector."""
        out = np.empty((1, int(np.prod(self.tensors[name].shape, dtype=np.int64))), np.float32)
        self.read_rows(name, 0, out)
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
