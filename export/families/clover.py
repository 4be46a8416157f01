"""Clover: the gated-DeltaNet mixture-of-experts trunk of Qwen3.6 with four preview tensors a layer.

Keys of the trunk are those of Qwen3.5-MoE's text configuration, flat or under ``text_config``.
The preview fields (``block_size`` and following) are read under our own names and default to what
the public record says of the release.
"""

from __future__ import annotations

from typing import Any

from ...errors import UnsupportedModelError
from ..checkpoint import Checkpoint
from ..fields import Fields
from ..vocabulary import generation_defaults, mask_token_id, valid_vocab
from .base import Model
from .clover_tensors import PREFIXES, map_tensors

_KINDS = {"linear_attention": "deltanet", "full_attention": "attention"}
_MAX_LAYERS, _MAX_EXPERTS = 4096, 65536


def read(checkpoint: Checkpoint) -> Model:
    """Spec, decode defaults and tensor table of a Clover checkpoint; no weight is read."""
    config = _text_config(checkpoint)
    _refuse_unknown_operations(config)
    spec = _spec(config)
    spec.update(_preview_fields(config, spec))
    warnings: list[str] = []
    spec["valid_vocab"] = valid_vocab(checkpoint, spec["vocab_size"], warnings)
    spec["mask_token_id"] = mask_token_id(checkpoint, config, spec["vocab_size"])
    generation = generation_defaults(checkpoint, config, spec, warnings)
    table = map_tensors(checkpoint, spec)
    layers = range(spec["num_layers"])
    deltanet = [i for i in layers if spec["layer_types"][i] == "deltanet"]
    return Model(
        family="clover",
        spec=spec,
        generation=generation,
        tensors=table.tensors,
        norm_probes=tuple(f"{table.prefix}layers.{i}.input_layernorm.weight" for i in layers),
        decay_probes=tuple(f"{table.prefix}layers.{i}.linear_attn.A_log" for i in deltanet),
        warnings=warnings + table.warnings,
    )


def _text_config(checkpoint: Checkpoint) -> Fields:
    """The text model's keys; what only the outer level says (tying, mask id) still counts."""
    outer = Fields(checkpoint.config_path, checkpoint.config)
    return Fields(outer.path, {**outer.values, **outer.section("text_config").values})


def _refuse_unknown_operations(config: Fields) -> None:
    served: tuple[tuple[str, Any, Any], ...] = (
        ("hidden_act", config.get("hidden_act", "silu"), "silu"),
        ("attention_bias", config.get("attention_bias", False), False),
        ("mlp_only_layers", config.get("mlp_only_layers", []), []),
        ("decoder_sparse_step", config.get("decoder_sparse_step", 1), 1),
        ("scoring_func", config.get("scoring_func", "softmax"), "softmax"),
        ("preview_decay", config.get("preview_decay", False), False),
        ("quantization_config", config.get("quantization_config"), None),
    )
    for key, value, known in served:
        if value != known:
            raise UnsupportedModelError(
                f"{config.path}: {key}: {value!r} is not supported (only {known!r} is)"
            )


def _spec(config: Fields) -> dict[str, Any]:
    layer_types = _layer_types(config)
    heads, hidden = config.integer("num_attention_heads"), config.integer("hidden_size")
    head_dim = config.integer("head_dim", hidden // heads or None)
    spec: dict[str, Any] = {
        "vocab_size": config.integer("vocab_size"),
        "hidden_size": hidden,
        "num_layers": len(layer_types),
        "rms_eps": config.number("rms_norm_eps", low=1e-30, high=1.0),
        "layer_types": layer_types,
        "num_heads": heads,
        "num_kv_heads": config.integer("num_key_value_heads"),
        "head_dim": head_dim,
        **_rope(config, head_dim),
        "attn_output_gate": config.flag("attn_output_gate", True),
        "attn_scale": head_dim**-0.5,
        "delta_k_heads": config.integer("linear_num_key_heads"),
        "delta_v_heads": config.integer("linear_num_value_heads"),
        "delta_k_dim": config.integer("linear_key_head_dim"),
        "delta_v_dim": config.integer("linear_value_head_dim"),
        "conv_taps": config.integer("linear_conv_kernel_dim", 4, low=2, high=64),
        "num_experts": config.integer("num_experts", high=_MAX_EXPERTS),
        "top_k": config.integer("num_experts_per_tok"),
        "expert_intermediate": config.integer("moe_intermediate_size"),
        "shared_intermediate": _shared_intermediate(config),
        "router": "softmax",
        "norm_topk": config.flag("norm_topk_prob", True),
        "tie_embeddings": config.flag("tie_word_embeddings", False),
        "max_positions": config.integer("max_position_embeddings"),
        "mask": "causal",
        "block_origin": "prompt_end",
        "logit_shift": 0,
    }
    _check_divides(config, spec, "num_attention_heads", "num_heads", "num_kv_heads")
    _check_divides(config, spec, "linear_num_value_heads", "delta_v_heads", "delta_k_heads")
    if spec["top_k"] > spec["num_experts"]:
        raise config.refuse("num_experts_per_tok", f"{spec['top_k']} is above num_experts")
    return spec


def _check_divides(config: Fields, spec: dict[str, Any], key: str, many: str, few: str) -> None:
    if spec[many] % spec[few]:
        raise config.refuse(key, f"{spec[many]} heads do not divide into groups of {spec[few]}")


def _layer_types(config: Fields) -> list[str]:
    count = config.integer("num_hidden_layers", high=_MAX_LAYERS)
    listed = config.get("layer_types")
    if listed is None:
        interval = config.integer("full_attention_interval", 4)
        return ["deltanet" if (i + 1) % interval else "attention" for i in range(count)]
    if not isinstance(listed, list) or len(listed) != count:
        raise config.refuse("layer_types", f"is not a list of {count} layers")
    for kind in listed:
        if not isinstance(kind, str) or kind not in _KINDS:
            raise config.refuse("layer_types", f"{kind!r} is not one of {', '.join(_KINDS)}")
    return [_KINDS[kind] for kind in listed]


def _rope(config: Fields, head_dim: int) -> dict[str, Any]:
    """Rotary keys, nested (``rope_parameters``) or at the top (older configurations)."""
    nested = config.section("rope_parameters")
    scaling = config.section("rope_scaling")
    kinds = [nested.get("rope_type"), scaling.get("rope_type"), scaling.get("type")]
    for kind in kinds:
        # mrope's three axes carry the same position for text: plain rotary embedding
        if kind not in (None, "default", "mrope"):
            raise UnsupportedModelError(f"{config.path}: rope_type {kind!r} is not supported")
    merged = Fields(config.path, {**config.values, **nested.values})
    share = merged.number("partial_rotary_factor", 0.25, high=1.0)
    rotary = int(head_dim * share)
    if rotary < 2 or rotary % 2:
        reason = f"{share:g} of {head_dim} is not an even number of dimensions"
        raise config.refuse("partial_rotary_factor", reason)
    return {"rotary_dim": rotary, "rope_theta": merged.number("rope_theta", low=1.0)}


def _shared_intermediate(config: Fields) -> int:
    if config.integer("num_shared_experts", 1, low=0, high=1) == 0:
        return 0
    return config.integer("shared_expert_intermediate_size", low=0)


def _preview_fields(config: Fields, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "block_size": config.integer("block_size", 32, high=spec["max_positions"]),
        "coreset_size": config.integer("coreset_size", 0, low=0, high=spec["num_experts"]),
        "history_q_scale": config.flag("history_q_scale", True),
        "preview_value_beta": config.flag("preview_value_beta", False),
        "preview_decay": False,
        "history_ref_rows": config.integer("history_ref_rows", 32),
    }


__all__ = ["PREFIXES", "read"]
