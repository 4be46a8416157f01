"""Qwen3.5 and Qwen3.6, dense and with sparse experts: the text part, autoregressive."""

from __future__ import annotations

from ..checkpoint import Checkpoint
from .base import Model
from .hybrid import read_hybrid, text_config


def read(checkpoint: Checkpoint) -> Model:
    """Spec, decode defaults and tensor table of a dense checkpoint; no weight is read."""
    return read_hybrid(checkpoint, text_config(checkpoint), "qwen3_5", sparse=False)


def read_moe(checkpoint: Checkpoint) -> Model:
    """The same of a checkpoint with experts."""
    return read_hybrid(checkpoint, text_config(checkpoint), "qwen3_5_moe", sparse=True)
