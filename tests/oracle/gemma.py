"""Gemma 3 in float64 numpy: where it differs from a plain causal transformer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from oracle.clover import AttentionState, Linear, State, linear
from oracle.equations import Array, attend, rmsnorm
from oracle.transformer import Transformer, frequencies


def gelu(x: Array) -> Array:
    """The tanh form."""
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


class Gemma(Transformer):
    """Zero-centred norms in front of and behind both halves of a layer, windows, two rotations."""

    def __init__(
        self,
        weights: Mapping[str, ArrayLike],
        config: Mapping[str, Any],
        *,
        linear: Linear = linear,
        without: str = "",
    ) -> None:
        """``without`` leaves out one of the differences, to see that it is told."""
        super().__init__(weights, config, linear=linear)
        self.without = without
        base = 1e6 if without == "local base" else self.config.get("rope_local_base_freq", 1e4)
        self.local = frequencies({"rope_theta": base}, self.head_dim)

    def commit(self, state: State, ids: ArrayLike) -> tuple[Array, State]:
        x = self.w["embed_tokens.weight"][np.asarray(ids, dtype=int)]
        x = x * (1.0 if self.without == "scale" else np.sqrt(self.config["hidden_size"]))
        layers = []
        for i, past in enumerate(state.layers):
            assert isinstance(past, AttentionState)
            layer = f"layers.{i}."
            y, new = self._window(i, self._norm(x, layer + "input_layernorm.weight"), past)
            layers.append(new)
            x = x + self._behind(y, layer + "post_attention_layernorm.weight")
            y = self._norm(x, layer + "pre_feedforward_layernorm.weight")
            gate, up = (
                self._project(f"{layer}mlp.{part}_proj.weight", y) for part in ("gate", "up")
            )
            act = gate / (1 + np.exp(-gate)) if self.without == "gelu" else gelu(gate)
            y = self._project(layer + "mlp.down_proj.weight", act * up)
            x = x + self._behind(y, layer + "post_feedforward_layernorm.weight")
        logits = self._project("embed_tokens.weight", self._norm(x, "norm.weight"))
        return logits, State(state.position + len(logits), tuple(layers), logits[-1])

    def _norm(self, x: Array, name: str) -> Array:
        offset = 0 if self.without == "offset" else 1
        return rmsnorm(x, self.w[name] + offset, self.config["rms_norm_eps"])

    def _behind(self, y: Array, name: str) -> Array:
        return y if self.without == "norms behind" else self._norm(y, name)

    def _window(self, i: int, x: Array, past: AttentionState) -> tuple[Array, AttentionState]:
        local = self.config["layer_types"][i] == "sliding_attention"
        name, n, p = f"layers.{i}.self_attn.", len(x), len(past.k)
        wide = self.inv_freq, self.rope_factor
        self.inv_freq, self.rope_factor = self.local if local else wide
        at = np.arange(p, p + n, dtype=float)
        q = self._heads(name + "q", x, at)
        k = np.concatenate([past.k, self._heads(name + "k", x, at)])
        v = np.concatenate([past.v, self._heads(name + "v", x, None)])
        self.inv_freq, self.rope_factor = wide
        visible = np.tri(n, p + n, k=p, dtype=bool)
        if local and self.without != "window":
            visible &= ~np.tri(n, p + n, k=p - self.config["sliding_window"], dtype=bool)
        if self.without != "query scale":
            q = q * (self.head_dim / self.config["query_pre_attn_scalar"]) ** 0.5
        o = attend(q, k, v, visible)
        return self._project(name + "o_proj.weight", o.reshape(n, -1)), AttentionState(k, v)
