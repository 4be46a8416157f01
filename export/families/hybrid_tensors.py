"""Tensor names of the hybrid trunk: which of ours comes from which of the checkpoint's, and their
shapes."""

from __future__ import annotations

from typing import Any

from ...quant.recipes import DENSE, FLOAT
from ..checkpoint import Checkpoint
from ..sources import PREVIEW
from .base import Piece
from .blocks import map_attention, map_dense, map_experts, map_shared_expert
from .table import TensorTable, find_prefix

_PREFIXES = ("model.language_model.", "model.")
# Parts of a release that the text model does not use.
_IGNORED = ("mtp.", "model.mtp.", "model.language_model.mtp.", "model.visual.", "visual.")


def map_tensors(checkpoint: Checkpoint, spec: dict[str, Any], family: str) -> TensorTable:
    """Our tensor table, in the order of the forward pass, checked against the checkpoint.

    Raises CheckpointError naming tensors that are missing, surplus, or of another shape or type.
    """
    table = TensorTable(checkpoint, spec, find_prefix(checkpoint, _PREFIXES))
    hidden = spec["hidden_size"]
    table.embedding()
    for i, kind in enumerate(spec["layer_types"]):
        ours, theirs = f"layers.{i}.", f"{table.prefix}layers.{i}."
        table.vector(ours + "norm1", theirs + "input_layernorm.weight", hidden)
        (map_attention if kind == "attention" else _delta)(table, ours, theirs)
        table.vector(ours + "norm2", theirs + "post_attention_layernorm.weight", hidden)
        dense = spec["ffn_types"][i] == "dense"
        (map_dense if dense else _experts)(table, ours, theirs + "mlp.")
        _check_missing(table)
    table.head()
    _check_missing(table)
    table.check_surplus(family, prefixes=_IGNORED)
    return table


def _delta(table: TensorTable, ours: str, theirs: str) -> None:
    spec = table.spec
    hidden, heads, taps = spec["hidden_size"], spec["delta_v_heads"], spec["conv_taps"]
    value = heads * spec["delta_v_dim"]
    channels = 2 * spec["delta_k_heads"] * spec["delta_k_dim"] + value
    ours, theirs = ours + "delta.", theirs + "linear_attn."
    fused = theirs + "in_proj_qkvz.weight" in table.checkpoint.tensors
    qkvz, ba = (_fused_inputs if fused else _separate_inputs)(table, theirs)
    table.add(ours + "in", DENSE, (channels + value, hidden), *qkvz)
    table.add(ours + "ba", FLOAT, (2 * heads, hidden), *ba)
    table.vector(ours + "conv", theirs + "conv1d.weight", channels, taps, loose=True)
    table.vector(ours + "A_log", theirs + "A_log", heads, loose=True)
    table.vector(ours + "dt_bias", theirs + "dt_bias", heads, loose=True)
    table.vector(ours + "norm", theirs + "norm.weight", spec["delta_v_dim"])
    if spec.get("preview", True) and spec.get("delta_preview", "operator") == "operator":
        right = (channels, taps - 1)
        table.vector(ours + "conv_right", theirs + "conv_right_weight", *right, loose=True)
        for name in ("logit_scale", "history_bias", "history_c"):
            table.vector(ours + name, f"{theirs}bd_softmax_{name}", heads, loose=True)
    out = table.expect(theirs + "out_proj.weight", (hidden, value))
    table.add(ours + "out", DENSE, (hidden, value), out)


def _separate_inputs(table: TensorTable, theirs: str) -> tuple[list[Piece], list[Piece]]:
    """Rows of q, k, v and z, and those of b and a: each a tensor, but q, k and v one."""
    spec = table.spec
    hidden, heads = spec["hidden_size"], spec["delta_v_heads"]
    value = heads * spec["delta_v_dim"]
    channels = 2 * spec["delta_k_heads"] * spec["delta_k_dim"] + value
    shapes = {"qkv": channels, "z": value, "b": heads, "a": heads}
    qkv, z, b, a = (
        table.expect(f"{theirs}in_proj_{name}.weight", (rows, hidden))
        for name, rows in shapes.items()
    )
    return [qkv, z], [b, a]


def _fused_inputs(table: TensorTable, theirs: str) -> tuple[list[Piece], list[Piece]]:
    """The same of Qwen3-Next: two tensors whose rows are, key head by key head, its q, k, values
    and gates z, and the b and a of its values."""
    spec = table.spec
    k_heads, ratio = spec["delta_k_heads"], spec["delta_v_heads"] // spec["delta_k_heads"]
    k_dim, v_rows = spec["delta_k_dim"], ratio * spec["delta_v_dim"]

    def parts(name: str, widths: list[int]) -> list[Piece]:
        shape = (k_heads * sum(widths), spec["hidden_size"])
        source = table.expect(f"{theirs}in_proj_{name}.weight", shape).source
        starts = [sum(widths[:i]) for i in range(len(widths))]
        return [
            Piece(source, head * sum(widths) + start, head * sum(widths) + start + width)
            for start, width in zip(starts, widths, strict=True)
            for head in range(k_heads)
        ]

    return parts("qkvz", [k_dim, k_dim, v_rows, v_rows]), parts("ba", [ratio, ratio])


def _experts(table: TensorTable, ours: str, theirs: str) -> None:
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
