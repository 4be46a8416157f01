"""Clover's tensor names: which of ours comes from which of the checkpoint's, and their shapes."""

from __future__ import annotations

from typing import Any

from ...quant.recipes import DENSE, FLOAT
from ..checkpoint import Checkpoint
from ..sources import PREVIEW
from .blocks import map_attention, map_experts, map_shared_expert
from .table import TensorTable, find_prefix

PREFIXES = ("model.language_model.", "model.")
# Parts of a release that the text model does not use.
_IGNORED = ("mtp.", "model.mtp.", "model.language_model.mtp.", "model.visual.", "visual.")


def map_tensors(checkpoint: Checkpoint, spec: dict[str, Any]) -> TensorTable:
    """Our tensor table, in the order of the forward pass, checked against the checkpoint.

    Raises CheckpointError naming tensors that are missing, surplus, or of another shape or type.
    """
    table = TensorTable(checkpoint, spec, find_prefix(checkpoint, PREFIXES))
    hidden = spec["hidden_size"]
    table.embedding()
    for i, kind in enumerate(spec["layer_types"]):
        ours, theirs = f"layers.{i}.", f"{table.prefix}layers.{i}."
        table.vector(ours + "norm1", theirs + "input_layernorm.weight", hidden)
        (map_attention if kind == "attention" else _delta)(table, ours, theirs)
        table.vector(ours + "norm2", theirs + "post_attention_layernorm.weight", hidden)
        _feed_forward(table, ours, theirs + "mlp.")
        _check_missing(table)
    table.head()
    _check_missing(table)
    table.check_surplus("clover", prefixes=_IGNORED)
    return table


def _delta(table: TensorTable, ours: str, theirs: str) -> None:
    spec = table.spec
    hidden, heads, taps = spec["hidden_size"], spec["delta_v_heads"], spec["conv_taps"]
    value = heads * spec["delta_v_dim"]
    channels = 2 * spec["delta_k_heads"] * spec["delta_k_dim"] + value
    ours, theirs = ours + "delta.", theirs + "linear_attn."
    qkv = table.expect(theirs + "in_proj_qkv.weight", (channels, hidden))
    z = table.expect(theirs + "in_proj_z.weight", (value, hidden))
    table.add(ours + "in", DENSE, (channels + value, hidden), qkv, z)
    b = table.expect(theirs + "in_proj_b.weight", (heads, hidden))
    a = table.expect(theirs + "in_proj_a.weight", (heads, hidden))
    table.add(ours + "ba", FLOAT, (2 * heads, hidden), b, a)
    table.vector(ours + "conv", theirs + "conv1d.weight", channels, taps, loose=True)
    table.vector(ours + "A_log", theirs + "A_log", heads, loose=True)
    table.vector(ours + "dt_bias", theirs + "dt_bias", heads, loose=True)
    table.vector(ours + "norm", theirs + "norm.weight", spec["delta_v_dim"])
    if spec.get("preview", True):
        right = (channels, taps - 1)
        table.vector(ours + "conv_right", theirs + "conv_right_weight", *right, loose=True)
        for name in ("logit_scale", "history_bias", "history_c"):
            table.vector(ours + name, f"{theirs}bd_softmax_{name}", heads, loose=True)
    out = table.expect(theirs + "out_proj.weight", (hidden, value))
    table.add(ours + "out", DENSE, (hidden, value), out)


def _feed_forward(table: TensorTable, ours: str, theirs: str) -> None:
    hidden, shared = table.spec["hidden_size"], table.spec["shared_intermediate"]
    table.vector(ours + "router", theirs + "gate.weight", table.spec["num_experts"], hidden)
    if shared:
        table.vector(ours + "shared_gate", theirs + "shared_expert_gate.weight", 1, hidden)
        map_shared_expert(table, ours, theirs + "shared_expert.")
    map_experts(table, ours, theirs + "experts.")


def _check_missing(table: TensorTable) -> None:
    preview = all(name.endswith(PREVIEW) for name in table.missing)
    hint = ": without its preview tensors the model cannot decode by block diffusion"
    table.check_missing(hint if preview else "")


__all__ = ["PREFIXES", "PREVIEW", "map_tensors"]
