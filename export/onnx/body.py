"""Whole graphs (csrc/model/forward.cc): embed, then per layer h += mixer(norm1(h)),
h += feed_forward(norm2(h)), and the head."""

from __future__ import annotations

import numpy as np

from .attention import Sight, attention, sight
from .deltanet import delta_inputs, deltanet
from .feed_forward import feed_forward
from .graph import Graph
from .spec import Spec


def body(g: Graph, spec: Spec, *, commit: bool) -> None:
    """n rows behind p tokens, logits of m of them; inputs and outputs: docs/onnx.md."""
    _inputs(g, spec, commit)
    caches = [f"kv.{i}.k" for i in spec.layers if spec.attends(i)]
    see = sight(g, caches[0], commit=commit) if caches else None
    with g.scope("embed"):
        h = embed(g, spec)
    for i in spec.layers:
        with g.scope(f"layers.{i}"):
            h = _add(g, spec, h, _mixer(g, spec, i, h, see, commit), f"layers.{i}.post_norm1")
            x = _norm(g, spec, h, f"layers.{i}.norm2")
            h = _add(g, spec, h, feed_forward(g, spec, i, x), f"layers.{i}.post_norm2")
    g.output("hidden", h, ["n", spec.hidden_size])
    head(g, spec, g.op("Gather", h, "rows"))


def head_alone(g: Graph, spec: Spec) -> None:
    head(g, spec, g.input("hidden", "FLOAT", ["m", spec.hidden_size]))


def _inputs(g: Graph, spec: Spec, commit: bool) -> None:
    for name in ("ids", "positions", "sees_to"):
        g.input(name, "INT64", ["n"])
    g.input("rows", "INT64", ["m"])
    for i in spec.layers:
        if spec.attends(i):
            for part in "kv":
                g.input(f"kv.{i}.{part}", "FLOAT", ["p", spec.num_kv_heads, spec.head_dim])
        else:
            delta_inputs(g, spec, i)
    if not commit and spec.delta_operator():
        g.input("history_width", "FLOAT", [])


def embed(g: Graph, spec: Spec) -> str:
    """[n, H] embedding rows"""
    matrix = g.weights.matrix("embed")
    h = g.op("Gather", g.stored(matrix.values), "ids")
    if matrix.bits:
        if matrix.bits == 4:
            low = g.op("BitwiseAnd", h, g.constant(15, np.uint8))
            high = g.op("BitShift", h, g.constant(4, np.uint8), direction="RIGHT")
            pairs = g.op("Concat", g.unsqueeze(low, -1), g.unsqueeze(high, -1), axis=-1)
            h = g.reshape(pairs, 0, 0, matrix.block)
        zero = g.constant(1 << (matrix.bits - 1))
        levels = g.op("Sub", g.cast(h, "FLOAT"), zero)  # [n, blocks, block]
        scales = g.op("Gather", g.stored(matrix.scales), "ids")
        h = g.reshape(g.op("Mul", levels, g.unsqueeze(scales, 2)), 0, matrix.columns)
    elif matrix.kind != "FLOAT":
        h = g.cast(h, "FLOAT")
    return g.op("Mul", h, g.constant(spec.embed_scale)) if spec.embed_scale != 1 else h


def _mixer(g: Graph, spec: Spec, layer: int, h: str, see: Sight | None, commit: bool) -> str:
    x = _norm(g, spec, h, f"layers.{layer}.norm1")
    if see and spec.attends(layer):
        return attention(g, spec, layer, x, see)
    return deltanet(g, spec, layer, x, commit=commit)


def _norm(g: Graph, spec: Spec, x: str, name: str) -> str:
    return g.norm(x, g.vector(name, offset=spec.norm_offset), spec.rms_eps)


def _add(g: Graph, spec: Spec, h: str, y: str, post_norm: str) -> str:
    """h + y, y normalised where the model has norms behind its halves"""
    return g.op("Add", h, _norm(g, spec, y, post_norm) if spec.post_norms else y)


def head(g: Graph, spec: Spec, hidden: str) -> None:
    """logits [m, V] of rows of the residual stream"""
    with g.scope("head"):
        x = _norm(g, spec, hidden, "final_norm")
        z = g.product(x, g.weights.matrix("embed" if spec.tie_embeddings else "head"))
        if spec.logit_softcap:
            cap = g.constant(spec.logit_softcap)
            z = g.op("Mul", g.op("Tanh", g.op("Div", z, cap)), cap)
        g.output("logits", z, ["m", spec.vocab_size])
