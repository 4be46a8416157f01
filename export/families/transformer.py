"""Plain transformers: what Llama, Qwen2, Qwen3 and their like have in common.

Attention with grouped keys, causal unless the family denoises blocks, and plain RMSNorms, then a
SwiGLU or sparse experts. Families say in a ``Trunk`` where they differ; keys and tensor names are
those of Hugging Face's classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...errors import UnsupportedModelError
from ..checkpoint import Checkpoint
from ..fields import Fields
from ..rope import query_scale_fields, rope_fields
from ..vocabulary import generation_defaults, valid_vocab
from .base import Model
from .block_diffusion import BlockFamily, block_fields
from .blocks import (
    MAX_LAYERS,
    feed_forward_fields,
    map_attention,
    map_dense,
    map_experts,
)
from .table import HEAD_NAME, TensorTable, find_prefix

DERIVED = (".rotary_emb.inv_freq",)  # old checkpoints carry what follows from the configuration


@dataclass(frozen=True)
class Trunk:
    """A family. A bias that is None is as ``attention_bias`` says."""

    family: str
    architecture: str
    qk_norm: bool = False
    in_bias: bool | None = None  # of the q, k and v projections
    out_bias: bool | None = None  # of the o projection
    head_dim: int | None = None  # where the configuration is silent; None: hidden_size / heads
    experts: bool = False
    expert_width: str = "moe_intermediate_size"  # the key of it
    prefix: str = "model."  # of the checkpoint's names, all but the head's
    head: str = HEAD_NAME


def read_trunk(checkpoint: Checkpoint, trunk: Trunk, blocks: BlockFamily | None = None) -> Model:
    """Spec, decode defaults and tensor table of a checkpoint of that family; no weight is read.

    With ``blocks`` the trunk denoises blocks, otherwise it is autoregressive.
    """
    config = Fields(checkpoint.config_path, checkpoint.config)
    spec = trunk_spec(config, trunk)
    warnings: list[str] = []
    spec["valid_vocab"] = valid_vocab(checkpoint, spec["vocab_size"], warnings)
    if blocks:
        spec |= block_fields(checkpoint, config, spec, blocks)
    generation = generation_defaults(checkpoint, config, spec, warnings, blocks)
    table = _map_tensors(checkpoint, spec, trunk)
    return Model(trunk.family, spec, generation, table.tensors, warnings=warnings + table.warnings)


def _refuse_unserved(config: Fields, trunk: Trunk) -> None:
    names = config.get("architectures")
    if names is not None and names != [trunk.architecture]:
        raise UnsupportedModelError(
            f"{config.path}: architectures: {names!r} is not supported for model_type "
            f"{config.get('model_type')!r} (only {[trunk.architecture]!r} is)"
        )
    config.only("hidden_act", "silu")
    config.only("mlp_bias", False)
    config.only("use_sliding_window", False)


def trunk_spec(config: Fields, trunk: Trunk) -> dict[str, Any]:
    """The spec of an autoregressive trunk, but for ``valid_vocab``.

    Raises UnsupportedModelError for what would be computed wrongly, CheckpointError naming the key.
    """
    _refuse_unserved(config, trunk)
    heads, hidden = config.integer("num_attention_heads"), config.integer("hidden_size")
    head_dim = config.integer("head_dim", trunk.head_dim or hidden // heads or None)
    bias = config.flag("attention_bias", False)
    layers = _layers(config)
    spec: dict[str, Any] = {
        "vocab_size": config.integer("vocab_size"),
        "hidden_size": hidden,
        "num_layers": layers,
        "rms_eps": config.number("rms_norm_eps", low=1e-30, high=1.0),
        "norm_offset": 0.0,
        "layer_types": ["attention"] * layers,
        "num_heads": heads,
        "num_kv_heads": config.integer("num_key_value_heads", heads),
        "head_dim": head_dim,
        **rope_fields(config, head_dim, theta=10_000.0),
        **query_scale_fields(config),
        "attn_output_gate": False,
        "qk_norm": trunk.qk_norm,
        "attn_in_bias": bias if trunk.in_bias is None else trunk.in_bias,
        "attn_out_bias": bias if trunk.out_bias is None else trunk.out_bias,
        "attn_scale": head_dim**-0.5,
        **feed_forward_fields(
            config, layers, trunk.experts, norm_topk=False, width_key=trunk.expert_width
        ),
        "tie_embeddings": config.flag("tie_word_embeddings", False),
        "max_positions": config.integer("max_position_embeddings"),
        "preview": False,
    }
    config.groups("num_attention_heads", heads, spec["num_kv_heads"])
    return spec


def _layers(config: Fields) -> int:
    count = config.integer("num_hidden_layers", high=MAX_LAYERS)
    listed = config.get("layer_types", ["full_attention"] * count)
    if not isinstance(listed, list) or len(listed) != count:
        raise config.refuse("layer_types", f"is not a list of {count} layers")
    for kind in listed:
        if kind != "full_attention":
            raise UnsupportedModelError(
                f"{config.path}: layer_types: {kind!r} is not supported (only full_attention is)"
            )
    return count


def _map_tensors(checkpoint: Checkpoint, spec: dict[str, Any], trunk: Trunk) -> TensorTable:
    prefix = find_prefix(checkpoint, (trunk.prefix,))
    table = TensorTable(checkpoint, spec, prefix, head_name=trunk.head)
    table.embedding()
    map_layers(table)
    table.head()
    table.check_missing()
    table.check_surplus(trunk.family, suffixes=DERIVED)
    return table


def map_layers(table: TensorTable) -> None:
    """Norms, attention and feed-forward of every layer of the table's spec."""
    spec, hidden = table.spec, table.spec["hidden_size"]
    for i, kind in enumerate(spec["ffn_types"]):
        ours, theirs = f"layers.{i}.", f"{table.prefix}layers.{i}."
        table.vector(ours + "norm1", theirs + "input_layernorm.weight", hidden)
        map_attention(table, ours, theirs)
        table.vector(ours + "norm2", theirs + "post_attention_layernorm.weight", hidden)
        theirs += "mlp."
        if kind == "dense":
            map_dense(table, ours, theirs)
        else:
            table.vector(ours + "router", theirs + "gate.weight", spec["num_experts"], hidden)
            map_experts(table, ours, theirs + "experts.")
        table.check_missing()
