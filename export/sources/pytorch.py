"""PyTorch state dicts, through torch's memory-mapped, weights-only loading: never arbitrary
pickle."""

from __future__ import annotations

import warnings
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import CheckpointError, ExportError
from ..files import diagnose
from .base import Files, Rows, TensorInfo, unique


class TorchSource(Files):
    """The tensors of some state dicts."""

    def __init__(self, files: list[Path]) -> None:
        self._torch = _import_torch(files[0])
        self._values: dict[str, Any] = {}
        tensors: dict[str, TensorInfo] = {}
        for path in files:
            for name, value in self._load(path).items():
                unique(tensors, name, path)
                tensors[name] = self._info(path, name, value)
                self._values[name] = value
        self.tensors = tensors

    def read_rows(self, name: str, start: int, out: Rows) -> None:
        first = start * out.shape[1]
        flat = self._values[name].reshape(-1)[first : first + out.size]
        if out.dtype == np.uint16:
            flat, out = flat.view(self._torch.int16), out.view(np.int16)
        self._torch.from_numpy(out).view(-1).copy_(flat)

    def read_raw(
        self, name: str, rows: tuple[int, int], columns: tuple[int, int] | None = None
    ) -> NDArray[Any]:
        value = self._values[name]
        matrix = value.reshape(-1, self.tensors[name].width)[rows[0] : rows[1]]
        if columns is not None:
            matrix = matrix[:, columns[0] : columns[1]]
        if value.dtype == self._torch.float8_e4m3fn:
            matrix = matrix.view(self._torch.uint8)
        elif value.is_floating_point():
            matrix = matrix.float()
        raw: NDArray[Any] = matrix.contiguous().numpy()
        return raw

    def close(self) -> None:
        self._values.clear()

    def _load(self, path: Path) -> dict[str, Any]:
        try:
            with path.open("rb") as file:
                if reason := diagnose(file.read(256)):
                    raise CheckpointError(str(path), "file", reason)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                loaded = self._torch.load(path, map_location="cpu", mmap=True, weights_only=True)
        except OSError as problem:
            raise CheckpointError(str(path), "file", problem.strerror or str(problem)) from problem
        except UnpicklingError as problem:
            reason = "holds more than tensors and is refused: unpickling it could run any code"
            raise CheckpointError(str(path), "file", reason) from problem
        except (RuntimeError, ValueError, EOFError, KeyError) as problem:
            first = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
            reason = f"cannot be opened as a memory-mapped state dict ({first})"
            raise CheckpointError(str(path), "file", reason) from problem
        if isinstance(loaded, dict) and isinstance(loaded.get("state_dict"), dict):
            loaded = loaded["state_dict"]
        if not isinstance(loaded, dict) or not loaded:
            raise CheckpointError(
                str(path), "file", f"holds a {type(loaded).__name__}, no state dict"
            )
        return loaded

    def _info(self, path: Path, name: Any, value: Any) -> TensorInfo:
        torch = self._torch
        if not isinstance(name, str) or not isinstance(value, torch.Tensor):
            reason = f"is a {type(value).__name__}, not a tensor under a name"
            raise CheckpointError(str(path), str(name), reason)
        if value.layout is not torch.strided or value.is_quantized:
            raise CheckpointError(
                str(path), name, "is sparse or quantised; a plain tensor is needed"
            )
        known = {
            "BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32, "I8": torch.int8,
            "I32": torch.int32, "I64": torch.int64, "F8_E4M3": torch.float8_e4m3fn,
        }  # fmt: skip
        short = {kind: name for name, kind in known.items()}
        dtype = short.get(value.dtype, str(value.dtype).removeprefix("torch."))
        nbytes = value.numel() * value.element_size()
        return TensorInfo(dtype, tuple(value.shape), path, nbytes)


def _import_torch(path: Path) -> Any:
    try:
        import torch
    except ImportError as problem:
        raise ExportError(
            f"{path}: reading PyTorch files needs torch, which is not installed: "
            "pip install 'clover-edge[torch]'"
        ) from problem
    return torch
