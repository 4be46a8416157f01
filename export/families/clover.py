"""Clover: the gated-DeltaNet mixture-of-experts trunk of Qwen3.6 with four preview tensors a layer.

Keys of the trunk are those of Qwen3.5-MoE's text configuration. The preview fields (``block_size``
and following) are read under our own names and default to what the public record says of the
release.
"""

from __future__ import annotations

from typing import Any

from ..checkpoint import Checkpoint
from ..fields import Fields
from ..sources import PREVIEW
from .base import Model
from .hybrid import read_hybrid, text_config


def read(checkpoint: Checkpoint) -> Model:
    """Spec, decode defaults and tensor table of a Clover checkpoint; no weight is read.

    Sources that lost the preview tensors say ``"preview": false``; the model is then the trunk,
    autoregressive.
    """
    config = text_config(checkpoint)
    config.only("preview_decay", False)
    if config.flag("preview", True):
        preview = _preview_fields(config)
        return read_hybrid(checkpoint, config, "clover", sparse=True, preview=preview)
    model = read_hybrid(checkpoint, config, "clover", sparse=True)
    model.warnings.append(
        f"{checkpoint.path} has no preview tensors ({', '.join(PREVIEW)}): exported as an "
        "autoregressive model, without block diffusion; --preview-tensors FOLDER brings them back"
    )
    return model


def _preview_fields(config: Fields) -> dict[str, Any]:
    longest, experts = config.integer("max_position_embeddings"), config.integer("num_experts")
    return {
        "block_size": config.integer("block_size", 32, high=longest),
        "coreset_size": config.integer("coreset_size", 0, low=0, high=experts),
        "history_q_scale": config.flag("history_q_scale", True),
        "preview_value_beta": config.flag("preview_value_beta", False),
        "preview_decay": False,
        "history_ref_rows": config.integer("history_ref_rows", 32),
    }
