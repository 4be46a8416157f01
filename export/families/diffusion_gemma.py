"""DiffusionGemma (``diffusion_gemma``), the text part: canvases of random ids on Gemma's trunk.

One set of weights is read two ways: causally, over text that is final, and over a whole canvas,
which also reads what the step before made of it; each way scales the layers' outputs by numbers of
its own. Layers that see everything have fewer and wider heads than those with a window, and
take their values from the keys. Every layer has experts beside a dense feed-forward.

Keys that a configuration leaves out are those of Hugging Face's ``DiffusionGemmaTextConfig``.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

from ...errors import UnsupportedModelError
from ...quant.recipes import DENSE
from ..checkpoint import Checkpoint
from ..fields import Fields
from ..rope import rope_fields
from ..vocabulary import generation_defaults, valid_vocab
from .base import Model
from .block_diffusion import MAX_BLOCK, CanvasFamily
from .blocks import MAX_EXPERTS, MAX_LAYERS, map_dense, map_experts, map_swiglu
from .gemma3 import KINDS, embedding_scale
from .hybrid import text_config
from .table import TensorTable, find_prefix

_FAMILY = "diffusion_gemma"
_PREFIXES = ("model.decoder.",)
_COMMITS = "model.encoder.language_model."  # its other weights are the decoder's
_IGNORED = ("model.encoder.vision_tower.", "model.encoder.embed_vision.")
_NORMS = {
    "norm1": "input_layernorm",
    "post_norm1": "post_attention_layernorm",
    "norm2": "pre_feedforward_layernorm",
    "dense_post_norm": "post_feedforward_layernorm_1",
    "expert_norm": "pre_feedforward_layernorm_2",
    "expert_post_norm": "post_feedforward_layernorm_2",
    "post_norm2": "post_feedforward_layernorm",
}
_CANVASES = CanvasFamily(
    decode={
        "steps": 48,
        "t_min": 0.4,
        "t_max": 0.8,
        "entropy_bound": 0.1,
        "stability_threshold": 1,
        "confidence_threshold": 0.005,
    },
    stop_tokens=("<eos>", "<end_of_turn>"),
)


def read(checkpoint: Checkpoint) -> Model:
    """Spec, decode defaults and tensor table of a checkpoint; no weight is read.

    Raises UnsupportedModelError for an operation that is not served, CheckpointError for a key or
    tensor that is missing or of another shape.
    """
    config = text_config(checkpoint)
    _refuse_unserved(config)
    spec = _spec(config)
    warnings: list[str] = []
    spec["valid_vocab"] = valid_vocab(checkpoint, spec["vocab_size"], warnings)
    generation = generation_defaults(checkpoint, config, spec, warnings, _CANVASES)
    table = _map_tensors(checkpoint, spec)
    return Model(_FAMILY, spec, generation, table.tensors, warnings=warnings + table.warnings)


def _refuse_unserved(config: Fields) -> None:
    config.only("hidden_activation", "gelu_pytorch_tanh")
    config.only("attention_bias", False)
    config.only("tie_word_embeddings", True)
    config.only("attn_logit_softcapping", None)
    if config.get("use_bidirectional_attention") != "vision":  # which text has none of
        config.only("use_bidirectional_attention", None)


def _spec(config: Fields) -> dict[str, Any]:
    hidden, kinds = config.integer("hidden_size", 2304), _kinds(config)
    window, inner = config.integer("sliding_window", 512), config.integer("intermediate_size", 9216)
    full = [kind == KINDS[1] for kind in kinds]
    context = config.integer("max_position_embeddings", 131072)
    return {
        "vocab_size": config.integer("vocab_size", 262144),
        "hidden_size": hidden,
        "num_layers": len(kinds),
        "rms_eps": config.number("rms_norm_eps", 1e-6, low=1e-30, high=1.0),
        "norm_offset": 0.0,
        "post_norms": True,
        "layer_scales": True,
        "embed_scale": embedding_scale(config, sqrt(hidden)),
        "layer_types": ["attention"] * len(kinds),
        "windows": [0 if wide else window for wide in full],
        **_attention_fields(config, full),
        "ffn_types": ["dense_and_experts"] * len(kinds),
        "activation": "gelu_tanh",
        "dense_intermediate": inner,
        **_expert_fields(config, hidden),
        "self_conditioning_intermediate": inner,
        "logit_softcap": config.number("final_logit_softcapping", 30.0, low=1e-3, high=1e6),
        "tie_embeddings": True,
        "max_positions": context,
        "preview": True,
        "noise": "uniform",
        "mask": "causal",
        "block_origin": "prompt_end",
        "logit_shift": 0,
        "block_size": config.integer("canvas_length", 256, high=min(MAX_BLOCK, context)),
    }


def _kinds(config: Fields) -> list[str]:
    count = config.integer("num_hidden_layers", 30, high=MAX_LAYERS)
    kinds = config.get("layer_types", [KINDS[(i + 1) % 6 == 0] for i in range(count)])
    if not isinstance(kinds, list) or len(kinds) != count:
        raise config.refuse("layer_types", f"is not a list of {count} layers")
    for kind in kinds:
        if kind not in KINDS:
            raise UnsupportedModelError(
                f"{config.path}: layer_types: {kind!r} is not supported ({', '.join(KINDS)} are)"
            )
    if kinds[-1] != KINDS[1]:  # the official code would silently make it one
        raise config.refuse("layer_types", f"the last layer is {kinds[-1]}, not {KINDS[1]}")
    return kinds


def _attention_fields(config: Fields, full: list[bool]) -> dict[str, Any]:
    """Shapes by layer. Layers that see everything have shapes of their own, under
    ``per_layer_config`` or as ``global_…`` keys, and no values of their own."""
    heads = config.integer("num_attention_heads", 8)
    head_dim, kv_heads = config.integer("head_dim", 256), config.integer("num_key_value_heads", 4)
    shapes = [
        _wide_shape(config, i, kv_heads) if wide else (head_dim, kv_heads)
        for i, wide in enumerate(full)
    ]
    wide_dims = {width for (width, _), wide in zip(shapes, full, strict=True) if wide}
    if len(wide_dims) > 1:
        raise UnsupportedModelError(
            f"{config.path}: per_layer_config: head_dim differs between layers of one type"
        )
    for _, groups in shapes:
        config.groups("num_attention_heads", heads, groups)
    return {
        "num_heads": heads,
        "num_kv_heads": kv_heads,
        "head_dim": head_dim,
        "head_dims": [width for width, _ in shapes],
        "kv_heads": [groups for _, groups in shapes],
        "values_from_keys": [int(wide) for wide in full],
        "v_norm": True,
        **_rope(config, head_dim, wide_dims.pop()),
        "attn_output_gate": False,
        "qk_norm": True,
        "attn_in_bias": False,
        "attn_out_bias": False,
        "attn_scale": 1.0,
    }


def _wide_shape(config: Fields, layer: int, kv_heads: int) -> tuple[int, int]:
    """Head width and number of key heads of a layer that sees everything."""
    if config.get("per_layer_config") is not None:
        own = config.section("per_layer_config").section(str(layer))
        if unknown := set(own.values) - {"head_dim", "num_key_value_heads"}:
            raise UnsupportedModelError(
                f"{config.path}: per_layer_config: {min(unknown)!r} is not supported"
            )
        head_dim = own.integer("head_dim", config.integer("head_dim", 256))
        return head_dim, own.integer("num_key_value_heads", kv_heads)
    return (
        config.integer("global_head_dim", 512),
        config.integer("num_global_key_value_heads", kv_heads),
    )


def _rope(config: Fields, head_dim: int, wide_dim: int) -> dict[str, Any]:
    by_type = config.section("rope_parameters")
    wide, local = by_type.section(KINDS[1]), by_type.section(KINDS[0])
    local.only("rope_type", "default")
    local.only("partial_rotary_factor", 1.0)
    plain = {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6}
    keys = Fields(config.path, {"rope_parameters": wide.values or plain})
    return {
        **rope_fields(keys, wide_dim),
        "rope_local_theta": local.number("rope_theta", 10_000.0, low=1.0),
        "rope_local_dim": head_dim,
    }


def _expert_fields(config: Fields, hidden: int) -> dict[str, Any]:
    experts = config.integer("num_experts", high=MAX_EXPERTS)
    return {
        "num_experts": experts,
        "top_k": config.integer("top_k_experts", high=experts),
        "expert_intermediate": config.integer("moe_intermediate_size"),
        "shared_intermediate": 0,
        "router": "softmax",
        "router_norm": True,
        "router_logit_scale": hidden**-0.5,
        "norm_topk": True,
        "expert_scales": True,
    }


def _map_tensors(checkpoint: Checkpoint, spec: dict[str, Any]) -> TensorTable:
    table = TensorTable(checkpoint, spec, find_prefix(checkpoint, _PREFIXES))
    table.embedding()
    _self_conditioning(table)
    for i in range(spec["num_layers"]):
        ours, theirs = f"layers.{i}.", f"{table.prefix}layers.{i}."
        for name, source in _NORMS.items():
            table.vector(ours + name, f"{theirs}{source}.weight", spec["hidden_size"])
        _attention(table, i, ours + "attn.", theirs + "self_attn.")
        map_dense(table, ours, theirs + "mlp.")
        _experts(table, ours, theirs)
        table.vector(ours + "commit_scale", f"{_COMMITS}layers.{i}.layer_scalar", 1)
        table.vector(ours + "preview_scale", theirs + "layer_scalar", 1)
        table.check_missing()
    table.head()
    table.check_missing()
    table.check_surplus(_FAMILY, prefixes=_IGNORED)
    return table


def _self_conditioning(table: TensorTable) -> None:
    hidden, inner = table.spec["hidden_size"], table.spec["self_conditioning_intermediate"]
    ours, theirs = "self_conditioning.", table.prefix + "self_conditioning."
    table.vector(ours + "norm", theirs + "pre_norm.weight", hidden)
    gate, up, down = map_swiglu(table, theirs, inner)
    table.add(ours + "gate_up", DENSE, (2 * inner, hidden), gate, up)
    table.add(ours + "down", DENSE, (hidden, inner), down)


def _attention(table: TensorTable, layer: int, ours: str, theirs: str) -> None:
    spec = table.spec
    hidden, width = spec["hidden_size"], spec["head_dims"][layer]
    q, kv = spec["num_heads"] * width, spec["kv_heads"][layer] * width
    rows = {"q": q, "k": kv} if spec["values_from_keys"][layer] else {"q": q, "k": kv, "v": kv}
    pieces = [table.expect(f"{theirs}{n}_proj.weight", (m, hidden)) for n, m in rows.items()]
    table.add(ours + "in", DENSE, (sum(rows.values()), hidden), *pieces)
    table.vector(ours + "q_norm", theirs + "q_norm.weight", width)
    table.vector(ours + "k_norm", theirs + "k_norm.weight", width)
    table.add(ours + "out", DENSE, (hidden, q), table.expect(theirs + "o_proj.weight", (hidden, q)))


def _experts(table: TensorTable, ours: str, theirs: str) -> None:
    experts, hidden = table.spec["num_experts"], table.spec["hidden_size"]
    table.vector(ours + "router", theirs + "router.proj.weight", experts, hidden)
    table.vector(ours + "router_norm", theirs + "router.scale", hidden)
    table.vector(ours + "expert_scales", theirs + "router.per_expert_scale", experts)
    map_experts(table, ours, theirs + "experts.")
