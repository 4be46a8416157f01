"""Maker of tiny seeded checkpoints of the block-diffusion families under a block mask.

Real layouts: SDAR is Qwen3's, Fast-dLLM v2 Qwen2's, Stable-DiffCoder Llama's, A2D any of the three;
LLaDA2 has names of its own.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from tiny_clover import (
    CHAT_TEMPLATE,
    PADDING_ROWS,
    Array,
    Shapes,
    rounded,
    separate_experts,
    write_checkpoint_files,
    write_tokenizer,
)
from tiny_transformer import draw_transformer, transformer_config, transformer_shapes

# (model_type, architecture, trunk, mask token, block key, block size of the tiny model)
FAMILIES = {
    "llada2": ("llada2_moe", "LLaDA2MoeModelLM", "qwen3_moe", "<|mask|>", "block_size", 8),
    "sdar": ("sdar", "SDARForCausalLM", "qwen3", "<|MASK|>", "block_size", 4),
    "sdar_moe": ("sdar_moe", "SDARMoeForCausalLM", "qwen3_moe", "<|MASK|>", "block_size", 4),
    "fast_dllm": (
        "Fast_dLLM_Qwen",
        "Fast_dLLM_QwenForCausalLM",
        "qwen2",
        "|<MASK>|",
        "bd_size",
        16,
    ),
    "a2d": ("a2d-qwen3", "A2DQwen3LMHeadModel", "qwen3", "<|mask|>", "block_size", 8),
    "a2d_llama": ("a2d-llama", "A2DLlamaLMHeadModel", "llama", "<|mask|>", "block_size", 8),
    "a2d_qwen2": ("a2d-qwen2", "A2DQwen2LMHeadModel", "qwen2", "<|mask|>", "block_size", 8),
    "diffcoder": (
        "llama",
        "StableDiffcoderForCausalLM",
        "llama",
        "<[MASK_TOKEN]>",
        "block_size",
        4,
    ),
}
STOPS = ("<|endoftext|>", "<|im_end|>")


def special_ids(config: dict[str, Any]) -> dict[str, int]:
    """Ids of the mask and of the stop tokens: the last ones in front of the padding."""
    names = (*STOPS, next(f[3] for f in FAMILIES.values() if f[0] == config["model_type"]))
    first = config["vocab_size"] - PADDING_ROWS - len(names)
    return {name: first + n for n, name in enumerate(names)}


def blocks_config(family: str, **overrides: Any) -> dict[str, Any]:
    """A family's configuration; ``overrides`` replaces keys before they shape any weight."""
    kind, architecture, trunk, _, key, width = FAMILIES[family]
    sizes = {name: overrides.pop(name) for name in ("hidden", "layers") if name in overrides}
    config = transformer_config(trunk, **sizes)
    config |= {"model_type": kind, "architectures": [architecture], key: width}
    if family in ("llada2", "fast_dllm", "a2d_llama", "a2d_qwen2", "diffcoder"):
        config["rope_theta"] = 100.0  # positions felt within a short text
    if family == "llada2":
        config |= {
            "num_experts": 16,
            "num_experts_per_tok": 3,
            "num_shared_experts": 1,
            "n_group": 4,
            "topk_group": 2,
            "first_k_dense_replace": 1,
            "score_function": "sigmoid",
            "moe_router_enable_expert_bias": True,
            "routed_scaling_factor": 2.5,
            "partial_rotary_factor": 0.5,
            "use_qkv_bias": False,
            "use_bias": False,
            "use_qk_norm": True,
        }
        for name in ("decoder_sparse_step", "mlp_only_layers"):
            del config[name]
    config |= overrides
    return config | {"mask_token_id": special_ids(config)[FAMILIES[family][3]]}


def blocks_shapes(config: dict[str, Any]) -> Shapes:
    """Shapes by name, in Qwen's words without a prefix; experts fused, q, k and v apart."""
    trunk = next(f[2] for f in FAMILIES.values() if f[0] == config["model_type"])
    if config["model_type"] != "llada2_moe":
        return transformer_shapes({**config, "model_type": trunk})
    dense = config["first_k_dense_replace"]
    keys = {**config, "model_type": trunk, "decoder_sparse_step": 1}
    shapes = transformer_shapes({**keys, "mlp_only_layers": list(range(dense))})
    hidden, inner = config["hidden_size"], config["moe_intermediate_size"]
    for i in range(dense, config["num_hidden_layers"]):
        mlp = f"layers.{i}.mlp."
        shapes[mlp + "gate.expert_bias"] = (config["num_experts"],)
        for name in ("gate_proj", "up_proj"):
            shapes[f"{mlp}shared_expert.{name}.weight"] = (inner, hidden)
        shapes[mlp + "shared_expert.down_proj.weight"] = (hidden, inner)
    return shapes


def make_blocks(
    folder: str | Path,
    family: str,
    *,
    seed: int = 0,
    dtype: str = "bf16",
    generation: dict[str, Any] | None = None,
    **config: Any,
) -> dict[str, Array]:
    """Writes a checkpoint and returns its tensors under the names of ``blocks_shapes``.

    The values are float32 and exactly what the file holds. ``generation``: more keys of the
    generation configuration. The rest: ``blocks_config``.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    keys = blocks_config(family, **config)
    rng = np.random.default_rng(seed)
    tensors = {name: _draw(name, shape, rng, dtype) for name, shape in blocks_shapes(keys).items()}
    stored = dict(separate_experts(tensors))
    if family == "llada2":
        stored = llada2_names(stored)
    named = {
        name if name.startswith("lm_head") else "model." + name: value
        for name, value in stored.items()
    }
    write_checkpoint_files(folder, named, dtype=dtype)
    _write_side_files(folder, keys, generation or {})
    return tensors


def _draw(name: str, shape: tuple[int, ...], rng: np.random.Generator, dtype: str) -> Array:
    if name.endswith("expert_bias"):  # of the size of what separates scores
        return rounded((0.2 * rng.standard_normal(shape)).astype(np.float32), dtype)
    value = draw_transformer(name, shape, rng)
    # attention felt and sharp logits, so that texts vary and thresholds matter
    return rounded(
        value * (2.0 if name.endswith(("lm_head.weight", "o_proj.weight")) else 1.0), dtype
    )


def llada2_names(tensors: dict[str, Array]) -> dict[str, Array]:
    """The release's names: fused projections, and its own words for the rest."""
    out: dict[str, Array] = {}
    for name, value in tensors.items():
        if name.endswith("self_attn.q_proj.weight"):
            stem = name.removesuffix("self_attn.q_proj.weight")
            parts = [tensors[f"{stem}self_attn.{p}_proj.weight"] for p in ("q", "k", "v")]
            out[stem + "attention.query_key_value.weight"] = np.concatenate(parts)
        elif not name.endswith(("self_attn.k_proj.weight", "self_attn.v_proj.weight")):
            out[llada2_name(name)] = value
    return out


def llada2_name(name: str) -> str:
    """The release's word for a tensor that it does not fuse."""
    for old, new in (
        ("embed_tokens", "word_embeddings"),
        ("self_attn.o_proj", "attention.dense"),
        ("self_attn.q_norm", "attention.query_layernorm"),
        ("self_attn.k_norm", "attention.key_layernorm"),
        ("shared_expert.", "shared_experts."),
    ):
        name = name.replace(old, new)
    return name


def _write_side_files(folder: Path, config: dict[str, Any], generation: dict[str, Any]) -> None:
    ids = special_ids(config)
    write_tokenizer(folder, min(ids.values()), tuple(ids))
    eos = [ids[name] for name in STOPS]
    for file, value in {
        "config.json": config,
        "generation_config.json": {"eos_token_id": eos, **generation},
        "tokenizer_config.json": {"eos_token": STOPS[1], "chat_template": CHAT_TEMPLATE},
    }.items():
        (folder / file).write_text(json.dumps(value, indent=2) + "\n")
