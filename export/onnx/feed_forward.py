"""The second half of a layer (csrc/model/dense.cc, moe.cc): E experts of width I, n rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from .graph import Dims, Graph
from .spec import Spec

_UNCHOSEN = -1e30  # as a logit: no weight in float32
_SMALLEST = 1e-30  # the logarithm of a weight below it is this one's


def feed_forward(g: Graph, spec: Spec, layer: int, x: str) -> str:
    """[n, H]"""
    if spec.dense(layer):
        return _gated(g, spec, x, f"layers.{layer}.dense", spec.dense_intermediate)
    return _experts(g, spec, layer, x)


def _gated(g: Graph, spec: Spec, x: str, name: str, inner: int) -> str:
    """down(act(gate(x)) * up(x))"""
    gate, up = g.split(g.product(x, g.weights.matrix(f"{name}.gate_up")), [inner, inner])
    silu = spec.activation == "silu"
    active = g.silu(gate) if silu else g.op("Gelu", gate, approximate="tanh")
    return g.product(g.op("Mul", active, up), g.weights.matrix(f"{name}.down"))


def _experts(g: Graph, spec: Spec, layer: int, x: str) -> str:
    """The chosen experts, and the shared one beside them."""
    name = f"layers.{layer}"
    ids, weights = _route(g, spec, name, x)
    y = _chosen(g, spec, name, x, ids, weights)
    if not spec.shared_intermediate:
        return y
    shared = _gated(g, spec, x, f"{name}.shared", spec.shared_intermediate)
    if spec.shared_gate:
        gate = g.product(x, g.weights.matrix(f"{name}.shared_gate"))
        shared = g.op("Mul", shared, g.op("Sigmoid", gate))
    return g.op("Add", y, shared)


def _route(g: Graph, spec: Spec, name: str, x: str) -> tuple[str, str]:
    """Ids [n, top_k] of the experts, ties to the lower one, and their weights."""
    logits = g.product(x, g.weights.matrix(f"{name}.router"))
    if spec.router == "softmax":
        choice = scores = g.op("Softmax", logits, axis=-1)
    else:
        choice = scores = g.op("Sigmoid", logits)
        if spec.router_bias:
            choice = g.op("Add", scores, g.vector(f"{name}.router_bias"))
        choice = _best_groups(g, spec, choice)
    _, ids = g.ops("TopK", choice, g.ints(spec.top_k), outputs=2, axis=-1)
    weights = g.op("GatherElements", scores, ids, axis=-1)
    if spec.norm_topk:
        total = g.op("ReduceSum", weights, g.ints(-1), keepdims=1)
        weights = g.op("Div", weights, g.op("Add", total, g.constant(1e-20)))
    if spec.routed_scaling_factor != 1:
        weights = g.op("Mul", weights, g.constant(spec.routed_scaling_factor))
    return ids, weights


def _best_groups(g: Graph, spec: Spec, choice: str) -> str:
    """[n, E] minus infinity outside the best groups; a group counts with its two best."""
    if spec.topk_group == spec.n_group:
        return choice
    by_group = g.reshape(choice, 0, spec.n_group, spec.num_experts // spec.n_group)
    two, _ = g.ops("TopK", by_group, g.ints(2), outputs=2, axis=-1)
    best = g.op("ReduceSum", two, g.ints(-1), keepdims=0)  # [n, groups]
    _, kept = g.ops("TopK", best, g.ints(spec.topk_group), outputs=2, axis=-1)
    outside = g.filled(g.op("Shape", best), -np.inf)
    nothing = g.filled(g.op("Shape", kept), 0.0)
    marks = g.op("ScatterElements", outside, kept, nothing, axis=-1)
    marked = g.op("Add", by_group, g.unsqueeze(marks, 2))
    return g.reshape(marked, 0, spec.num_experts)


def _chosen(g: Graph, spec: Spec, name: str, x: str, ids: str, weights: str) -> str:
    """[n, H] sum of the chosen experts' outputs by their weights. Who is chosen is settled here;
    the operators, which would choose by a softmax of their own, are told."""
    if g.rounds:
        return _all_experts(g, spec, name, x, ids, weights)
    experts = g.weights.experts(f"{name}.experts")
    keys: dict[str, Any] = {
        "k": spec.top_k,
        "activation_type": "swiglu",
        "activation_alpha": 1.0,  # the operators' defaults are those of another model
        "activation_beta": 0.0,
        "swiglu_fusion": 1,  # rows of gate and up in turn
    }
    dims: list[Dims] = [["n", spec.hidden_size]]
    gate_up, down = g.stored(experts.gate_up), g.stored(experts.down)
    if experts.bits:
        picked = _spread(g, spec, ids, g.filled(g.op("Shape", ids), 1.0))
        spread = _spread(g, spec, ids, weights)
        scales = g.stored(experts.gate_up_scales), g.stored(experts.down_scales)
        inputs = [x, picked, gate_up, scales[0], "", down, scales[1], *[""] * 7, spread]
        return g.contrib(
            "QMoE",
            *inputs,
            dims=dims,
            expert_weight_bits=experts.bits,
            block_size=experts.block,
            accuracy_level=g.accuracy_level,
            normalize_routing_weights=0,
            weights_prepacked=0,
            **keys,
        )[0]
    logs = g.op("Log", g.op("Max", weights, g.constant(_SMALLEST)))
    spread = _spread(g, spec, ids, logs, _UNCHOSEN)
    y = g.contrib(
        "MoE", x, spread, gate_up, "", down, dims=dims, normalize_routing_weights=1, **keys
    )[0]
    return g.op("Mul", y, g.op("ReduceSum", weights, g.ints(-1), keepdims=1))


def _spread(g: Graph, spec: Spec, ids: str, values: str, elsewhere: float = 0.0) -> str:
    """[n, E] with the values [n, top_k] at the ids."""
    dims = g.op("Concat", g.op("Shape", "ids"), g.ints(spec.num_experts), axis=0)
    return g.op("ScatterElements", g.filled(dims, elsewhere), ids, values, axis=-1)


def _all_experts(g: Graph, spec: Spec, name: str, x: str, ids: str, weights: str) -> str:
    """The same, every expert on every row: no operator rounds what enters down as the core does."""

    def product(part: str, x: str, columns: int) -> str:
        """[E, n, rows] from [n, columns] or [E, n, columns]"""
        values, quantised = g.weights.expert_values(f"{name}.experts.{part}")
        x = g.rounded(x, columns) if quantised else x
        return g.op("MatMul", x, g.transpose(g.stored(values), 0, 2, 1))

    gate, up = (product(part, x, spec.hidden_size) for part in ("gate", "up"))
    active = g.op("Mul", g.silu(gate), up)
    out = product("down", active, spec.expert_intermediate)
    shares = g.unsqueeze(g.transpose(_spread(g, spec, ids, weights), 1, 0), 2)
    return g.op("ReduceSum", g.op("Mul", out, shares), g.ints(0), keepdims=0)
