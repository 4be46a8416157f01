"""Maker of tiny seeded DiffusionGemma checkpoints in the real layout."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from tiny_clover import (
    Array,
    Shapes,
    rounded,
    special_ids,
    write_checkpoint_files,
    write_side_files,
)

DECODER, ENCODER = "model.decoder.", "model.encoder."
SLIDING, FULL = "sliding_attention", "full_attention"
NORMS = (
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
    "post_feedforward_layernorm_1",
    "post_feedforward_layernorm_2",
    "pre_feedforward_layernorm_2",
)
PROPORTIONAL = {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6}


def canvas_config(**overrides: Any) -> dict[str, Any]:
    """The text configuration and the canvas's width; ``overrides`` replaces keys before they shape
    any weight."""
    return {
        "vocab_size": 320,
        "hidden_size": 96,  # whose root is no short number
        "intermediate_size": 160,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "global_head_dim": 64,
        "num_global_key_value_heads": 1,
        "hidden_activation": "gelu_pytorch_tanh",
        "attention_bias": False,
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": True,
        "sliding_window": 9,
        "layer_types": [SLIDING, FULL, FULL],
        "rope_parameters": {
            SLIDING: {"rope_type": "default", "rope_theta": 1e4},
            FULL: PROPORTIONAL,
        },
        "num_experts": 8,
        "top_k_experts": 2,
        "moe_intermediate_size": 32,
        "final_logit_softcapping": 30.0,
        "canvas_length": 16,
        **overrides,
    }


def release_config(config: dict[str, Any]) -> dict[str, Any]:
    """The same as a release's ``config.json`` has it."""
    top = ("canvas_length", "tie_word_embeddings")
    return {
        "architectures": ["DiffusionGemmaForBlockDiffusion"],
        "model_type": "diffusion_gemma",
        "dtype": "float32",
        **{key: config[key] for key in top},
        "text_config": {
            "model_type": "diffusion_gemma_text",
            **{key: value for key, value in config.items() if key not in top},
        },
    }


def shape_of_heads(config: dict[str, Any], layer: int) -> tuple[int, int]:
    """Width and number of key heads."""
    if config["layer_types"][layer] == SLIDING:
        return config["head_dim"], config["num_key_value_heads"]
    return config["global_head_dim"], config["num_global_key_value_heads"]


def canvas_shapes(config: dict[str, Any]) -> Shapes:
    """Checkpoint names and shapes, without the vision tower's."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    experts, narrow = config["num_experts"], config["moe_intermediate_size"]
    mlp: Shapes = {f"{part}_proj.weight": (inner, hidden) for part in ("gate", "up")}
    mlp["down_proj.weight"] = (hidden, inner)
    shapes: Shapes = {"embed_tokens.weight": (config["vocab_size"], hidden)}
    for i in range(config["num_hidden_layers"]):
        width, groups = shape_of_heads(config, i)
        q, kv = config["num_attention_heads"] * width, groups * width
        layer: Shapes = {f"{norm}.weight": (hidden,) for norm in NORMS}
        layer |= {"self_attn.q_proj.weight": (q, hidden), "self_attn.k_proj.weight": (kv, hidden)}
        if config["layer_types"][i] == SLIDING:
            layer["self_attn.v_proj.weight"] = (kv, hidden)
        layer["self_attn.o_proj.weight"] = (hidden, q)
        layer |= {f"self_attn.{part}_norm.weight": (width,) for part in "qk"}
        layer |= {f"mlp.{name}": shape for name, shape in mlp.items()}
        layer |= {
            "router.proj.weight": (experts, hidden),
            "router.scale": (hidden,),
            "router.per_expert_scale": (experts,),
            "experts.gate_up_proj": (experts, 2 * narrow, hidden),
            "experts.down_proj": (experts, hidden, narrow),
            "layer_scalar": (1,),
        }
        shapes |= {f"layers.{i}.{name}": shape for name, shape in layer.items()}
    shapes |= {"norm.weight": (hidden,), "self_conditioning.pre_norm.weight": (hidden,)}
    shapes |= {f"self_conditioning.{name}": shape for name, shape in mlp.items()}
    shapes = {DECODER + name: shape for name, shape in shapes.items()}
    for i in range(config["num_hidden_layers"]):
        shapes[f"{ENCODER}language_model.layers.{i}.layer_scalar"] = (1,)
    return shapes


def draw_canvas(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Seeded values, scaled so that a tied head gives lively logits."""
    values = rng.standard_normal(shape)
    if name.endswith("norm.weight") or name.endswith("scale"):
        values = 1 + 0.3 * values
        if name.endswith(("q_norm.weight", "k_norm.weight")):
            values *= 0.4  # scores are not scaled: sharper ones would amplify rounding
    elif name.endswith("layer_scalar"):
        values = rng.uniform(0.5, 1.5, shape)
    elif "layernorm" in name:
        values = 1.5 + 0.4 * values
    else:
        gain = 5.0 if name.endswith(("embed_tokens.weight", "router.proj.weight")) else 1.5
        if name.endswith("self_conditioning.down_proj.weight"):
            gain = 0.5  # steps then come to rest, and do not amplify rounding
        values *= gain / math.sqrt(shape[-1])
    return values.astype(np.float32)


def make_canvas(
    folder: str | Path, *, seed: int = 0, dtype: str = "f32", **overrides: Any
) -> dict[str, Array]:
    """Writes a checkpoint and returns its text tensors by name.

    The values are float32 and exactly what the file holds. The rest: configuration keys.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = canvas_config(**overrides)
    rng = np.random.default_rng(seed)
    tensors = {
        name: rounded(draw_canvas(name, shape, rng), dtype)
        for name, shape in canvas_shapes(config).items()
    }
    vision = {
        f"{ENCODER}{name}": np.ones(4, np.float32)
        for name in ("vision_tower.patch.weight", "embed_vision.projection.weight")
    }
    write_checkpoint_files(folder, {**tensors, **vision}, shards=2, dtype=dtype)
    write_side_files(folder, config)
    (folder / "config.json").write_text(json.dumps(release_config(config), indent=2))
    ids = special_ids(config["vocab_size"])
    generation = {
        "eos_token_id": [ids["<|im_end|>"], ids["<|endoftext|>"]],
        "pad_token_id": ids["<|endoftext|>"],
        "max_denoising_steps": 12,
        "sampler_config": {"_cls_name": "EntropyBoundSamplerConfig", "entropy_bound": 0.2},
        "t_min": 0.3,
        "t_max": 0.7,
        "confidence_threshold": 0.01,
    }
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=2))
    return tensors
