"""Golden files and the scripts that stand beside them."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np

GOLDEN = Path(__file__).parent / "golden"


def maker_of(name: str) -> ModuleType:
    """The script ``make_{name}.py``, as a module."""
    spec = importlib.util.spec_from_file_location(f"make_{name}", GOLDEN / f"make_{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def golden_file(name: str) -> dict[str, np.ndarray]:
    """The arrays of ``{name}.npz``."""
    with np.load(GOLDEN / f"{name}.npz") as file:
        return dict(file)


def checksum(tensors: dict[str, np.ndarray]) -> str:
    """SHA-256 over names, shapes and float32 values: tells whether a maker draws other weights."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        value = np.ascontiguousarray(tensors[name], dtype="<f4")
        digest.update(f"{name} {value.shape}\n".encode() + value.tobytes())
    return digest.hexdigest()
