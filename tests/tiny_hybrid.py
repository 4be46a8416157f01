"""Maker of tiny seeded Qwen3.5, Qwen3.5-MoE and Qwen3-Next checkpoints in the real layout, and of
conversions of the first two to block diffusion."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from tiny_clover import (
    Array,
    Shapes,
    draw,
    rounded,
    separate_experts,
    tensor_shapes,
    tiny_config,
    write_checkpoint_files,
    write_side_files,
)

# model_type, architecture of a release; and those of the text model alone
NAMES = {
    "qwen3_5": ("qwen3_5", "Qwen3_5ForConditionalGeneration"),
    "qwen3_5_moe": ("qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration"),
    "qwen3_next": ("qwen3_next", "Qwen3NextForCausalLM"),
    "a2d_qwen3_5": ("a2d-qwen3_5", "A2DQwen3_5LMHeadModel"),
    "a2d_qwen3_5_moe": ("a2d-qwen3_5_moe", "A2DQwen3_5MoeLMHeadModel"),
}
_PREVIEW = ("conv_right_weight", "logit_scale", "history_bias", "history_c")
_NOT_THEIRS = ("coreset_size", "num_shared_experts")
_OF_BLOCKS = ("block_size", "mask_token_id")
_EXPERT_KEYS = ("num_experts", "num_experts_per_tok", "norm_topk_prob", "moe_intermediate_size")
# Parts of a release that the text model does not use.
OTHERS: Shapes = {"mtp.fc.weight": (64, 128), "model.visual.patch_embed.proj.weight": (8, 3, 2, 2)}


def hybrid_config(family: str, **overrides: Any) -> dict[str, Any]:
    """A family's flat text configuration; ``overrides`` replaces keys before they shape weights."""
    kind, architecture = NAMES[family]
    config = tiny_config(overrides={"intermediate_size": 96, "block_size": 8, **overrides})
    config |= {"model_type": kind, "architectures": [architecture]}
    if family.startswith("a2d"):  # what a row of the first attention layer sees reaches the second
        kinds = ["linear_attention", "full_attention"] * 2
        config |= {"layer_types": kinds, **overrides}
    dropped = _NOT_THEIRS if family.startswith("a2d") else (*_NOT_THEIRS, *_OF_BLOCKS)
    if family.endswith("qwen3_5"):
        dropped += (*_EXPERT_KEYS, "shared_expert_intermediate_size")
    if family == "qwen3_next":
        config |= {"mlp_only_layers": [], "decoder_sparse_step": 1, **overrides}
        rope = config.pop("rope_parameters")  # the release has its rotary keys at the top
        config |= {key: rope[key] for key in ("rope_theta", "partial_rotary_factor")}
    return {key: value for key, value in config.items() if key not in dropped}


def hybrid_shapes(config: dict[str, Any]) -> Shapes:
    """Checkpoint names without their prefix; DeltaNet's inputs and experts in Qwen3.5's form."""
    sparse = {**config, "shared_expert_intermediate_size": 0, "num_experts": 1}
    sparse = {"moe_intermediate_size": 1, **sparse, **config}
    shapes = {
        name: shape for name, shape in tensor_shapes(sparse).items() if not name.endswith(_PREVIEW)
    }
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    for i in range(config["num_hidden_layers"]):
        if "num_experts" in config and i not in config.get("mlp_only_layers", []):
            continue
        mlp = f"layers.{i}.mlp."
        shapes = {name: shape for name, shape in shapes.items() if not name.startswith(mlp)}
        shapes |= {f"{mlp}{part}_proj.weight": (inner, hidden) for part in ("gate", "up")}
        shapes[f"{mlp}down_proj.weight"] = (hidden, inner)
    return shapes


def fused_inputs(tensors: dict[str, Array], config: dict[str, Any]) -> dict[str, Array]:
    """Qwen3-Next's: q, k, v and z, and b and a, in one tensor each, key head by key head."""
    heads, k_dim = config["linear_num_key_heads"], config["linear_key_head_dim"]
    ratio = config["linear_num_value_heads"] // heads
    v_rows = ratio * config["linear_value_head_dim"]
    out = dict(tensors)
    for name in tensors:
        if not name.endswith("in_proj_qkv.weight"):
            continue
        stem = name.removesuffix("qkv.weight")
        q, k, v = np.split(out.pop(name), [heads * k_dim, 2 * heads * k_dim])
        z, b, a = (out.pop(f"{stem}{part}.weight") for part in "zba")
        qkvz, ba = list[Array](), list[Array]()
        for head in range(heads):
            for part, rows in ((q, k_dim), (k, k_dim), (v, v_rows), (z, v_rows)):
                qkvz.append(part[head * rows : (head + 1) * rows])
            ba += [part[head * ratio : (head + 1) * ratio] for part in (b, a)]
        out[f"{stem}qkvz.weight"], out[f"{stem}ba.weight"] = (
            np.concatenate(qkvz),
            np.concatenate(ba),
        )
    return out


def make_hybrid(
    folder: str | Path,
    family: str,
    *,
    seed: int = 0,
    dtype: str = "bf16",
    nested: bool = False,
    **overrides: Any,
) -> dict[str, Array]:
    """Writes a checkpoint and returns its tensors by name *without* the prefix, in Qwen3.5's form.

    The values are float32 and exactly what the file holds. ``nested``: as the releases with a
    vision tower are. The rest: configuration keys.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = hybrid_config(family, **overrides)
    rng = np.random.default_rng(seed)
    tensors = {
        name: rounded(draw(name, shape, rng), dtype)
        for name, shape in hybrid_shapes(config).items()
    }
    stored = tensors
    if family == "qwen3_next":
        stored = fused_inputs(dict(separate_experts(tensors)), config)
    prefix = "model.language_model." if nested else "model."
    named = {
        name if name.startswith("lm_head") else prefix + name: value
        for name, value in stored.items()
    }
    others = {name: rounded(draw(name, shape, rng), dtype) for name, shape in OTHERS.items()}
    write_checkpoint_files(folder, named | others, shards=2, dtype=dtype)
    write_side_files(folder, config)
    if nested:
        top = ("architectures", "model_type", "tie_word_embeddings")
        text = {key: value for key, value in config.items() if key != "architectures"}
        text["model_type"] += "_text"
        outer = {**{key: config[key] for key in top}, "text_config": text}
        (folder / "config.json").write_text(json.dumps(outer, indent=2))
    return tensors
