"""SDAR and TraDo, dense and with sparse experts: Qwen3's trunk under a block mask.

Blocks of 4 (releases with a suffix: 8 to 64) count from position 0; a row's logits are its own
token's. Decoding: every position above the threshold, at least the scheduled number.
"""

from __future__ import annotations

from dataclasses import replace

from ..checkpoint import Checkpoint
from .base import Model
from .block_diffusion import BlockFamily
from .transformer import Trunk, read_trunk

_DENSE = Trunk("sdar", "SDARForCausalLM", qk_norm=True, head_dim=128)
_EXPERTS = replace(_DENSE, family="sdar_moe", architecture="SDARMoeForCausalLM", experts=True)
_BLOCKS = BlockFamily(
    block_size=4,
    mask_tokens=("<|MASK|>",),
    decode={"threshold": 0.9, "fixed_schedule": True},
    stop_tokens=("<|im_end|>", "<|endoftext|>"),
)


def read(checkpoint: Checkpoint) -> Model:
    """Spec, decode defaults and tensor table of a dense SDAR or TraDo checkpoint; no weight is
    read."""
    return read_trunk(checkpoint, _DENSE, _BLOCKS)


def read_moe(checkpoint: Checkpoint) -> Model:
    """The same of an SDAR-MoE checkpoint."""
    return read_trunk(checkpoint, _EXPERTS, _BLOCKS)
