"""Clover's tensor names: which of ours comes from which of the checkpoint's, and their shapes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...errors import CheckpointError
from ...quant.recipes import DENSE, EMBED, FLOAT, HEAD
from ...quant.schemes import Shape
from ..checkpoint import Checkpoint
from ..sources import FLOAT_DTYPES
from .base import ExpertStack, Part, Piece, Tensor

PREFIXES = ("model.language_model.", "model.")
PREVIEW = (
    "conv_right_weight",
    "bd_softmax_logit_scale",
    "bd_softmax_history_bias",
    "bd_softmax_history_c",
)
# Parts of a release that the text model does not use.
_IGNORED = ("mtp.", "model.mtp.", "model.language_model.mtp.", "model.visual.", "visual.")
_NAMED = 8  # names listed in an error before "and n more"


@dataclass
class _Table:
    """Collects our tensors and the checkpoint names that they use up."""

    checkpoint: Checkpoint
    spec: dict[str, Any]
    prefix: str
    tensors: list[Tensor | ExpertStack] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    missing: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def expect(self, name: str, shape: Shape, *, loose: bool = False) -> Piece:
        """The whole of a checkpoint tensor, as a piece. ``loose``: it may carry singleton axes."""
        info = self.checkpoint.tensors.get(name)
        if info is None:
            self.missing.append(name)
            return Piece(name, 0, 0)
        self.used.add(name)
        same = _squeezed(info.shape) == _squeezed(shape) if loose else info.shape == shape
        if not same:
            reason = f"shape {list(info.shape)}, the configuration asks for {list(shape)}"
            raise CheckpointError(str(info.file), name, reason)
        if info.dtype not in FLOAT_DTYPES:
            known = ", ".join(FLOAT_DTYPES)
            raise CheckpointError(str(info.file), name, f"dtype {info.dtype} is not one of {known}")
        return Piece(name, 0, 1 if len(shape) == 1 else shape[0])

    def add(self, name: str, kind: str, shape: Shape, *pieces: Piece) -> None:
        self.tensors.append(Tensor(name, kind, shape, pieces))

    def vector(self, ours: str, theirs: str, *shape: int, loose: bool = False) -> None:
        """A tensor that stays float and keeps its shape."""
        self.add(ours, FLOAT, shape, self.expect(theirs, shape, loose=loose))


def map_tensors(checkpoint: Checkpoint, spec: dict[str, Any]) -> _Table:
    """Our tensor table, in the order of the forward pass, checked against the checkpoint.

    Raises CheckpointError naming tensors that are missing, surplus, or of another shape or type.
    """
    table = _Table(checkpoint, spec, _prefix(checkpoint))
    hidden, vocab = spec["hidden_size"], spec["vocab_size"]
    embed = table.expect(f"{table.prefix}embed_tokens.weight", (vocab, hidden))
    table.add("embed", EMBED, (vocab, hidden), embed)
    for i, kind in enumerate(spec["layer_types"]):
        ours, theirs = f"layers.{i}.", f"{table.prefix}layers.{i}."
        table.vector(ours + "norm1", theirs + "input_layernorm.weight", hidden)
        (_attention if kind == "attention" else _delta)(table, ours, theirs)
        table.vector(ours + "norm2", theirs + "post_attention_layernorm.weight", hidden)
        _feed_forward(table, ours, theirs + "mlp.")
        _check_missing(table)  # layer by layer: a configuration may claim any number of them
    table.vector("final_norm", f"{table.prefix}norm.weight", hidden)
    if not spec["tie_embeddings"]:
        table.add("head", HEAD, (vocab, hidden), table.expect("lm_head.weight", (vocab, hidden)))
    elif "lm_head.weight" in checkpoint.tensors:
        table.used.add("lm_head.weight")
        table.warnings.append("lm_head.weight is ignored: the configuration ties it to embed")
    _check_missing(table)
    _check_surplus(table)
    return table


def _prefix(checkpoint: Checkpoint) -> str:
    for prefix in PREFIXES:
        if f"{prefix}embed_tokens.weight" in checkpoint.tensors:
            return prefix
    looked = " or ".join(f"{prefix}embed_tokens.weight" for prefix in PREFIXES)
    raise CheckpointError(str(checkpoint.path), "embed_tokens.weight", f"is missing: no {looked}")


def _attention(table: _Table, ours: str, theirs: str) -> None:
    spec = table.spec
    hidden, heads, width = spec["hidden_size"], spec["num_heads"], spec["head_dim"]
    theirs += "self_attn."
    q_rows, kv_rows = heads * width, spec["num_kv_heads"] * width
    gated = spec["attn_output_gate"]
    q = table.expect(theirs + "q_proj.weight", ((2 if gated else 1) * q_rows, hidden))
    pieces = [q]
    if gated:
        # per head: its query rows, then its gate rows; ours are all queries, then all gates
        starts = [2 * width * head for head in range(heads)]
        pieces = [Piece(q.source, s, s + width) for s in starts]
        pieces += [Piece(q.source, s + width, s + 2 * width) for s in starts]
    pieces.append(table.expect(theirs + "k_proj.weight", (kv_rows, hidden)))
    pieces.append(table.expect(theirs + "v_proj.weight", (kv_rows, hidden)))
    rows = sum(piece.stop - piece.start for piece in pieces)
    table.add(ours + "attn.in", DENSE, (rows, hidden), *pieces)
    table.vector(ours + "attn.q_norm", theirs + "q_norm.weight", width)
    table.vector(ours + "attn.k_norm", theirs + "k_norm.weight", width)
    out = table.expect(theirs + "o_proj.weight", (hidden, q_rows))
    table.add(ours + "attn.out", DENSE, (hidden, q_rows), out)


def _delta(table: _Table, ours: str, theirs: str) -> None:
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
    right = (channels, taps - 1)
    table.vector(ours + "conv_right", theirs + "conv_right_weight", *right, loose=True)
    table.vector(ours + "A_log", theirs + "A_log", heads, loose=True)
    table.vector(ours + "dt_bias", theirs + "dt_bias", heads, loose=True)
    table.vector(ours + "norm", theirs + "norm.weight", spec["delta_v_dim"])
    for name in ("logit_scale", "history_bias", "history_c"):
        table.vector(ours + name, f"{theirs}bd_softmax_{name}", heads, loose=True)
    out = table.expect(theirs + "out_proj.weight", (hidden, value))
    table.add(ours + "out", DENSE, (hidden, value), out)


def _feed_forward(table: _Table, ours: str, theirs: str) -> None:
    spec = table.spec
    hidden, experts, shared = spec["hidden_size"], spec["num_experts"], spec["shared_intermediate"]
    table.vector(ours + "router", theirs + "gate.weight", experts, hidden)
    if shared:
        gate = table.expect(theirs + "shared_expert.gate_proj.weight", (shared, hidden))
        up = table.expect(theirs + "shared_expert.up_proj.weight", (shared, hidden))
        down = table.expect(theirs + "shared_expert.down_proj.weight", (hidden, shared))
        table.vector(ours + "shared_gate", theirs + "shared_expert_gate.weight", 1, hidden)
        table.add(ours + "shared.gate_up", DENSE, (2 * shared, hidden), gate, up)
        table.add(ours + "shared.down", DENSE, (hidden, shared), down)
    separate = f"{theirs}experts.0.gate_proj.weight" in table.checkpoint.tensors
    parts = (_separate_experts if separate else _fused_experts)(table, theirs + "experts.")
    table.tensors.append(ExpertStack(ours + "experts", experts, parts))


def _fused_experts(table: _Table, theirs: str) -> dict[str, Part]:
    spec = table.spec
    hidden, experts, inner = spec["hidden_size"], spec["num_experts"], spec["expert_intermediate"]
    both = table.expect(theirs + "gate_up_proj", (experts, 2 * inner, hidden)).source
    down = table.expect(theirs + "down_proj", (experts, hidden, inner)).source

    def slices(source: str, stride: int, first: int, rows: int) -> tuple[Piece, ...]:
        starts = (stride * e + first for e in range(experts))
        return tuple(Piece(source, start, start + rows) for start in starts)

    return {
        "gate": Part((inner, hidden), slices(both, 2 * inner, 0, inner)),
        "up": Part((inner, hidden), slices(both, 2 * inner, inner, inner)),
        "down": Part((hidden, inner), slices(down, hidden, 0, hidden)),
    }


def _separate_experts(table: _Table, theirs: str) -> dict[str, Part]:
    spec = table.spec
    hidden, inner = spec["hidden_size"], spec["expert_intermediate"]

    def pieces(name: str, shape: Shape) -> Part:
        names = (f"{theirs}{e}.{name}_proj.weight" for e in range(spec["num_experts"]))
        return Part(shape, tuple(table.expect(each, shape) for each in names))

    return {
        "gate": pieces("gate", (inner, hidden)),
        "up": pieces("up", (inner, hidden)),
        "down": pieces("down", (hidden, inner)),
    }


def _check_missing(table: _Table) -> None:
    if not table.missing:
        return
    reason = "missing from the checkpoint"
    if all(name.endswith(PREVIEW) for name in table.missing):
        reason += ": without its preview tensors the model cannot decode by block diffusion"
    raise CheckpointError(str(table.checkpoint.path), _listed(table.missing), reason)


def _check_surplus(table: _Table) -> None:
    surplus = [
        name
        for name in table.checkpoint.tensors
        if name not in table.used and not name.startswith(_IGNORED)
    ]
    if surplus:
        reason = "not known to the clover family"
        raise CheckpointError(str(table.checkpoint.path), _listed(surplus), reason)


def _squeezed(shape: Shape) -> Shape:
    return tuple(n for n in shape if n != 1)


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


__all__ = ["PREFIXES", "PREVIEW", "map_tensors"]
