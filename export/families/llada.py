"""LLaDA-8B and 1.5, and LLaDA-MoE-7B-A1B: transformers with full attention, logits in place.

The dense releases are Llama with names and keys of their own (OLMo's); GGUF files of them use
Llama's. LLaDA-MoE has Qwen3-MoE's names, norms on the heads of q and k, and a softmax router whose
chosen weights are not scaled to sum to one. Decoding: blocks of a canvas of masks, from left to
right, the most confident positions first.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...errors import UnsupportedModelError
from ...quant.recipes import DENSE, EMBED, FFN, HEAD
from ..checkpoint import Checkpoint
from ..fields import Fields
from ..rope import rope_fields
from ..vocabulary import generation_defaults, valid_vocab
from .base import Model
from .block_diffusion import FULL_ATTENTION, block_fields
from .blocks import MAX_LAYERS
from .table import TensorTable, find_prefix
from .transformer import Trunk, read_trunk

_PREFIXES = ("model.transformer.", "transformer.")
_EMBEDDING = "wte.weight"
_NAMES = ["LLaDAModelLM"], ["LLaDAMoEModelLM"]
_LLAMA = Trunk("llada", "LLaDAModelLM")
_MOE = Trunk(
    "llada_moe",
    "LLaDAMoEModelLM",
    qk_norm=True,
    experts=True,
    expert_width="expert_intermediate_size",
)
_BLOCKS = replace(FULL_ATTENTION, also_stop=("<|endoftext|>", "<|eot_id|>"))
_MOE_BLOCKS = replace(FULL_ATTENTION, also_stop=("<|endoftext|>", "<|role_end|>"))


def read(checkpoint: Checkpoint) -> Model:
    """Spec, decode defaults and tensor table of a LLaDA checkpoint; no weight is read.

    Both kinds call themselves ``llada``: ``architectures`` tells them apart. Raises
    UnsupportedModelError for what is not served, CheckpointError for a key or tensor that is
    missing or of another shape.
    """
    config = Fields(checkpoint.config_path, checkpoint.config)
    names = config.get("architectures", _NAMES["expert_intermediate_size" in config.values])
    if names == _NAMES[1]:
        return read_moe(checkpoint)
    if names != _NAMES[0]:
        known = " and ".join(repr(name) for name in _NAMES)
        raise UnsupportedModelError(
            f"{config.path}: architectures: {names!r} is not supported for model_type "
            f"{config.get('model_type')!r} ({known} are)"
        )
    if config.get("d_model") is None:
        return read_trunk(checkpoint, _LLAMA, _BLOCKS)
    _refuse_unserved(config)
    spec = _spec(config)
    warnings: list[str] = []
    spec["valid_vocab"] = valid_vocab(checkpoint, spec["vocab_size"], warnings)
    spec |= block_fields(checkpoint, config, spec, _BLOCKS)
    generation = generation_defaults(checkpoint, config, spec, warnings, _BLOCKS)
    table = _map_tensors(checkpoint, spec)
    return Model("llada", spec, generation, table.tensors, warnings=warnings + table.warnings)


def read_moe(checkpoint: Checkpoint) -> Model:
    """The same of a LLaDA-MoE checkpoint."""
    config = Fields(checkpoint.config_path, checkpoint.config)
    layers = config.integer("num_hidden_layers", high=MAX_LAYERS)
    config.only("moe_layer_freq", [1] * layers)
    config.only("qk_layernorm", True)
    config.only("clip_qkv", None)
    config.only("norm_topk_prob", False)  # the release's code looks at no such key
    config.only("moe_router_score_function", "softmax")
    config.only("moe_router_enable_expert_bias", False)
    config.only("routed_scaling_factor", 1)
    for key in ("shared_expert_intermediate_size", "router_num_group", "router_topk_group"):
        config.only(key, None)
    return read_trunk(checkpoint, _MOE, _MOE_BLOCKS)


def _refuse_unserved(config: Fields) -> None:
    for key, known in {
        "block_type": "llama",
        "activation_type": "silu",
        "layer_norm_type": "rms",
        "rope": True,
        "alibi": False,
        "attention_layer_norm": False,
        "bias_for_layer_norm": False,
        "include_bias": False,
        "include_qkv_bias": False,
        "scale_logits": False,
        "input_emb_norm": False,
        "clip_qkv": None,
        "embedding_size": config.integer("vocab_size"),
    }.items():
        config.only(key, known)


def _spec(config: Fields) -> dict[str, Any]:
    heads, hidden = config.integer("n_heads"), config.integer("d_model")
    config.groups("d_model", hidden, heads)
    head_dim, layers = hidden // heads, config.integer("n_layers", high=MAX_LAYERS)
    spec: dict[str, Any] = {
        "vocab_size": config.integer("vocab_size"),
        "hidden_size": hidden,
        "num_layers": layers,
        "rms_eps": config.number("rms_norm_eps", 1e-5, low=1e-30, high=1.0),
        "norm_offset": 0.0,
        "layer_types": ["attention"] * layers,
        "ffn_types": ["dense"] * layers,
        "dense_intermediate": config.integer("mlp_hidden_size"),
        "num_heads": heads,
        "num_kv_heads": config.integer("n_kv_heads", heads),
        "head_dim": head_dim,
        **rope_fields(config, head_dim, theta=10_000.0),
        "attn_output_gate": False,
        "qk_norm": False,
        "attn_in_bias": False,
        "attn_out_bias": False,
        "attn_scale": head_dim**-0.5,
        "tie_embeddings": config.flag("weight_tying", False),
        "max_positions": config.integer("max_sequence_length"),
    }
    config.groups("n_heads", heads, spec["num_kv_heads"])
    return spec


def _map_tensors(checkpoint: Checkpoint, spec: dict[str, Any]) -> TensorTable:
    prefix = find_prefix(checkpoint, _PREFIXES, embedding=_EMBEDDING)
    table = TensorTable(checkpoint, spec, prefix, embedding_name=_EMBEDDING)
    hidden, vocab = spec["hidden_size"], spec["vocab_size"]
    table.add("embed", EMBED, (vocab, hidden), table.expect(prefix + _EMBEDDING, (vocab, hidden)))
    for i in range(spec["num_layers"]):
        _layer(table, f"layers.{i}.", f"{prefix}blocks.{i}.")
        table.check_missing()
    table.vector("final_norm", prefix + "ln_f.weight", hidden)
    if not spec["tie_embeddings"]:
        head = table.expect(prefix + "ff_out.weight", (vocab, hidden))
        table.add("head", HEAD, (vocab, hidden), head)
    table.check_missing()
    table.check_surplus("llada")
    return table


def _layer(table: TensorTable, ours: str, theirs: str) -> None:
    """``ff_proj`` is the gate, ``ff_out`` within a layer the down projection."""
    spec = table.spec
    hidden, inner = spec["hidden_size"], spec["dense_intermediate"]
    q, kv = (spec[name] * spec["head_dim"] for name in ("num_heads", "num_kv_heads"))
    parts = {"q_proj": q, "k_proj": kv, "v_proj": kv}
    wide = [table.expect(f"{theirs}{name}.weight", (n, hidden)) for name, n in parts.items()]
    table.vector(ours + "norm1", theirs + "attn_norm.weight", hidden)
    table.add(ours + "attn.in", DENSE, (q + 2 * kv, hidden), *wide)
    out = table.expect(theirs + "attn_out.weight", (hidden, q))
    table.add(ours + "attn.out", DENSE, (hidden, q), out)
    table.vector(ours + "norm2", theirs + "ff_norm.weight", hidden)
    names = ("ff_proj", "up_proj")
    gate, up = (table.expect(f"{theirs}{name}.weight", (inner, hidden)) for name in names)
    table.add(ours + "dense.gate_up", FFN, (2 * inner, hidden), gate, up)
    down = table.expect(theirs + "ff_out.weight", (hidden, inner))
    table.add(ours + "dense.down", FFN, (hidden, inner), down)
