"""Fast-dLLM v2: Qwen2.5's trunk under a block mask, with the logits of an autoregressive head.

Blocks of 32 count from position 0, the row before a position decides it, and a block is finished
in sub-blocks of 8, from left to right.
"""

from __future__ import annotations

from ..checkpoint import Checkpoint
from .base import Model
from .block_diffusion import BlockFamily
from .transformer import Trunk, read_trunk

_TRUNK = Trunk("fast_dllm", "Fast_dLLM_QwenForCausalLM", in_bias=True, out_bias=False)
_BLOCKS = BlockFamily(
    block_size=32,
    block_keys=("bd_size", "block_size", "block_length"),
    mask_tokens=("|<MASK>|",),
    logit_shift=1,
    decode={"threshold": 0.9, "sub_block": 8},
    stop_tokens=("<|im_end|>",),
)


def read(checkpoint: Checkpoint) -> Model:
    """Spec, decode defaults and tensor table of a Fast-dLLM v2 checkpoint; no weight is read."""
    return read_trunk(checkpoint, _TRUNK, _BLOCKS)
