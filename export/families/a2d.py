"""A2D: Llama, Qwen2, Qwen3 and Qwen3.5 converted to block diffusion (BD3-LM) by dLLM.

Blocks are counted from where the prompt ends, a row's logits are its own token's, and one position
a step is accepted. A folder need not say how wide its blocks are; conversions for full attention
(MDLM) share the classes and have no cache, so they cannot be told apart. Of Qwen3.5 (arcLM) only
the attention layers see their block as a whole: DeltaNet stays causal.
"""

from __future__ import annotations

from dataclasses import replace

from ..checkpoint import Checkpoint
from ..fields import Fields
from .base import Model
from .block_diffusion import BlockFamily
from .hybrid import read_hybrid, text_config
from .transformer import Trunk, read_trunk

_LLAMA = Trunk("a2d", "A2DLlamaLMHeadModel")
_QWEN2 = Trunk("a2d", "A2DQwen2LMHeadModel", in_bias=True, out_bias=False)
_QWEN3 = Trunk("a2d", "A2DQwen3LMHeadModel", qk_norm=True, head_dim=128)
_BLOCKS = BlockFamily(
    block_size=32,
    block_origin="prompt_end",
    mask_tokens=("<|mask|>",),
    stop_tokens=("<|im_end|>", "<|endoftext|>"),
    decode={"threshold": 1.0},
)
_HYBRID = replace(_BLOCKS, block_size=64)


def read_llama(checkpoint: Checkpoint) -> Model:
    """Spec, decode defaults and tensor table of a converted Llama; no weight is read."""
    return _read(checkpoint, _LLAMA)


def read_qwen2(checkpoint: Checkpoint) -> Model:
    """The same of a Qwen2."""
    return _read(checkpoint, _QWEN2)


def read_qwen3(checkpoint: Checkpoint) -> Model:
    """The same of a Qwen3."""
    return _read(checkpoint, _QWEN3)


def read_qwen3_5(checkpoint: Checkpoint) -> Model:
    """The same of a dense Qwen3.5.

    Raises UnsupportedModelError where DeltaNet, too, runs in both directions.
    """
    return _read_hybrid(checkpoint, sparse=False)


def read_qwen3_5_moe(checkpoint: Checkpoint) -> Model:
    """The same of a Qwen3.5 with experts."""
    return _read_hybrid(checkpoint, sparse=True)


def _read_hybrid(checkpoint: Checkpoint, *, sparse: bool) -> Model:
    config = text_config(checkpoint)
    config.only("bidirectional_linear", False)
    config.only("bidi_gdn_mode", "causal")
    model = read_hybrid(checkpoint, config, "a2d", sparse=sparse, blocks=_HYBRID)
    return _warned(model, config)


def _read(checkpoint: Checkpoint, trunk: Trunk) -> Model:
    model = read_trunk(checkpoint, trunk, _BLOCKS)
    return _warned(model, Fields(checkpoint.config_path, checkpoint.config))


def _warned(model: Model, config: Fields) -> Model:
    if not any(config.get(key) for key in _BLOCKS.block_keys):
        model.warnings.append(
            f"{config.path} names no block_size: read as a BD3-LM conversion with "
            f"blocks of {model.spec['block_size']}; one for full attention (MDLM) would make no "
            "sensible text"
        )
    return model
