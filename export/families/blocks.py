"""Attention and feed-forward as many families name them: spec fields, and our tensors."""

from __future__ import annotations

from typing import Any

from ...quant.recipes import DENSE, FFN, FLOAT
from ...quant.schemes import Shape
from ..fields import Fields
from .base import ExpertStack, Part, Piece
from .table import TensorTable

MAX_LAYERS, MAX_EXPERTS = 4096, 65536


def expert_fields(config: Fields, width_key: str = "moe_intermediate_size") -> dict[str, Any]:
    """The spec of softmax-routed experts; ``width_key``: where the width of one is said."""
    experts = config.integer("num_experts", high=MAX_EXPERTS)
    top_k = config.integer("num_experts_per_tok")
    if top_k > experts:
        raise config.refuse("num_experts_per_tok", f"{top_k} is above num_experts")
    return {
        "num_experts": experts,
        "top_k": top_k,
        "expert_intermediate": config.integer(width_key),
        "router": "softmax",
    }


def feed_forward_kinds(config: Fields, layers: int) -> list[str]:
    """Every ``decoder_sparse_step``-th layer has experts, unless it is among
    ``mlp_only_layers``."""
    step, dense = config.integer("decoder_sparse_step", 1), config.get("mlp_only_layers", [])
    if not isinstance(dense, list) or not all(type(i) is int for i in dense):
        raise config.refuse("mlp_only_layers", f"{dense!r} is not a list of layer numbers")
    sparse = [i not in dense and (i + 1) % step == 0 for i in range(layers)]
    return ["experts" if experts else "dense" for experts in sparse]


def feed_forward_fields(
    config: Fields,
    layers: int,
    sparse: bool,
    *,
    norm_topk: bool,
    width_key: str = "moe_intermediate_size",
) -> dict[str, Any]:
    """Spec fields of dense and sparse layers; no shared expert. ``norm_topk``: where the
    configuration is silent. ``width_key``: of ``expert_fields``."""
    kinds = feed_forward_kinds(config, layers) if sparse else ["dense"] * layers
    fields: dict[str, Any] = {"ffn_types": kinds}
    if "dense" in kinds:
        fields["dense_intermediate"] = config.integer("intermediate_size")
    if "experts" in kinds:
        fields |= expert_fields(config, width_key)
        fields |= {"shared_intermediate": 0, "norm_topk": config.flag("norm_topk_prob", norm_topk)}
    return fields


def map_attention(table: TensorTable, ours: str, theirs: str) -> None:
    """``attn.*`` from ``self_attn.{q,k,v,o}_proj`` and ``{q,k}_norm``, as far as the spec has them.

    ``ours``, ``theirs``: the layer's prefixes.
    """
    spec = table.spec
    hidden, width = spec["hidden_size"], spec["head_dim"]
    ours, theirs = ours + "attn.", theirs + "self_attn."
    q_rows, kv_rows = spec["num_heads"] * width, spec["num_kv_heads"] * width
    lengths = {"q": (2 if spec["attn_output_gate"] else 1) * q_rows, "k": kv_rows, "v": kv_rows}
    rows = sum(lengths.values())
    wide = [table.expect(f"{theirs}{n}_proj.weight", (m, hidden)) for n, m in lengths.items()]
    table.add(ours + "in", DENSE, (rows, hidden), *_queries_first(spec, wide))
    if spec["attn_in_bias"]:  # a column: its pieces are rows, like the matrix's
        flat = [table.expect(f"{theirs}{n}_proj.bias", (m,)) for n, m in lengths.items()]
        column = [
            Piece(piece.source, 0, m) for piece, m in zip(flat, lengths.values(), strict=True)
        ]
        table.add(ours + "in_bias", FLOAT, (rows, 1), *_queries_first(spec, column))
    if spec["qk_norm"]:
        table.vector(ours + "q_norm", theirs + "q_norm.weight", width)
        table.vector(ours + "k_norm", theirs + "k_norm.weight", width)
    out = table.expect(theirs + "o_proj.weight", (hidden, q_rows))
    table.add(ours + "out", DENSE, (hidden, q_rows), out)
    if spec["attn_out_bias"]:
        table.vector(ours + "out_bias", theirs + "o_proj.bias", hidden)


def _queries_first(spec: dict[str, Any], pieces: list[Piece]) -> list[Piece]:
    """With output gates, q's rows are, per head, its query's, then its gate's; ours are all
    queries, then all gates."""
    q, *others = pieces
    if not spec["attn_output_gate"]:
        return pieces
    width = spec["head_dim"]
    starts = [2 * width * head for head in range(spec["num_heads"])]
    queries = [Piece(q.source, s, s + width) for s in starts]
    return [*queries, *(Piece(q.source, s + width, s + 2 * width) for s in starts), *others]


def map_dense(table: TensorTable, ours: str, theirs: str) -> None:
    """``dense.*`` from ``{gate,up,down}_proj``."""
    spec = table.spec
    hidden, inner = spec["hidden_size"], spec["dense_intermediate"]
    # alone, dense layers are most of the bytes; beside experts, some of what every token uses
    kind = DENSE if any(kind != "dense" for kind in spec["ffn_types"]) else FFN
    gate, up, down = map_swiglu(table, theirs, inner)
    table.add(ours + "dense.gate_up", kind, (2 * inner, hidden), gate, up)
    table.add(ours + "dense.down", kind, (hidden, inner), down)


def map_swiglu(table: TensorTable, theirs: str, inner: int) -> tuple[Piece, Piece, Piece]:
    """Gate, up and down projection of width ``inner``."""
    hidden = table.spec["hidden_size"]
    return (
        table.expect(theirs + "gate_proj.weight", (inner, hidden)),
        table.expect(theirs + "up_proj.weight", (inner, hidden)),
        table.expect(theirs + "down_proj.weight", (hidden, inner)),
    )


def map_shared_expert(table: TensorTable, ours: str, theirs: str) -> None:
    """``shared.*`` from ``{gate,up,down}_proj``."""
    hidden, inner = table.spec["hidden_size"], table.spec["shared_intermediate"]
    gate, up, down = map_swiglu(table, theirs, inner)
    table.add(ours + "shared.gate_up", DENSE, (2 * inner, hidden), gate, up)
    table.add(ours + "shared.down", DENSE, (hidden, inner), down)


def map_experts(table: TensorTable, ours: str, theirs: str) -> None:
    """``experts`` from ``gate_up_proj`` and ``down_proj`` of all, or from those of each."""
    separate = f"{theirs}0.gate_proj.weight" in table.checkpoint.tensors
    parts = (_separate_experts if separate else _fused_experts)(table, theirs)
    table.tensors.append(ExpertStack(ours + "experts", table.spec["num_experts"], parts))


def _fused_experts(table: TensorTable, theirs: str) -> dict[str, Part]:
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


def _separate_experts(table: TensorTable, theirs: str) -> dict[str, Part]:
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
