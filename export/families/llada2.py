"""LLaDA2.0 to 2.2 (``llada2_moe``): block diffusion on sparse experts behind a sigmoid router.

Attention with fused projections, norms on the heads of q and k and a partial rotation; the first
layers dense; experts chosen within groups, with a bias that does not weigh them. Blocks of 32 count
from position 0. From 2.1 on decoding edits: a generation configuration with ``edit_threshold``
asks for it. 2.2, told by its tokens to delete and to split, inserts and deletes, too, and the rows
of a preview share a pool of 48 experts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...quant.recipes import DENSE
from ..checkpoint import Checkpoint
from ..fields import Fields
from ..rope import rope_fields
from ..vocabulary import generation_defaults, valid_vocab
from .base import Model
from .block_diffusion import BlockFamily, block_fields
from .blocks import MAX_LAYERS, expert_fields, map_dense, map_experts, map_shared_expert
from .table import TensorTable, find_prefix

_FAMILY = "llada2"
_PREFIXES = ("model.",)
_EMBEDDING = "word_embeddings.weight"
_BLOCKS = BlockFamily(
    block_size=32,
    mask_tokens=("<|mask|>",),
    stop_tokens=("<|endoftext|>", "<|role_end|>"),
    decode={"threshold": 0.95, "fixed_schedule": True, "max_post_steps": 16},
)
_INDEL = replace(_BLOCKS, decode={"threshold": 0.5, "edit_threshold": 0.0, "max_post_steps": 16})
_POOL = 48  # experts of a preview


def read(checkpoint: Checkpoint) -> Model:
    """Spec, decode defaults and tensor table of a LLaDA2 checkpoint; no weight is read.

    Raises UnsupportedModelError for a router or bias that is not served, CheckpointError
    for a key or tensor that is missing or of another shape.
    """
    config = Fields(checkpoint.config_path, checkpoint.config)
    _refuse_unserved(config)
    spec = _spec(config)
    warnings: list[str] = []
    spec["valid_vocab"] = valid_vocab(checkpoint, spec["vocab_size"], warnings)
    spec |= block_fields(checkpoint, config, spec, _BLOCKS)
    spec |= _commands(config, spec)
    family = _INDEL if "delete_token_id" in spec else _BLOCKS
    generation = generation_defaults(checkpoint, config, spec, warnings, family)
    table = _map_tensors(checkpoint, spec)
    return Model(_FAMILY, spec, generation, table.tensors, warnings=warnings + table.warnings)


def _refuse_unserved(config: Fields) -> None:
    config.only("hidden_act", "silu")
    config.only("score_function", "sigmoid")
    config.only("use_qkv_bias", False)
    config.only("use_bias", False)
    config.only("use_qk_norm", True)
    config.only("use_rmsnorm", True)
    config.only("use_sliding_window", False)


def _commands(config: Fields, spec: dict[str, Any]) -> dict[str, Any]:
    """Of 2.2: the tokens that delete and split, and the pool of experts; of others nothing."""
    keys = ("delete_token_id", "split_token_id")
    if all(config.get(key) is None for key in keys):
        return {}
    last = spec["valid_vocab"] - 1
    fields: dict[str, Any] = {key: config.integer(key, low=0, high=last) for key in keys}
    if len({*fields.values(), spec["mask_token_id"]}) < 3:
        raise config.refuse("split_token_id", "of delete, split and mask token two are the same")
    if "num_experts" in spec:
        low, high = spec["top_k"], spec["num_experts"]
        pool = config.integer("coreset_size", max(low, min(_POOL, high)), low=low, high=high)
        fields["coreset_size"] = pool
    return fields


def _spec(config: Fields) -> dict[str, Any]:
    heads, hidden = config.integer("num_attention_heads"), config.integer("hidden_size")
    head_dim = config.integer("head_dim", hidden // heads or None)
    layers = config.integer("num_hidden_layers", high=MAX_LAYERS)
    dense = config.integer("first_k_dense_replace", 0, low=0, high=layers)
    spec: dict[str, Any] = {
        "vocab_size": config.integer("vocab_size"),
        "hidden_size": hidden,
        "num_layers": layers,
        "rms_eps": config.number("rms_norm_eps", low=1e-30, high=1.0),
        "norm_offset": 0.0,
        "layer_types": ["attention"] * layers,
        "ffn_types": ["dense"] * dense + ["experts"] * (layers - dense),
        "num_heads": heads,
        "num_kv_heads": config.integer("num_key_value_heads", heads),
        "head_dim": head_dim,
        **rope_fields(config, head_dim, share=0.5, theta=600_000.0),
        "attn_output_gate": False,
        "qk_norm": True,
        "attn_in_bias": False,
        "attn_out_bias": False,
        "attn_scale": head_dim**-0.5,
        **(_router(config) if dense < layers else {}),
        "tie_embeddings": config.flag("tie_word_embeddings", False),
        "max_positions": config.integer("max_position_embeddings"),
    }
    if dense:
        spec["dense_intermediate"] = config.integer("intermediate_size")
    config.groups("num_attention_heads", heads, spec["num_kv_heads"])
    return spec


def _router(config: Fields) -> dict[str, Any]:
    """Sigmoid scores; a choice among the best groups by score and bias; weights without the bias
    that sum to ``routed_scaling_factor``; shared experts side by side as one, not gated."""
    fields = expert_fields(config)
    experts, top_k = fields["num_experts"], fields["top_k"]
    groups = config.integer("n_group", 1, high=experts)
    kept = config.integer("topk_group", groups, high=groups)
    if experts % groups or (groups > 1 and experts // groups < 2):
        raise config.refuse("n_group", f"{experts} experts do not divide into {groups} groups")
    if top_k > kept * experts // groups:
        reason = f"{kept} groups of {experts // groups} hold fewer than {top_k} experts"
        raise config.refuse("topk_group", reason)
    shared = config.integer("num_shared_experts", 0, low=0, high=64)
    return fields | {
        "router": "sigmoid",
        "router_bias": config.flag("moe_router_enable_expert_bias", True),
        "n_group": groups,
        "topk_group": kept,
        "norm_topk": config.flag("norm_topk_prob", True),
        "routed_scaling_factor": config.number("routed_scaling_factor", 1.0, low=1e-6, high=1e6),
        "shared_intermediate": shared * fields["expert_intermediate"],
        "shared_gate": False,
    }


def _map_tensors(checkpoint: Checkpoint, spec: dict[str, Any]) -> TensorTable:
    prefix = find_prefix(checkpoint, _PREFIXES, embedding=_EMBEDDING)
    table = TensorTable(checkpoint, spec, prefix, embedding_name=_EMBEDDING)
    hidden = spec["hidden_size"]
    table.embedding()
    for i, kind in enumerate(spec["ffn_types"]):
        ours, theirs = f"layers.{i}.", f"{table.prefix}layers.{i}."
        table.vector(ours + "norm1", theirs + "input_layernorm.weight", hidden)
        _attention(table, ours + "attn.", theirs + "attention.")
        table.vector(ours + "norm2", theirs + "post_attention_layernorm.weight", hidden)
        if kind == "dense":
            map_dense(table, ours, theirs + "mlp.")
        else:
            _experts(table, ours, theirs + "mlp.")
        table.check_missing()
    table.head()
    table.check_missing()
    table.check_surplus(_FAMILY, suffixes=(".rotary_emb.inv_freq",))
    return table


def _attention(table: TensorTable, ours: str, theirs: str) -> None:
    """The rows of the fused projection are q, k, v: ours."""
    spec = table.spec
    hidden, width = spec["hidden_size"], spec["head_dim"]
    q, kv = spec["num_heads"] * width, spec["num_kv_heads"] * width
    shape = (q + 2 * kv, hidden)
    table.add(ours + "in", DENSE, shape, table.expect(theirs + "query_key_value.weight", shape))
    table.vector(ours + "q_norm", theirs + "query_layernorm.weight", width)
    table.vector(ours + "k_norm", theirs + "key_layernorm.weight", width)
    table.add(ours + "out", DENSE, (hidden, q), table.expect(theirs + "dense.weight", (hidden, q)))


def _experts(table: TensorTable, ours: str, theirs: str) -> None:
    spec = table.spec
    table.vector(ours + "router", theirs + "gate.weight", spec["num_experts"], spec["hidden_size"])
    if spec["router_bias"]:
        table.vector(ours + "router_bias", theirs + "gate.expert_bias", spec["num_experts"])
    if spec["shared_intermediate"]:
        map_shared_expert(table, ours, theirs + "shared_experts.")
    map_experts(table, ours, theirs + "experts.")
