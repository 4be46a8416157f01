"""Attention layers (csrc/model/attention.cc): nh query heads, nkv of keys and values, of hd each;
n rows behind p tokens."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from .graph import Graph
from .spec import Spec


@dataclass
class Sight:
    """Who sees whom, and where rows stand: values of the graph that the layers share."""

    positions: str  # [n]
    anchors: str  # [n, 1], the position that a window ends at
    key_positions: str  # [1, p + n]
    seen: str  # [n, p + n], without windows
    masks: dict[int, str] = field(default_factory=dict)  # by window
    turns: dict[tuple[tuple[float, ...], float], tuple[str, str]] = field(default_factory=dict)

    def mask(self, g: Graph, window: int) -> str:
        """[n, p + n]: 0 where a row sees a key, else minus infinity."""
        if window not in self.masks:
            seen = self.seen
            if window:
                edge = g.op("Sub", self.anchors, g.constant(window, np.int64))
                seen = g.op("And", seen, g.op("Greater", self.key_positions, edge))
            self.masks[window] = g.op("Where", seen, g.constant(0), g.constant(-np.inf))
        return self.masks[window]

    def rotation(self, g: Graph, rope: tuple[tuple[float, ...], float]) -> tuple[str, str]:
        """Cosines and sines [n, 1, pairs]. Angles in double: in float a position of 100 000 would
        be off by 0.004."""
        if rope not in self.turns:
            frequencies, factor = rope
            at = g.unsqueeze(g.cast(self.positions, "DOUBLE"), 1, 2)
            angles = g.op("Mul", at, g.constant(frequencies, np.float64))
            by = g.constant(factor, np.float64)
            cosine, sine = (
                g.cast(g.op("Mul", g.op(kind, angles), by), "FLOAT") for kind in ("Cos", "Sin")
            )
            self.turns[rope] = cosine, sine
        return self.turns[rope]


def sight(g: Graph, cache: str, *, commit: bool) -> Sight:
    """From the body's inputs; `cache` [p, nkv, hd] is one whose length is that of the text."""
    count = g.op("Shape", "ids")
    own = g.unsqueeze(_range(g, count), 0)
    inside = g.op("Less", own, g.unsqueeze("sees_to", 1))
    past = g.op("Shape", cache, start=0, end=1)
    everything = g.op("Expand", g.constant([[True]], np.bool_), g.op("Concat", count, past, axis=0))
    seen = g.op("Concat", everything, inside, axis=1)
    keys = g.unsqueeze(g.op("Concat", _range(g, past), "positions", axis=0), 0)
    # The rows of a preview have the window of their first one.
    anchors = "positions" if commit else g.rows("positions", 0, 1)
    return Sight("positions", g.unsqueeze(anchors, 1), keys, seen)


def _range(g: Graph, count: str) -> str:
    """0, 1, … in front of `count` [1]"""
    first, step = (g.constant(i, np.int64) for i in (0, 1))
    return g.op("Range", first, g.op("Squeeze", count), step)


def attention(g: Graph, spec: Spec, layer: int, x: str, see: Sight) -> str:
    """[n, H]; puts out the rows' own keys and values."""
    name, nh, nkv, hd = f"layers.{layer}.attn", spec.num_heads, spec.num_kv_heads, spec.head_dim
    both = g.product(x, g.weights.matrix(f"{name}.in"))
    if spec.attn_in_bias:
        both = g.op("Add", both, g.reshape(g.vector(f"{name}.in_bias"), -1))
    q_width, kv_width = nh * hd, nkv * hd
    widths = [q_width] * (2 if spec.attn_output_gate else 1) + [kv_width] * 2
    q, *gate, k, v = g.split(both, widths)
    q, k, v = (g.reshape(part, 0, heads, hd) for part, heads in ((q, nh), (k, nkv), (v, nkv)))
    if spec.qk_norm:
        q = g.norm(q, g.vector(f"{name}.q_norm", offset=spec.norm_offset), spec.rms_eps)
        k = g.norm(k, g.vector(f"{name}.k_norm", offset=spec.norm_offset), spec.rms_eps)
    rotation = see.rotation(g, spec.rope(layer))
    q, k = (_rotate(g, part, hd, len(spec.rope(layer)[0]), *rotation) for part in (q, k))
    q = _grow(g, spec, q, see)
    g.output(f"kv.{layer}.k_new", k, ["n", nkv, hd])
    g.output(f"kv.{layer}.v_new", v, ["n", nkv, hd])
    out = _attend(g, spec, layer, q, k, v, see)
    if gate:
        out = g.op("Mul", out, g.op("Sigmoid", gate[0]))
    out = g.product(out, g.weights.matrix(f"{name}.out"))
    return g.op("Add", out, g.vector(f"{name}.out_bias")) if spec.attn_out_bias else out


def _rotate(g: Graph, x: str, hd: int, pairs: int, cosine: str, sine: str) -> str:
    """Turns the pairs (i, i + pairs) of x [n, heads, hd]; the other dimensions pass."""
    if not pairs:
        return x
    rest = [hd - 2 * pairs] if hd > 2 * pairs else []
    a, b, *others = g.split(x, [pairs, pairs, *rest])
    first = g.op("Sub", g.op("Mul", a, cosine), g.op("Mul", b, sine))
    second = g.op("Add", g.op("Mul", b, cosine), g.op("Mul", a, sine))
    return g.op("Concat", first, second, *others, axis=-1)


def _grow(g: Graph, spec: Spec, q: str, see: Sight) -> str:
    """q times 1 + beta ln(1 + floor(position / positions))."""
    if spec.query_scale_beta == 0:
        return q
    turns = g.op("Div", see.positions, g.constant(spec.query_scale_positions, np.int64))
    log = g.op("Log", g.op("Add", g.cast(turns, "FLOAT"), g.constant(1)))
    grown = g.op("Mul", log, g.constant(spec.query_scale_beta))
    return g.op("Mul", q, g.unsqueeze(g.op("Add", grown, g.constant(1)), 1, 2))


def _attend(g: Graph, spec: Spec, layer: int, q: str, k: str, v: str, see: Sight) -> str:
    """[n, nh * hd] from q [n, nh, hd] and the rows' own k, v [n, nkv, hd] behind the cached."""
    nh, nkv, hd = spec.num_heads, spec.num_kv_heads, spec.head_dim
    k = g.op("Concat", f"kv.{layer}.k", k, axis=0)
    v = g.op("Concat", f"kv.{layer}.v", v, axis=0)
    queries = g.transpose(g.reshape(q, 0, nkv, nh // nkv, hd), 1, 2, 0, 3)
    keys = g.unsqueeze(g.transpose(k, 1, 2, 0), 1)  # [nkv, 1, hd, p + n]
    values = g.unsqueeze(g.transpose(v, 1, 0, 2), 1)  # [nkv, 1, p + n, hd]
    scores = g.op("Mul", g.op("MatMul", queries, keys), g.constant(spec.attn_scale))
    scores = g.op("Add", scores, see.mask(g, spec.window(layer)))
    mixed = g.op("MatMul", g.op("Softmax", scores, axis=-1), values)  # [nkv, nh / nkv, n, hd]
    return g.reshape(g.transpose(mixed, 2, 0, 1, 3), 0, nh * hd)
