"""Maker of tiny seeded checkpoints of the families with full attention, in the real layouts.

Dream has Qwen2's names, LLaDA-MoE Qwen3-MoE's, and LLaDA names and keys of its own.
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

# (model_type, architecture, trunk, mask token, tokens that end a text)
FAMILIES = {
    "dream": ("Dream", "DreamModel", "qwen2", "<|mask|>", ("<|endoftext|>", "<|im_end|>")),
    "llada": ("llada", "LLaDAModelLM", "llama", "<|mdm_mask|>", ("<|endoftext|>", "<|eot_id|>")),
    "llada_moe": (
        "llada",
        "LLaDAMoEModelLM",
        "qwen3_moe",
        "<|mask|>",
        ("<|endoftext|>", "<|role_end|>"),
    ),
}
# what LLaDA calls it, by Llama's words
_LLADA_KEYS = {
    "hidden_size": "d_model",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "num_key_value_heads": "n_kv_heads",
    "intermediate_size": "mlp_hidden_size",
    "max_position_embeddings": "max_sequence_length",
    "tie_word_embeddings": "weight_tying",
    "vocab_size": "vocab_size",
    "rms_norm_eps": "rms_norm_eps",
    "rope_theta": "rope_theta",
}
_LLADA_NAMES = {
    "embed_tokens.weight": "transformer.wte.weight",
    "norm.weight": "transformer.ln_f.weight",
    "lm_head.weight": "transformer.ff_out.weight",
}
_LLADA_LAYER = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ff_norm",
    "self_attn.q_proj": "q_proj",
    "self_attn.k_proj": "k_proj",
    "self_attn.v_proj": "v_proj",
    "self_attn.o_proj": "attn_out",
    "mlp.gate_proj": "ff_proj",
    "mlp.up_proj": "up_proj",
    "mlp.down_proj": "ff_out",
}


# attention felt, since nothing else tells masks apart, and sharp logits, so that thresholds matter
_GAINS = {
    "lm_head.weight": 2.0,
    "o_proj.weight": 5.0,
    "q_proj.weight": 1.7,
    "k_proj.weight": 1.7,
}


def special_ids(family: str, vocab: int) -> dict[str, int]:
    """Ids of the stop tokens and of the mask: the last ones in front of the padding."""
    *_, mask, stops = FAMILIES[family]
    names = (*stops, mask)
    first = vocab - PADDING_ROWS - len(names)
    return {name: first + n for n, name in enumerate(names)}


def trunk_config(family: str, **overrides: Any) -> dict[str, Any]:
    """The family's configuration in the words of its trunk; ``overrides`` replaces keys before
    they shape any weight."""
    sizes = {name: overrides.pop(name) for name in ("hidden", "layers") if name in overrides}
    config = transformer_config(FAMILIES[family][2], **sizes)
    config["rope_theta"] = 100.0  # positions felt within a short text
    if family == "llada_moe":
        config |= {"num_experts": 16, "num_experts_per_tok": 4, "norm_topk_prob": False}
    return config | overrides


def full_attention_config(family: str, trunk: dict[str, Any]) -> dict[str, Any]:
    """``config.json`` as the release words it."""
    kind, architecture, *_ = FAMILIES[family]
    named = {"model_type": kind, "architectures": [architecture]}
    ids = special_ids(family, trunk["vocab_size"])
    stop, _, mask = ids.values()
    if family == "dream":
        return {**trunk, **named, "mask_token_id": mask, "eos_token_id": stop}
    if family == "llada":
        keys = {theirs: trunk[ours] for ours, theirs in _LLADA_KEYS.items()}
        fixed = {"block_type": "llama", "activation_type": "silu", "layer_norm_type": "rms"}
        flags = {"include_bias": False, "include_qkv_bias": False, "rope": True, "alibi": False}
        same = {"embedding_size": trunk["vocab_size"], "mask_token_id": mask, "eos_token_id": stop}
        return {**keys, **fixed, **flags, **same, **named}
    config = {**trunk, **named, "eos_token_id": stop, "norm_topk_prob": None}
    config["expert_intermediate_size"] = config.pop("moe_intermediate_size")
    config |= {"moe_layer_freq": [1] * trunk["num_hidden_layers"], "qk_layernorm": True}
    return config | {"moe_router_score_function": "softmax", "routed_scaling_factor": 1.0}


def make_full_attention(
    folder: str | Path,
    family: str,
    *,
    seed: int = 0,
    dtype: str = "bf16",
    generation: dict[str, Any] | None = None,
    **config: Any,
) -> tuple[dict[str, Array], dict[str, Any]]:
    """Writes a checkpoint. Returns its tensors and configuration in the trunk's words.

    The values are float32 and exactly what the file holds. ``generation``: more keys of the
    generation configuration. The rest: ``trunk_config``.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    trunk = trunk_config(family, **config)
    rng = np.random.default_rng(seed)
    tensors = {
        name: rounded(_draw(name, shape, rng), dtype)
        for name, shape in transformer_shapes(trunk).items()
    }
    stored = {stored_name(family, n): v for n, v in dict(separate_experts(tensors)).items()}
    write_checkpoint_files(folder, stored, dtype=dtype)
    ids = special_ids(family, trunk["vocab_size"])
    write_tokenizer(folder, min(ids.values()), tuple(ids))
    for file, value in {
        "config.json": full_attention_config(family, trunk),
        "generation_config.json": generation or {},
        "tokenizer_config.json": {"eos_token": "<|endoftext|>", "chat_template": CHAT_TEMPLATE},
    }.items():
        (folder / file).write_text(json.dumps(value, indent=2) + "\n")
    return tensors, trunk


def stored_name(family: str, name: str) -> str:
    """The release's name of a tensor of the trunk."""
    if family != "llada":
        return name if name.startswith("lm_head") else "model." + name
    if name in _LLADA_NAMES:
        return "model." + _LLADA_NAMES[name]
    _, number, rest = name.split(".", 2)
    return f"model.transformer.blocks.{number}.{_LLADA_LAYER[rest.removesuffix('.weight')]}.weight"


def full_attention_shapes(family: str, trunk: dict[str, Any]) -> Shapes:
    """Shapes by the release's name, every expert with tensors of its own."""
    shapes: Shapes = {}
    for name, shape in transformer_shapes(trunk).items():
        stem, _, last = name.rpartition(".")
        for e in range(shape[0]) if last in ("gate_up_proj", "down_proj") else ():
            parts = ("gate", "up") if last == "gate_up_proj" else ("down",)
            rows = shape[1] // len(parts)
            for part in parts:
                shapes[stored_name(family, f"{stem}.{e}.{part}_proj.weight")] = (rows, shape[2])
        if last not in ("gate_up_proj", "down_proj"):
            shapes[stored_name(family, name)] = shape
    return shapes


def _draw(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    value = draw_transformer(name, shape, rng)
    for ending, gain in _GAINS.items():
        value *= np.float32(gain) if name.endswith(ending) else 1
    return value
