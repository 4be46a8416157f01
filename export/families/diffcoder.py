"""Stable-DiffCoder: Llama's trunk under a block mask.

The folder says ``model_type: llama``; its class tells it from an autoregressive Llama. Blocks of 4
count from position 0, a row's logits are its own token's, and the mask token is the tokenizer's.
"""

from __future__ import annotations

from ..checkpoint import Checkpoint
from .base import Model
from .block_diffusion import BlockFamily
from .transformer import Trunk, read_trunk

_TRUNK = Trunk("diffcoder", "StableDiffcoderForCausalLM")
_BLOCKS = BlockFamily(
    block_size=4,
    mask_tokens=("<[MASK_TOKEN]>",),
    decode={"threshold": 0.95},
)


def read(checkpoint: Checkpoint) -> Model:
    """Spec, decode defaults and tensor table of a Stable-DiffCoder checkpoint; no weight is
    read."""
    return read_trunk(checkpoint, _TRUNK, _BLOCKS)
