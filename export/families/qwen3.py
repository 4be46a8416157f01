"""Qwen3, dense and with sparse experts: norms on the heads of q and k."""

from __future__ import annotations

from ..checkpoint import Checkpoint
from .base import Model
from .transformer import Trunk, read_trunk

_DENSE = Trunk("qwen3", "Qwen3ForCausalLM", qk_norm=True, head_dim=128)
_EXPERTS = Trunk("qwen3_moe", "Qwen3MoeForCausalLM", qk_norm=True, experts=True)


def read(checkpoint: Checkpoint) -> Model:
    """Spec, decode defaults and tensor table of a dense Qwen3 checkpoint; no weight is read."""
    return read_trunk(checkpoint, _DENSE)


def read_moe(checkpoint: Checkpoint) -> Model:
    """The same of a Qwen3-MoE checkpoint."""
    return read_trunk(checkpoint, _EXPERTS)
