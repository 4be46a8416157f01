"""Maker of tiny seeded Llama, Qwen2, Qwen3 and Qwen3-MoE checkpoints in the real layout."""

from __future__ import annotations

import json
import math
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

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
}


def transformer_config(
    family: str, *, hidden: int = 64, layers: int = 3, vocab: int = 320, **overrides: Any
) -> dict[str, Any]:
    """A family's configuration; ``overrides`` replaces keys before they shape any weight."""
    config: dict[str, Any] = {
        "architectures": [ARCHITECTURES[family]],
        "model_type": family,
        "dtype": "bfloat16",
        "vocab_size": vocab,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 4096,
        "rope_theta": 10_000.0,
        "tie_word_embeddings": False,
        "intermediate_size": 3 * hidden // 2,
    }
    if family == "llama":
        config |= {"attention_bias": False, "mlp_bias": False}
    else:
        config |= {"use_sliding_window": False, "sliding_window": None, "max_window_layers": layers}
    if family.startswith("qwen3"):
        config |= {"attention_bias": False, "head_dim": 32}
    if family == "qwen3_moe":
        config |= {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": hidden // 2}
        config |= {"decoder_sparse_step": 1, "mlp_only_layers": [], "norm_topk_prob": True}
    return config | overrides


def transformer_shapes(config: dict[str, Any]) -> Shapes:
    """Checkpoint names without their prefix and their shapes; experts fused."""
    hidden, vocab = config["hidden_size"], config["vocab_size"]
    shapes: Shapes = {"embed_tokens.weight": (vocab, hidden), "norm.weight": (hidden,)}
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (vocab, hidden)
    for i in range(config["num_hidden_layers"]):
        layer: Shapes = {"input_layernorm.weight": (hidden,)}
        layer |= {"post_attention_layernorm.weight": (hidden,)}
        layer |= {f"self_attn.{name}": shape for name, shape in _attention(config).items()}
        feed_forward = _experts(config) if has_experts(config, i) else _dense(config)
        layer |= {f"mlp.{name}": shape for name, shape in feed_forward.items()}
        shapes |= {f"layers.{i}.{name}": shape for name, shape in layer.items()}
    return shapes


def has_experts(config: dict[str, Any], layer: int) -> bool:
    listed = config.get("mlp_only_layers", [])
    return (
        "num_experts" in config
        and layer not in listed
        and not ((layer + 1) % config["decoder_sparse_step"])
    )


def _attention(config: dict[str, Any]) -> Shapes:
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    width = config.get("head_dim", hidden // heads)
    q, kv = heads * width, config["num_key_value_heads"] * width
    shapes: Shapes = {"q_proj.weight": (q, hidden), "k_proj.weight": (kv, hidden)}
    shapes |= {"v_proj.weight": (kv, hidden), "o_proj.weight": (hidden, q)}
    if config["model_type"] == "qwen2" or config.get("attention_bias"):
        shapes |= {"q_proj.bias": (q,), "k_proj.bias": (kv,), "v_proj.bias": (kv,)}
    if config.get("attention_bias"):
        shapes["o_proj.bias"] = (hidden,)
    if config["model_type"].startswith("qwen3"):
        shapes |= {"q_norm.weight": (width,), "k_norm.weight": (width,)}
    return shapes


def _dense(config: dict[str, Any]) -> Shapes:
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    shapes: Shapes = {f"{name}_proj.weight": (inner, hidden) for name in ("gate", "up")}
    return shapes | {"down_proj.weight": (hidden, inner)}


def _experts(config: dict[str, Any]) -> Shapes:
    hidden, experts = config["hidden_size"], config["num_experts"]
    inner = config["moe_intermediate_size"]
    shapes: Shapes = {"gate.weight": (experts, hidden)}
    shapes["experts.gate_up_proj"] = (experts, 2 * inner, hidden)
    return shapes | {"experts.down_proj": (experts, hidden, inner)}


def draw_transformer(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Seeded values, scaled so that logits are lively and every tensor has its say."""
    values = rng.standard_normal(shape)
    if name.endswith("norm.weight"):
        values = 1 + 0.1 * values
    elif not name.endswith("bias"):
        gain = {"embed_tokens.weight": math.sqrt(shape[-1]), "lm_head.weight": 2.5}.get(name, 1.0)
        values *= gain / math.sqrt(shape[-1])
    return values.astype(np.float32)


def make_transformer(
    folder: str | Path,
    family: str,
    *,
    seed: int = 0,
    dtype: str = "bf16",
    shards: int = 1,
    separate: bool = True,
    **config: Any,
) -> dict[str, Array]:
    """Writes a checkpoint and returns its tensors by name *without* the prefix, experts fused.

    The values are float32 and exactly what the file holds. ``separate``: every expert has tensors
    of its own in the file, as the releases do. The rest: ``transformer_config``.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    keys = transformer_config(family, **config)
    rng = np.random.default_rng(seed)
    tensors = {
        name: rounded(draw_transformer(name, shape, rng), dtype)
        for name, shape in transformer_shapes(keys).items()
    }
    stored = dict(separate_experts(tensors)) if separate else tensors
    named = {
        name if name.startswith("lm_head") else "model." + name: value
        for name, value in stored.items()
    }
    write_checkpoint_files(folder, named, shards=shards, dtype=dtype)
    _write_side_files(folder, keys)
    return tensors


def _write_side_files(folder: Path, config: dict[str, Any]) -> None:
    first = config["vocab_size"] - PADDING_ROWS - len(SPECIAL_TOKENS)
    ids = {token: first + n for n, token in enumerate(SPECIAL_TOKENS)}
    generation = {
        "bos_token_id": ids["<|endoftext|>"],
        "eos_token_id": [ids["<|im_end|>"], ids["<|endoftext|>"]],
        "do_sample": True,
        "temperature": 0.7,
        "top_k": 20,
        "top_p": 0.8,
        "repetition_penalty": 1.1,
    }
    names = {"eos_token": "<|im_end|>", "bos_token": "<|endoftext|>"}
    write_tokenizer(folder, first, SPECIAL_TOKENS)
    for file, value in {
        "config.json": config,
        "generation_config.json": generation,
        "tokenizer_config.json": names | {"chat_template": CHAT_TEMPLATE},
    }.items():
        (folder / file).write_text(json.dumps(value, indent=2) + "\n")
