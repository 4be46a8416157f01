"""Qwen2 and Qwen2.5, dense: biases on q, k and v."""

from __future__ import annotations

from ..checkpoint import Checkpoint
from .base import Model
from .transformer import Trunk, read_trunk

_TRUNK = Trunk("qwen2", "Qwen2ForCausalLM", in_bias=True, out_bias=False)


def read(checkpoint: Checkpoint) -> Model:
    """Spec, decode defaults and tensor table of a Qwen2 checkpoint; no weight is read."""
    return read_trunk(checkpoint, _TRUNK)
