"""Maker of tiny seeded DFlash drafters in the real layout, for a target of given sizes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from tiny_clover import Array, rounded, write_checkpoint_files
from tiny_transformer import draw_transformer, transformer_config, transformer_shapes

BLOCK, MASK = 8, 3
_NOT_THEIRS = ("embed_tokens.weight", "lm_head.weight")


def drafter_config(
    *, hidden: int = 64, vocab: int = 320, target_layers: tuple[int, ...] = (0, 2), **overrides: Any
) -> dict[str, Any]:
    """A configuration; ``overrides`` replaces keys before they shape any weight."""
    config = transformer_config("qwen3", hidden=hidden, vocab=vocab, layers=2, rope_theta=5e4)
    ours = {"mask_token_id": MASK, "target_layer_ids": list(target_layers), "block_size": BLOCK}
    return config | {"architectures": ["DFlashDraftModel"], "dflash_config": ours} | overrides


def make_drafter(
    folder: str | Path, *, seed: int = 0, dtype: str = "f32", **config: Any
) -> dict[str, Array]:
    """Writes a checkpoint and returns its tensors by name; the rest: ``drafter_config``."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    keys = drafter_config(**config)
    hidden = keys["hidden_size"]
    shapes = {n: s for n, s in transformer_shapes(keys).items() if n not in _NOT_THEIRS}
    shapes["fc.weight"] = (hidden, len(keys["dflash_config"]["target_layer_ids"]) * hidden)
    shapes["hidden_norm.weight"] = (hidden,)
    rng = np.random.default_rng(seed)
    tensors = {n: rounded(draw_transformer(n, shape, rng), dtype) for n, shape in shapes.items()}
    write_checkpoint_files(folder, tensors, dtype=dtype)
    (folder / "config.json").write_text(json.dumps(keys, indent=2) + "\n")
    return tensors
