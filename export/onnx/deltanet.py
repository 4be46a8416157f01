"""Gated DeltaNet layers (csrc/model/delta.cc): Hk key heads of dk, Hv value heads of dv, C channels
of the convolution; n rows."""

from __future__ import annotations

import math

import numpy as np

from .graph import Graph
from .spec import Spec

_L2_EPS = 1e-6


def deltanet(g: Graph, spec: Spec, layer: int, x: str, *, commit: bool) -> str:
    """[n, H]. A commit puts out the state behind its rows; a preview leaves it as it is."""
    name, block = f"layers.{layer}.delta", not commit and spec.delta_operator()
    both = g.product(x, g.weights.matrix(f"{name}.in"))
    M, z = g.split(both, [spec.conv_channels, spec.value_width])
    beta, decay = _gates(g, spec, name, x)
    window, mixed = _convolve(g, spec, layer, M, look_ahead=block)
    q, k, v = _heads(g, spec, mixed)
    if block:
        o = _preview_rule(g, spec, layer, q, k, v, beta)
    else:
        o, S = _commit_rule(g, spec, layer, q, k, v, decay, beta)
        if commit:
            g.output(f"delta.{layer}.S_new", S, _state_dims(spec))
            ring = g.rows(window, 1 - spec.conv_taps, np.iinfo(np.int64).max)
            g.output(f"delta.{layer}.ring_new", ring, _ring_dims(spec))
    o = g.norm(o, g.vector(f"{name}.norm"), spec.rms_eps)
    o = g.op("Mul", g.reshape(o, 0, spec.value_width), g.silu(z))
    return g.product(o, g.weights.matrix(f"{name}.out"))


def delta_inputs(g: Graph, spec: Spec, layer: int) -> None:
    g.input(f"delta.{layer}.S", "FLOAT", _state_dims(spec))
    g.input(f"delta.{layer}.ring", "FLOAT", _ring_dims(spec))


def _state_dims(spec: Spec) -> list[int]:
    return [spec.delta_v_heads, spec.delta_k_dim, spec.delta_v_dim]


def _ring_dims(spec: Spec) -> list[int]:
    return [spec.conv_taps - 1, spec.conv_channels]


def _gates(g: Graph, spec: Spec, name: str, x: str) -> tuple[str, str]:
    """beta and the logarithm of the decay, [n, Hv] both."""
    b, a = g.split(g.product(x, g.weights.matrix(f"{name}.ba")), [spec.delta_v_heads] * 2)
    rate = g.op("Neg", g.op("Exp", g.vector(f"{name}.A_log")))
    steps = g.op("Softplus", g.op("Add", a, g.vector(f"{name}.dt_bias")))
    return g.op("Sigmoid", b), g.op("Mul", rate, steps)


def _convolve(g: Graph, spec: Spec, layer: int, M: str, *, look_ahead: bool) -> tuple[str, str]:
    """[ring; M] and silu of its convolution, [n, C]. `look_ahead`: rows further on in the block
    count, too; behind the block there are none."""
    name, taps = f"layers.{layer}.delta", spec.conv_taps
    window = padded = g.op("Concat", f"delta.{layer}.ring", M, axis=0)
    weights = g.split(g.vector(f"{name}.conv", transposed=True), [1] * taps, axis=0)
    if look_ahead:
        behind = g.constant(np.zeros((taps - 1, 1)))
        nothing = g.op("Expand", behind, g.ints(taps - 1, spec.conv_channels))
        padded = g.op("Concat", window, nothing, axis=0)
        ahead = g.vector(f"{name}.conv_right", transposed=True)
        weights += g.split(ahead, [1] * (taps - 1), axis=0)
    total = ""
    for j, weight in enumerate(weights):
        left = len(weights) - 1 - j
        rows = g.rows(padded, j, -left if left else np.iinfo(np.int64).max)
        term = g.op("Mul", rows, weight)
        total = g.op("Add", total, term) if total else term
    return window, g.silu(total)


def _heads(g: Graph, spec: Spec, mixed: str) -> tuple[str, str, str]:
    """q and k, normalised, [n, Hv, dk] with a copy for every value head; v [n, Hv, dv]."""
    hk, hv, dk, dv = spec.delta_k_heads, spec.delta_v_heads, spec.delta_k_dim, spec.delta_v_dim
    q, k, v = g.split(mixed, [spec.key_width, spec.key_width, spec.value_width])
    spread = []
    for part in (q, k):
        part = g.reshape(part, 0, hk, dk)
        squares = g.op("ReduceSumSquare", part, g.ints(-1), keepdims=1)
        part = g.op("Div", part, g.op("Sqrt", g.op("Add", squares, g.constant(_L2_EPS))))
        if hv > hk:
            copies = g.op("Expand", g.unsqueeze(part, 2), g.ints(1, 1, hv // hk, 1))
            part = g.reshape(copies, 0, hv, dk)
        spread.append(part)
    return spread[0], spread[1], g.reshape(v, 0, hv, dv)


def _commit_rule(
    g: Graph, spec: Spec, layer: int, q: str, k: str, v: str, decay: str, beta: str
) -> tuple[str, str]:
    """o [n, Hv, dv] and S behind the rows: S <- e^g S; d = beta (v - S'k); S += k d'; o = S'q."""
    hv, dk, dv = spec.delta_v_heads, spec.delta_k_dim, spec.delta_v_dim
    flat = [g.unsqueeze(g.reshape(part, 0, hv * d), 0) for part, d in ((q, dk), (k, dk), (v, dv))]
    o, S = g.contrib(
        "LinearAttention",
        *flat,
        g.unsqueeze(f"delta.{layer}.S", 0),
        g.unsqueeze(decay, 0),
        g.unsqueeze(beta, 0),
        dims=[[1, "n", hv * dv], [1, hv, dk, dv]],
        q_num_heads=hv,
        kv_num_heads=hv,
        scale=dk**-0.5,
        update_rule="gated_delta",
    )
    return g.reshape(g.op("Squeeze", o, g.ints(0)), 0, hv, dv), g.op("Squeeze", S, g.ints(0))


def _preview_rule(g: Graph, spec: Spec, layer: int, q: str, k: str, v: str, beta: str) -> str:
    """o [n, Hv, dv]: a softmax over the block's rows and the history, whose value is S'q."""
    name, hv = f"layers.{layer}.delta", spec.delta_v_heads
    scale, bias, slope = (
        g.reshape(g.vector(f"{name}.{part}"), hv, 1, 1)
        for part in ("logit_scale", "history_bias", "history_c")
    )
    if spec.preview_value_beta:
        v = g.op("Mul", v, g.unsqueeze(beta, 2))
    q, values = g.transpose(q, 1, 0, 2), g.transpose(v, 1, 0, 2)  # [Hv, n, dk], [Hv, n, dv]
    scores = g.op("Mul", g.op("MatMul", q, g.transpose(k, 1, 2, 0)), scale)  # [Hv, n, n]
    width = g.op("Log", g.op("Div", "history_width", g.constant(spec.history_ref_rows)))
    history = g.op("Add", bias, g.op("Mul", slope, width))
    dims = g.op("Concat", g.ints(1), g.op("Shape", "ids"), g.ints(1), axis=0)
    scores = g.op("Concat", g.op("Expand", history, dims), scores, axis=-1)
    weights = g.op("Softmax", scores, axis=-1)
    last = g.constant([np.iinfo(np.int64).max], np.int64)
    of_history = g.op("Slice", weights, g.ints(0), g.ints(1), g.ints(-1))
    of_rows = g.op("Slice", weights, g.ints(1), last, g.ints(-1))
    text = g.op("MatMul", q, f"delta.{layer}.S")
    if spec.history_q_scale:
        text = g.op("Mul", text, g.constant(1 / math.sqrt(spec.delta_k_dim)))
    o = g.op("Add", g.op("Mul", of_history, text), g.op("MatMul", of_rows, values))
    return g.transpose(o, 1, 0, 2)
