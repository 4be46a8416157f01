"""Llama 1 to 3 and what shares their layout (SmolLM2, TinyLlama …): no norms on q and k."""

from __future__ import annotations

from ..checkpoint import Checkpoint
from .base import Model
from .transformer import Trunk, read_trunk

_TRUNK = Trunk("llama", "LlamaForCausalLM")


def read(checkpoint: Checkpoint) -> Model:
    """Spec, decode defaults and tensor table of a Llama checkpoint; no weight is read."""
    return read_trunk(checkpoint, _TRUNK)
