"""Gemma 3, the text part: layers that see a window between layers that see everything, norms on
both sides of each half of a layer, GELU in the feed-forward.

Keys that a configuration leaves out are those of Hugging Face's ``Gemma3TextConfig``: the releases
with a vision tower leave most of them out.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from ...errors import UnsupportedModelError
from ..checkpoint import Checkpoint
from ..fields import Fields
from ..rope import rope_fields
from ..vocabulary import generation_defaults, valid_vocab
from .base import Model
from .blocks import MAX_LAYERS, map_attention, map_dense
from .hybrid import text_config
from .table import TensorTable, find_prefix

_PREFIXES = ("model.language_model.", "language_model.model.", "model.")
_IGNORED = tuple(
    f"{prefix}{part}."
    for prefix in ("", "model.")
    for part in ("vision_tower", "multi_modal_projector")
)
KINDS = ("sliding_attention", "full_attention")
_NORMS = {
    "norm1": "input_layernorm",
    "post_norm1": "post_attention_layernorm",
    "norm2": "pre_feedforward_layernorm",
    "post_norm2": "post_feedforward_layernorm",
}
# The tokenizer's, one behind the text model's last row.
_WITHOUT_ROW = ("<image_soft_token>",)


def read(checkpoint: Checkpoint) -> Model:
    """Spec, decode defaults and tensor table of a checkpoint; no weight is read."""
    config = text_config(checkpoint)
    _refuse_unserved(config)
    spec = _spec(config)
    warnings: list[str] = []
    vocab = spec["vocab_size"]
    spec["valid_vocab"] = valid_vocab(checkpoint, vocab, warnings, without_row=_WITHOUT_ROW)
    generation = generation_defaults(checkpoint, config, spec, warnings)
    table = _map_tensors(checkpoint, spec)
    return Model("gemma3", spec, generation, table.tensors, warnings=warnings + table.warnings)


def _refuse_unserved(config: Fields) -> None:
    config.only("hidden_activation", "gelu_pytorch_tanh")
    config.only("attention_bias", False)
    config.only("use_bidirectional_attention", False)
    config.only("final_logit_softcapping", None)
    config.only("attn_logit_softcapping", None)


def _spec(config: Fields) -> dict[str, Any]:
    heads, hidden = config.integer("num_attention_heads", 8), config.integer("hidden_size")
    head_dim, windows = config.integer("head_dim", 256), _windows(config)
    spec: dict[str, Any] = {
        "vocab_size": config.integer("vocab_size", 262208),
        "hidden_size": hidden,
        "num_layers": len(windows),
        "rms_eps": config.number("rms_norm_eps", 1e-6, low=1e-30, high=1.0),
        "norm_offset": 1.0,
        "post_norms": True,
        "embed_scale": embedding_scale(config, sqrt(hidden)),
        "layer_types": ["attention"] * len(windows),
        "windows": windows,
        "num_heads": heads,
        "num_kv_heads": config.integer("num_key_value_heads", 4),
        "head_dim": head_dim,
        **_rope(config, head_dim),
        "attn_output_gate": False,
        "qk_norm": True,
        "attn_in_bias": False,
        "attn_out_bias": False,
        "attn_scale": config.number("query_pre_attn_scalar", 256.0, low=1.0) ** -0.5,
        "ffn_types": ["dense"] * len(windows),
        "dense_intermediate": config.integer("intermediate_size"),
        "activation": "gelu_tanh",
        "tie_embeddings": config.flag("tie_word_embeddings", True),
        "max_positions": config.integer("max_position_embeddings", 131072),
        "preview": False,
    }
    config.groups("num_attention_heads", heads, spec["num_kv_heads"])
    return spec


def _windows(config: Fields) -> list[int]:
    """By layer: keys that a token sees, itself included; 0: all. ``layer_types``, or every
    ``sliding_window_pattern``-th layer sees all."""
    count = config.integer("num_hidden_layers", high=MAX_LAYERS)
    window = config.integer("sliding_window", 4096)
    every = config.integer("sliding_window_pattern", 6)
    listed = config.get("layer_types", [KINDS[(i + 1) % every == 0] for i in range(count)])
    if not isinstance(listed, list) or len(listed) != count:
        raise config.refuse("layer_types", f"is not a list of {count} layers")
    for kind in listed:
        if kind not in KINDS:
            raise UnsupportedModelError(
                f"{config.path}: layer_types: {kind!r} is not supported ({', '.join(KINDS)} are)"
            )
    return [window if kind == KINDS[0] else 0 for kind in listed]


def _rope(config: Fields, head_dim: int) -> dict[str, Any]:
    """Rotation of the layers that see everything, which may be stretched, and the base of those
    with a window, which is not. Keys by layer type under ``rope_parameters``, or at the top."""
    by_type = config.section("rope_parameters")
    wide, local = by_type.section("full_attention"), by_type.section("sliding_attention")
    local.only("rope_type", "default")
    others = {key: value for key, value in config.values.items() if key != "rope_parameters"}
    keys = Fields(config.path, {**others, "rope_parameters": wide.values})
    base = config.number("rope_local_base_freq", 10_000.0, low=1.0)
    return {
        **rope_fields(keys, head_dim, theta=1_000_000.0),
        "rope_local_theta": local.number("rope_theta", base, low=1.0),
    }


def embedding_scale(config: Fields, scale: float) -> float:
    """Rounded to the type that the release's weights, and hence its embedding's factor, have."""
    kind = config.get("dtype", config.get("torch_dtype", "float32"))
    if kind == "bfloat16":
        bits = int(np.float32(scale).view(np.uint32))
        bits += 0x7FFF + (bits >> 16 & 1)  # to nearest, ties to even
        return float(np.uint32(bits & 0xFFFF0000).view(np.float32))
    return float(np.float16(scale) if kind == "float16" else np.float32(scale))


def _map_tensors(checkpoint: Checkpoint, spec: dict[str, Any]) -> TensorTable:
    table = TensorTable(checkpoint, spec, find_prefix(checkpoint, _PREFIXES))
    table.embedding()
    for i in range(spec["num_layers"]):
        ours, theirs = f"layers.{i}.", f"{table.prefix}layers.{i}."
        for name, source in _NORMS.items():
            table.vector(ours + name, f"{theirs}{source}.weight", spec["hidden_size"])
        map_attention(table, ours, theirs)
        map_dense(table, ours, theirs + "mlp.")
        table.check_missing()
    table.head()
    table.check_missing()
    table.check_surplus("gemma3", prefixes=_IGNORED)
    return table
