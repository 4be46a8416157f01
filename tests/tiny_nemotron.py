"""Maker of tiny seeded Nemotron-Labs-Diffusion checkpoints in the real layout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from tiny_clover import CHAT_TEMPLATE, PADDING_ROWS, Array, rounded, write_checkpoint_files
from tiny_clover import write_tokenizer as write_tokenizer_file
from tiny_transformer import draw_transformer, transformer_config, transformer_shapes

SPECIAL = ("</s>", "<SPECIAL_100>")  # stop and mask
YARN: dict[str, Any] = {
    "rope_type": "yarn",
    "rope_theta": 100.0,  # positions felt within a short text
    "factor": 4.0,
    "original_max_position_embeddings": 16,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.1,
}


def nemotron_config(rope: dict[str, Any] | None = None, **overrides: Any) -> dict[str, Any]:
    """``rope``: keys that differ in ``rope_parameters``; ``overrides`` replaces others before they
    shape any weight."""
    config = transformer_config("llama", head_dim=32, block_size=8)
    config |= {
        "model_type": "nemotron_labs_diffusion",
        "architectures": ["NemotronLabsDiffusionModel"],
        "rms_norm_eps": 1e-5,
        "sliding_window": None,
        "rope_parameters": {**YARN, **(rope or {})},
    }
    del config["rope_theta"]
    config |= overrides
    stop, mask = (config["vocab_size"] - PADDING_ROWS - n for n in (2, 1))
    return config | {"eos_token_id": stop, "mask_token_id": mask}


def make_nemotron(
    folder: str | Path, *, seed: int = 0, dtype: str = "bf16", **options: Any
) -> dict[str, Array]:
    """Writes a checkpoint and returns its tensors by Llama's names without a prefix.

    The values are float32 and exactly what the file holds. The rest: ``nemotron_config``.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = nemotron_config(**options)
    rng = np.random.default_rng(seed)
    tensors: dict[str, Array] = {}
    for name, shape in transformer_shapes(config).items():
        # attention felt and sharp logits, so that texts vary and thresholds matter
        gain = 2.0 if name.endswith(("lm_head.weight", "o_proj.weight")) else 1.0
        tensors[name] = rounded(gain * draw_transformer(name, shape, rng), dtype)
    stored = {stored_name(name): value for name, value in tensors.items()}
    write_checkpoint_files(folder, stored, shards=2, dtype=dtype)
    write_tokenizer_file(folder, config["eos_token_id"], SPECIAL)
    for file, value in {
        "config.json": config,
        "generation_config.json": {"eos_token_id": config["eos_token_id"]},
        "tokenizer_config.json": {"eos_token": SPECIAL[0], "chat_template": CHAT_TEMPLATE},
    }.items():
        (folder / file).write_text(json.dumps(value, indent=2) + "\n")
    return tensors


def stored_name(name: str) -> str:
    """The release's word for one of Llama's tensors."""
    return "diffusion_head.weight" if name == "lm_head.weight" else f"encoder.{name}"
