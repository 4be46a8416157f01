"""The hybrid trunk of Qwen3-Next, Qwen3.5 and Qwen3.6, which Clover and conversions to block
diffusion have, too: layers of gated DeltaNet and of gated attention, each with a dense or a sparse
feed-forward.

Keys are those of Hugging Face's text configurations, flat or under ``text_config``.
"""

from __future__ import annotations

from typing import Any

from ..checkpoint import Checkpoint
from ..fields import Fields
from ..rope import rope_fields
from ..vocabulary import generation_defaults, mask_token_id, valid_vocab
from .base import Model
from .block_diffusion import BlockFamily, block_fields
from .blocks import MAX_LAYERS, feed_forward_fields
from .hybrid_tensors import map_tensors

_KINDS = {"linear_attention": "deltanet", "full_attention": "attention"}


def read_hybrid(
    checkpoint: Checkpoint,
    config: Fields,
    family: str,
    *,
    sparse: bool,
    preview: dict[str, Any] | None = None,
    blocks: BlockFamily | None = None,
) -> Model:
    """Spec, decode defaults and tensor table of such a checkpoint; no weight is read.

    ``config``: its ``text_config``. ``sparse``: layers have experts, unless the configuration takes
    some out. ``preview``: the spec's fields for previews by the operator. ``blocks``: a conversion
    that denoises blocks with the trunk's own tensors, DeltaNet staying causal. With neither the
    model is autoregressive.
    """
    _refuse_unknown_operations(config)
    spec = _spec(config, sparse)
    spec |= {"preview": False} if preview is None else preview
    warnings: list[str] = []
    spec["valid_vocab"] = valid_vocab(checkpoint, spec["vocab_size"], warnings)
    if blocks:
        spec |= block_fields(checkpoint, config, spec, blocks) | {"delta_preview": "causal"}
    elif preview is not None or config.get("mask_token_id") is not None:
        spec["mask_token_id"] = mask_token_id(checkpoint, config, spec["vocab_size"])
    generation = generation_defaults(checkpoint, config, spec, warnings, blocks)
    table = map_tensors(checkpoint, spec, family)
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


def text_config(checkpoint: Checkpoint) -> Fields:
    """The text model's keys; what only the outer level says (tying, mask id) still counts."""
    outer = Fields(checkpoint.config_path, checkpoint.config)
    return Fields(outer.path, {**outer.values, **outer.section("text_config").values})


def _refuse_unknown_operations(config: Fields) -> None:
    config.only("hidden_act", "silu")
    config.only("attention_bias", False)
    config.only("scoring_func", "softmax")


def _spec(config: Fields, sparse: bool) -> dict[str, Any]:
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
        **_feed_forward(config, len(layer_types), sparse),
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


def _feed_forward(config: Fields, layers: int, sparse: bool) -> dict[str, Any]:
    fields = feed_forward_fields(config, layers, sparse, norm_topk=True)
    if "experts" in fields["ffn_types"]:
        fields["shared_intermediate"] = _shared_intermediate(config)
    return fields


def _shared_intermediate(config: Fields) -> int:
    if config.integer("num_shared_experts", 1, low=0, high=1) == 0:
        return 0
    return config.integer("shared_expert_intermediate_size", low=0)
