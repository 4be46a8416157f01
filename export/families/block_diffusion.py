"""What families of diffusion share: their spec fields and defaults.

Under a block mask a row sees its whole block and everything before it, in previews and commits
alike; under a causal one only a preview's rows do; under a full one all rows see all of the text
and the masks behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..checkpoint import Checkpoint
from ..fields import Fields
from ..vocabulary import generation_fields, mask_token_id

MAX_BLOCK = 1024  # rows of a pass over a block


@dataclass(frozen=True)
class BlockFamily:
    """What a family says where the checkpoint is silent."""

    block_size: int
    block_keys: tuple[str, ...] = ("block_size", "block_length")  # the first that is there counts
    mask: str = "block"
    block_origin: str = "absolute"
    logit_shift: int = 0
    block_seed: bool = False  # the row in front of a block decides its first token
    mask_tokens: tuple[str, ...] = ()  # names that the tokenizer may have for the mask token
    stop_tokens: tuple[str, ...] = ()  # names of tokens that end a text
    also_stop: tuple[str, ...] = ()  # and of those that do so beside the checkpoint's
    decode: Mapping[str, Any] = field(default_factory=dict)  # generation defaults


# Full attention. Blocks are no more than how a canvas is decoded, and may have any width.
FULL_ATTENTION = BlockFamily(
    block_size=32,
    block_keys=(),
    mask="full",
    block_origin="prompt_end",
    decode={"threshold": 0.9, "fixed_schedule": True, "cache": "dual"},
)


@dataclass(frozen=True)
class CanvasFamily:
    """What a family whose blocks start as random ids says where the checkpoint is silent."""

    decode: Mapping[str, Any]  # generation defaults
    stop_tokens: tuple[str, ...] = ()
    also_stop: tuple[str, ...] = ()


def block_fields(
    checkpoint: Checkpoint, config: Fields, spec: Mapping[str, Any], family: BlockFamily
) -> dict[str, Any]:
    """The spec's fields of block diffusion.

    The block's width is the configuration's, else the generation configuration's, else the
    family's. Raises CheckpointError for a width or mask id that is missing or out of its domain.
    """
    return {
        "preview": True,
        "block_size": _block_size(checkpoint, config, family, spec["max_positions"]),
        "mask": family.mask,
        "block_origin": family.block_origin,
        "logit_shift": family.logit_shift,
        "block_seed": family.block_seed,
        "mask_token_id": mask_token_id(
            checkpoint, config, spec["vocab_size"], names=family.mask_tokens
        ),
    }


def _block_size(checkpoint: Checkpoint, config: Fields, family: BlockFamily, context: int) -> int:
    for fields in (config, generation_fields(checkpoint)):
        for key in family.block_keys:
            if fields.get(key) is not None:
                return fields.integer(key, high=min(MAX_BLOCK, context))
    return family.block_size
