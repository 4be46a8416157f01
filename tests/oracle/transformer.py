"""Plain causal transformers (Llama, Qwen2, Qwen3, Qwen3-MoE) in float64 numpy.

The same judge as ``clover.py`` for models of attention and feed-forward alone. It reads a
checkpoint's own tensor names (without the ``model.`` prefix, experts fused) and its configuration;
biases and norms on q and k are there where the checkpoint has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from oracle.clover import AttentionState, Linear, State, linear
from oracle.equations import Array, attend, rmsnorm, rotate, route, silu, softmax


class Transformer:
    """Weights by checkpoint name, and the causal forward."""

    def __init__(
        self,
        weights: Mapping[str, ArrayLike],
        config: Mapping[str, Any],
        *,
        linear: Linear = linear,
    ) -> None:
        self.w: dict[str, Array] = {
            name.removeprefix("model."): np.asarray(value, float) for name, value in weights.items()
        }
        self.config = dict(config)
        self.linear = linear
        self.head_dim = config.get("head_dim") or (
            config["hidden_size"] // config["num_attention_heads"]
        )
        rotary = int(self.head_dim * config.get("partial_rotary_factor", 1.0))
        self.inv_freq, self.rope_factor = frequencies(config, rotary)

    def with_keys(self, **keys: Any) -> Transformer:
        """The same weights under a configuration that differs in the named keys."""
        return Transformer(self.w, {**self.config, **keys}, linear=self.linear)

    def start(self) -> State:
        """The state of an empty sequence."""
        cache = np.zeros((0, self.config["num_key_value_heads"], self.head_dim))
        return State(0, (AttentionState(cache, cache),) * self.config["num_hidden_layers"])

    def commit(self, state: State, ids: ArrayLike) -> tuple[Array, State]:
        """The causal forward over ids [n]: logits [n, V] and the state behind them."""
        x = self.w["embed_tokens.weight"][np.asarray(ids, dtype=int)]
        layers = []
        for i, past in enumerate(state.layers):
            assert isinstance(past, AttentionState)
            layer = f"layers.{i}."
            y, new = self._attention(
                layer + "self_attn.", self._norm(x, layer + "input_layernorm.weight"), past
            )
            layers.append(new)
            x = x + y
            y = self._norm(x, layer + "post_attention_layernorm.weight")
            sparse = layer + "mlp.gate.weight" in self.w
            x = x + (self._experts if sparse else self._swiglu)(layer + "mlp.", y)
        tied = self.config.get("tie_word_embeddings", False)
        head = "embed_tokens.weight" if tied else "lm_head.weight"
        logits = self._project(head, self._norm(x, "norm.weight"))
        return logits, State(state.position + len(logits), tuple(layers), logits[-1])

    def visible(self, n: int, p: int) -> NDArray[np.bool_]:
        """[n, p + n]: what the rows of a pass see."""
        return np.tri(n, p + n, k=p, dtype=bool)

    def weights_of_experts(self, name: str, x: Array) -> Array:
        """[n, E], nothing where an expert is not chosen."""
        probabilities = softmax(self._project(name + "gate.weight", x))
        c = self.config
        return route(probabilities, c["num_experts_per_tok"], c["norm_topk_prob"])

    def _norm(self, x: Array, name: str) -> Array:
        return rmsnorm(x, self.w[name], self.config["rms_norm_eps"])

    def _project(self, name: str, x: Array) -> Array:
        bias = self.w.get(name.removesuffix("weight") + "bias", np.zeros(1))
        return self.linear(name, x, self.w[name]) + bias

    def _heads(self, name: str, x: Array, positions: Array | None) -> Array:
        """[n, heads, hd] of one projection; with positions normed, where it has a norm, and
        rotated."""
        y = self._project(f"{name}_proj.weight", x).reshape(len(x), -1, self.head_dim)
        if positions is None:
            return y
        if f"{name}_norm.weight" in self.w:
            y = self._norm(y, f"{name}_norm.weight")
        return rotate(y, positions[:, None] * self.inv_freq, self.rope_factor)

    def _attention(self, name: str, x: Array, past: AttentionState) -> tuple[Array, AttentionState]:
        n, p = len(x), len(past.k)
        at = np.arange(p, p + n, dtype=float)
        q = self._heads(name + "q", x, at)
        k = np.concatenate([past.k, self._heads(name + "k", x, at)])
        v = np.concatenate([past.v, self._heads(name + "v", x, None)])
        o = attend(q, k, v, self.visible(n, p))
        return self._project(name + "o_proj.weight", o.reshape(n, -1)), AttentionState(k, v)

    def _swiglu(self, name: str, x: Array) -> Array:
        gate, up = (self._project(f"{name}{part}_proj.weight", x) for part in ("gate", "up"))
        return self._project(name + "down_proj.weight", silu(gate) * up)

    def _experts(self, name: str, x: Array) -> Array:
        c = self.config
        weights = self.weights_of_experts(name, x)
        shared = name + "shared_expert."  # not gated
        y = self._swiglu(shared, x) if shared + "down_proj.weight" in self.w else np.zeros_like(x)
        for e in range(c["num_experts"]):
            rows = np.flatnonzero(weights[:, e])
            if not len(rows):
                continue
            both = self.w[name + "experts.gate_up_proj"][e]
            gate, up = np.split(self.linear(name + "gate_up_proj", x[rows], both), 2, axis=1)
            down = self.w[name + "experts.down_proj"][e]
            out = self.linear(name + "down_proj", silu(gate) * up, down)
            y[rows] += weights[rows, e, None] * out
        return y


def frequencies(config: Mapping[str, Any], dim: int) -> tuple[Array, float]:
    """Radians a position of every pair [dim/2], and the factor on cosines and sines."""
    keys = {**config, **(config.get("rope_scaling") or {}), **(config.get("rope_parameters") or {})}
    theta, kind = keys.get("rope_theta", 1e4), keys.get("rope_type", keys.get("type", "default"))
    plain = theta ** (-np.arange(0, dim, 2) / dim)
    if kind == "default":
        return plain, 1.0
    slow = plain / keys["factor"]
    if kind == "linear":
        return slow, 1.0
    context = keys["original_max_position_embeddings"]
    if kind == "llama3":
        turns = context * plain / (2 * np.pi)
        kept = np.interp(turns, [keys["low_freq_factor"], keys["high_freq_factor"]], [0.0, 1.0])
        return slow + kept * (plain - slow), 1.0
    assert kind == "yarn", kind
    # the pair that turns so often within the original context, on a logarithmic scale of pairs
    edges = [
        dim * np.log(context / (2 * np.pi * keys.get(name, turns))) / (2 * np.log(theta))
        for name, turns in (("beta_fast", 32.0), ("beta_slow", 1.0))
    ]
    first, last = max(np.floor(edges[0]), 0), min(np.ceil(edges[1]), dim - 1)
    stretched = np.interp(np.arange(dim // 2), [first, last], [0.0, 1.0])
    return plain + stretched * (slow - plain), _yarn_strength(keys)


def _yarn_strength(keys: Mapping[str, Any]) -> float:
    """Of cosines and sines: grows with the stretching, unless one scale cancels the other."""
    if keys.get("attention_factor"):
        return float(keys["attention_factor"])
    log = np.log(max(keys["factor"], 1.0))
    if keys.get("mscale") and keys.get("mscale_all_dim"):
        return float((1 + 0.1 * keys["mscale"] * log) / (1 + 0.1 * keys["mscale_all_dim"] * log))
    return float(1 + 0.1 * log)
