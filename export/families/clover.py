"""Clover: the gated-DeltaNet mixture-of-experts trunk of Qwen3.6 with four preview tensors a layer.

Keys of the trunk are those of Qwen3.5-MoE's text configuration, flat or under ``text_config``.
The preview fields (``block_size`` and following) are read under our own names and default to what
the public record says of the release.
"""

from __future__ import annotations

from typing import Any

from ..checkpoint import Checkpoint
from ..fields import Fields
from ..rope import rope_fields
from ..vocabulary import generation_defaults, mask_token_id, valid_vocab
from .base import Model
from .blocks import MAX_LAYERS, expert_fields
from .clover_tensors import PREFIXES, PREVIEW, map_tensors

_KINDS = {"linear_attention": "deltanet", "full_attention": "attention"}


def read(checkpoint: Checkpoint) -> Model:
    """Spec, decode defaults and tensor table of a Clover checkpoint; no weight is read.

    Sources that lost the preview tensors say ``"preview": false``; the model is then the trunk,
    autoregressive.
    """
    config = _text_config(checkpoint)
    if config.flag("preview", True):
        return _read(checkpoint, config, "clover", preview=True)
    model = _read(checkpoint, config, "clover", preview=False)
    model.warnings.append(
        f"{checkpoint.path} has no preview tensors ({', '.join(PREVIEW)}): exported as an "
        "autoregressive model, without block diffusion; --preview-tensors FOLDER brings them back"
    )
    return model


def read_trunk(checkpoint: Checkpoint) -> Model:
    """The same of the trunk itself, Qwen3.5-MoE and Qwen3.6-MoE: autoregressive."""
    return _read(checkpoint, _text_config(checkpoint), "qwen3_5_moe", preview=False)


def _read(checkpoint: Checkpoint, config: Fields, family: str, *, preview: bool) -> Model:
    _refuse_unknown_operations(config)
    spec = _spec(config)
    spec |= _preview_fields(config, spec) if preview else {"preview": False}
    warnings: list[str] = []
    spec["valid_vocab"] = valid_vocab(checkpoint, spec["vocab_size"], warnings)
    if preview or config.get("mask_token_id") is not None:
        spec["mask_token_id"] = mask_token_id(checkpoint, config, spec["vocab_size"])
    generation = generation_defaults(checkpoint, config, spec, warnings)
    table = map_tensors(checkpoint, spec)
    layers = range(spec["num_layers"])
    deltanet = [i for i in layers if spec["layer_types"][i] == "deltanet"]
    return Model(
        family=family,
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
    config.only("hidden_act", "silu")
    config.only("attention_bias", False)
    config.only("mlp_only_layers", [])
    config.only("decoder_sparse_step", 1)
    config.only("scoring_func", "softmax")
    config.only("preview_decay", False)


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
        **rope_fields(config, head_dim, share=0.25),
        "attn_output_gate": config.flag("attn_output_gate", True),
        "qk_norm": True,
        "attn_in_bias": False,
        "attn_out_bias": False,
        "attn_scale": head_dim**-0.5,
        "delta_k_heads": config.integer("linear_num_key_heads"),
        "delta_v_heads": config.integer("linear_num_value_heads"),
        "delta_k_dim": config.integer("linear_key_head_dim"),
        "delta_v_dim": config.integer("linear_value_head_dim"),
        "conv_taps": config.integer("linear_conv_kernel_dim", 4, low=2, high=64),
        **expert_fields(config),
        "shared_intermediate": _shared_intermediate(config),
        "norm_topk": config.flag("norm_topk_prob", True),
        "tie_embeddings": config.flag("tie_word_embeddings", False),
        "max_positions": config.integer("max_position_embeddings"),
        "mask": "causal",
        "block_origin": "prompt_end",
        "logit_shift": 0,
    }
    config.groups("num_attention_heads", spec["num_heads"], spec["num_kv_heads"])
    config.groups("linear_num_value_heads", spec["delta_v_heads"], spec["delta_k_heads"])
    return spec


def _layer_types(config: Fields) -> list[str]:
    count = config.integer("num_hidden_layers", high=MAX_LAYERS)
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
