"""Qwen3-Next: the hybrid trunk with DeltaNet's inputs in two tensors, key head by key head."""

from __future__ import annotations

from ..checkpoint import Checkpoint
from .base import Model
from .hybrid import read_hybrid, text_config


def read(checkpoint: Checkpoint) -> Model:
    """Spec, decode defaults and tensor table of a checkpoint; no weight is read."""
    return read_hybrid(checkpoint, text_config(checkpoint), "qwen3_next", sparse=True)
