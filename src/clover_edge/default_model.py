"""The model that the module-level functions use: given, named by CLOVER_MODEL, or bundled."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from . import demo
from .errors import ArgumentError
from .model import Model, load

MODEL_VARIABLE = "CLOVER_MODEL"


@contextmanager
def opened(model: Model | str | Path | None) -> Iterator[Model]:
    """A model given stays open, one opened from a path is closed, the bundled one is kept."""
    if isinstance(model, Model):
        yield model
        return
    if model is not None and not isinstance(model, (str, os.PathLike)):
        raise ArgumentError(f"model: {type(model).__name__} is neither a Model nor a path")
    path = model or os.environ.get(MODEL_VARIABLE)
    if path:
        with load(path) as ready:
            yield ready
    else:
        yield _bundled()[0]


@contextmanager
def located(path: str | Path | None) -> Iterator[tuple[str | Path, bool]]:
    """A packed folder: the one given, that of CLOVER_MODEL, or the bundled model, packed for as
    long as the context lasts. Also whether it is the bundled one."""
    named = path or os.environ.get(MODEL_VARIABLE)
    if named:
        yield named, False
        return
    handle = demo.pack()
    with handle:
        yield demo.packed_path(handle), True


@lru_cache(maxsize=1)
def _bundled() -> tuple[Model, TemporaryDirectory[str]]:
    handle = demo.pack()  # lives, and its folder with it, as long as the cache
    path = demo.packed_path(handle)
    print(
        f"clover-edge: no model named, using the bundled demo model (packed to {path})",
        file=sys.stderr,
    )
    return load(path), handle
