"""The bundled demo model: a small trained Clover checkpoint, packed on the user's machine."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from .errors import ArgumentError
from .text import TextCodec

CHECKPOINT = Path(__file__).parent / "demo_checkpoint"


def checkpoint_path() -> Path:
    """The checkpoint's folder; ArgumentError in a build that was made without it."""
    if not (CHECKPOINT / "config.json").is_file():
        raise ArgumentError(f"demo: this installation holds no demo checkpoint ({CHECKPOINT})")
    return CHECKPOINT


def pack(recipe: str = "int4") -> tempfile.TemporaryDirectory[str]:
    """Exports the checkpoint into a temporary folder, which the returned handle removes.

    The packed folder is `packed_path(handle)`.
    """
    from .export import export_checkpoint

    handle = tempfile.TemporaryDirectory(prefix="clover-edge-demo-")
    try:
        export_checkpoint(checkpoint_path(), packed_path(handle), recipe=recipe)
    except BaseException:
        handle.cleanup()
        raise
    return handle


def packed_path(handle: tempfile.TemporaryDirectory[str]) -> Path:
    """Where `pack` has put the model."""
    return Path(handle.name) / "model"


def is_demo(codec: TextCodec) -> bool:
    """Whether a model speaks the bundled demo model's tokens."""
    tokens = _tokens()
    return tokens is not None and codec.tokens() == tokens


@cache
def _tokens() -> dict[str, int] | None:
    path = CHECKPOINT / "tokenizer.json"
    return TextCodec(path).tokens() if path.is_file() else None
