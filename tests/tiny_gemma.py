"""Maker of tiny seeded Gemma 3 checkpoints in the real layout."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from tiny_clover import Array, Shapes, rounded, write_checkpoint_files, write_side_files

NORMS = (
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)
LINEAR = {"rope_type": "linear", "factor": 8.0}


def gemma_config(**overrides: Any) -> dict[str, Any]:
    """The flat text configuration; ``overrides`` replaces keys before they shape any weight."""
    return {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "dtype": "float32",
        "vocab_size": 320,
        "hidden_size": 96,  # whose root is no short number
        "intermediate_size": 160,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "hidden_activation": "gelu_pytorch_tanh",
        "attention_bias": False,
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": True,
        "query_pre_attn_scalar": 20,
        "sliding_window": 9,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "rope_theta": 1e6,
        "rope_local_base_freq": 1e4,
        "rope_scaling": None,
        **overrides,
    }


def gemma_shapes(config: dict[str, Any]) -> Shapes:
    """Checkpoint names without their prefix and their shapes."""
    hidden, inner, width = (config[k] for k in ("hidden_size", "intermediate_size", "head_dim"))
    q, kv = config["num_attention_heads"] * width, config["num_key_value_heads"] * width
    shapes: Shapes = {"embed_tokens.weight": (config["vocab_size"], hidden)}
    for i in range(config["num_hidden_layers"]):
        layer: Shapes = {f"{norm}.weight": (hidden,) for norm in NORMS}
        layer |= {"self_attn.q_proj.weight": (q, hidden), "self_attn.k_proj.weight": (kv, hidden)}
        layer |= {"self_attn.v_proj.weight": (kv, hidden), "self_attn.o_proj.weight": (hidden, q)}
        layer |= {f"self_attn.{part}_norm.weight": (width,) for part in "qk"}
        layer |= {f"mlp.{part}_proj.weight": (inner, hidden) for part in ("gate", "up")}
        layer["mlp.down_proj.weight"] = (hidden, inner)
        shapes |= {f"layers.{i}.{name}": shape for name, shape in layer.items()}
    return shapes | {"norm.weight": (hidden,)}


def draw_gemma(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Seeded values, scaled so that a tied head gives lively logits."""
    values = rng.standard_normal(shape)
    if name.endswith("norm.weight"):
        values *= 0.3
    else:
        values *= (0.3 if name == "embed_tokens.weight" else 1.5) / math.sqrt(shape[-1])
    return values.astype(np.float32)


def make_gemma(
    folder: str | Path,
    *,
    seed: int = 0,
    dtype: str = "f32",
    prefix: str = "model.",
    nested: bool = False,
    **overrides: Any,
) -> dict[str, Array]:
    """Writes a checkpoint and returns its tensors by name *without* the prefix.

    The values are float32 and exactly what the file holds. ``nested``: as the releases with a
    vision tower are, which the text model does not use. The rest: configuration keys.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = gemma_config(**overrides)
    rng = np.random.default_rng(seed)
    tensors = {
        name: rounded(draw_gemma(name, shape, rng), dtype)
        for name, shape in gemma_shapes(config).items()
    }
    named = {prefix + name: value for name, value in tensors.items()}
    if nested:
        named["vision_tower.patch.weight"] = named["multi_modal_projector.w"] = tensors[
            "norm.weight"
        ]
    write_checkpoint_files(folder, named, dtype=dtype)
    write_side_files(folder, config)
    if nested:
        text = {key: value for key, value in config.items() if key != "architectures"}
        outer = {"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3"}
        (folder / "config.json").write_text(json.dumps({**outer, "text_config": text}, indent=2))
    return tensors
