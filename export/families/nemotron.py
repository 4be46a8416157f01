"""Nemotron-Labs-Diffusion (3B, 8B, 14B): Ministral-3's trunk under names of its own, one set of
weights for block diffusion and for autoregression.

Commits are causal, and their last row decides the first token of the next block; the rest of the
block, up to 32, is denoised by previews whose rows see all of it. The release accepts from the
threshold on; no float32 probability is exactly 0.9, so that is no difference.
"""

from __future__ import annotations

from ..checkpoint import Checkpoint
from ..fields import Fields
from .base import Model
from .block_diffusion import BlockFamily
from .transformer import Trunk, read_trunk

_TRUNK = Trunk(
    "nemotron", "NemotronLabsDiffusionModel", prefix="encoder.", head="diffusion_head.weight"
)
_BLOCKS = BlockFamily(
    block_size=32,
    mask="causal",
    block_origin="prompt_end",
    block_seed=True,
    decode={"threshold": 0.9},
    stop_tokens=("</s>",),
)


def read(checkpoint: Checkpoint) -> Model:
    """Spec, decode defaults and tensor table of such a checkpoint; no weight is read.

    Raises UnsupportedModelError for a window, CheckpointError for a key or tensor that is missing
    or of another shape.
    """
    Fields(checkpoint.config_path, checkpoint.config).only("sliding_window", None)
    return read_trunk(checkpoint, _TRUNK, _BLOCKS)
