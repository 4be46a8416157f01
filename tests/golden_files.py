"""Golden files and the scripts that stand beside them."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

GOLDEN = Path(__file__).parent / "golden"
MARGIN = 1e-4  # least distance of a decision to another one, where a file does not say otherwise


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


def save(name: str, arrays: dict[str, Any]) -> None:
    """Writes ``{name}.npz``."""
    path = GOLDEN / f"{name}.npz"
    np.savez_compressed(path, **arrays)
    print(f"{path.name}: {path.stat().st_size} bytes")


def versions() -> str:
    """Of what a golden file was made with."""
    import torch
    import transformers

    return f"transformers {transformers.__version__}, torch {torch.__version__}"


def drawn(
    make: Callable[..., dict[str, np.ndarray]], *arguments: Any, **options: Any
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """(tensors, parsed ``config.json``) of the tiny checkpoint that ``make`` writes."""
    with tempfile.TemporaryDirectory() as folder:
        tensors = make(folder, *arguments, **options)
        return tensors, json.loads((Path(folder) / "config.json").read_text())


def checksum(tensors: dict[str, np.ndarray]) -> str:
    """SHA-256 over names, shapes and float32 values: tells whether a maker draws other weights."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        value = np.ascontiguousarray(tensors[name], dtype="<f4")
        digest.update(f"{name} {value.shape}\n".encode() + value.tobytes())
    return digest.hexdigest()


def assert_clear(case: str, margin: float, least: float = MARGIN) -> None:
    """That no decision of a case's text is so close that rounding may turn it."""
    assert margin > least, f"{case}: a decision is too close to call; change its seed"


def text_arrays(case: str, text: Any) -> dict[str, Any]:
    """What is kept of an oracle's ``text``: ids, and the positions that each step accepted."""
    accepted = [len(step) for step in text.changed]
    print(f"{case}: {text.ids}, {accepted} accepted, margin {text.margin:.1e}", flush=True)
    assert_clear(case, text.margin)
    return {f"{case}: ids": text.ids, f"{case}: changed": json.dumps(text.changed)}
