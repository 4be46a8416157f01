"""DFlash: drafters of a block at a time for an autoregressive model, which verifies it.

Qwen3's layers without embedding or head: those of the target serve. Their context is what ``fc``
and ``hidden_norm`` make of the outputs of the target's layers ``target_layer_ids``, counted from 0.
"""

from __future__ import annotations

from typing import Any

from ...quant.recipes import DENSE
from ..checkpoint import Checkpoint
from ..fields import Fields
from .base import Model
from .blocks import MAX_LAYERS
from .table import TensorTable
from .transformer import DERIVED, Trunk, map_layers, trunk_spec

_LAYERS = Trunk("dflash", "DFlashDraftModel", qk_norm=True, head_dim=128, prefix="")
_MAX_BLOCK = 128  # rows that one pass of the target verifies


def read(checkpoint: Checkpoint) -> Model:
    """Spec and tensor table of a drafter; no weight is read. It has no decode defaults."""
    config = Fields(checkpoint.config_path, checkpoint.config)
    spec = trunk_spec(config, _LAYERS) | _drafting(config)
    spec["valid_vocab"] = spec["vocab_size"]  # what may be written is the target's to say
    hidden = spec["hidden_size"]
    width = len(spec["drafts_for_layers"]) * hidden
    table = TensorTable(checkpoint, spec, _LAYERS.prefix)
    table.add("context.in", DENSE, (hidden, width), table.expect("fc.weight", (hidden, width)))
    table.vector("context.norm", "hidden_norm.weight", hidden)
    map_layers(table)
    table.vector("final_norm", "norm.weight", hidden)
    table.check_missing()
    table.check_surplus(_LAYERS.family, suffixes=DERIVED)
    return Model(_LAYERS.family, spec, {}, table.tensors, warnings=table.warnings)


def _drafting(config: Fields) -> dict[str, Any]:
    """Releases say the block's width in either place."""
    ours = config.section("dflash_config")
    width = ours if "block_size" in ours.values else config
    last = config.integer("vocab_size") - 1
    return {
        "preview": True,
        "mask": "causal",
        "mask_token_id": ours.integer("mask_token_id", low=0, high=last),
        "block_size": width.integer("block_size", low=2, high=_MAX_BLOCK),
        "drafts_for_layers": _layers(ours),
        "tie_embeddings": False,
    }


def _layers(ours: Fields) -> list[int]:
    layers = ours.required("target_layer_ids")
    valid = isinstance(layers, list) and all(
        type(layer) is int and 0 <= layer < MAX_LAYERS for layer in layers
    )
    if not valid or not layers or layers != sorted(set(layers)):
        raise ours.refuse("target_layer_ids", f"{layers!r} are not ascending numbers of layers")
    return list(layers)
