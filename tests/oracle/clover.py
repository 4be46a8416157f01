"""The Clover model in float64 numpy, plain and slow: the first judge of the compiled core.

It reads a checkpoint's own tensor names (without the ``model.`` prefix) and its Hugging Face
configuration, and follows the page of equations line by line. Letters in shapes: n rows of a pass,
p committed positions, H hidden, Hk/Hv key and value heads of a DeltaNet layer, dk/dv their widths,
C = 2·Hk·dk + Hv·dv convolution channels, nh/nkv attention heads, hd their width, E experts.
The equations themselves stand in ``equations.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from oracle.equations import (
    Array,
    attend,
    coreset,
    delta_closed,
    delta_preview,
    delta_recurrent,
    l2norm,
    preview_weights,
    rmsnorm,
    rope,
    route,
    share_of_choices,
    short_conv,
    sigmoid,
    silu,
    softmax,
    softplus,
)

# (tensor name, x [n, k], W [m, k]) -> x Wᵀ; tests put rounded activations in its place
Linear = Callable[[str, Array, Array], Array]


def linear(name: str, x: Array, w: Array) -> Array:
    return x @ w.T


@dataclass(frozen=True)
class Config:
    """The configuration keys that the equations use, under the checkpoint's own names."""

    vocab_size: int
    hidden_size: int
    layer_types: tuple[str, ...]  # "linear_attention" | "full_attention"
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    linear_num_key_heads: int
    linear_num_value_heads: int
    linear_key_head_dim: int
    linear_value_head_dim: int
    linear_conv_kernel_dim: int
    rope_theta: float
    partial_rotary_factor: float
    num_experts: int = 0  # these three: of a model that has them
    num_experts_per_tok: int = 0
    mask_token_id: int = -1
    shared_expert_intermediate_size: int = 0
    rms_norm_eps: float = 1e-6
    attn_output_gate: bool = True
    norm_topk_prob: bool = True
    tie_word_embeddings: bool = False
    block_size: int = 32
    # What the public record leaves open, with the defaults that the project chose.
    coreset_size: int = 0  # 0: a preview routes freely
    coreset_share: float = 0.0  # of the experts that a later step would choose; 0: all
    history_q_scale: bool = True  # the history is read with q̂·dk^-1/2
    preview_value_beta: bool = False  # values of a preview weighted by β
    history_ref_rows: int = 32

    @staticmethod
    def read(config: Mapping[str, Any]) -> Config:
        """From a parsed ``config.json``, text keys flat or under ``text_config``."""
        flat = {**config, **config.get("text_config", {})}
        flat.update(flat.get("rope_parameters") or {})
        if flat.get("layer_types") is None:
            every = flat["full_attention_interval"]
            kinds = ("linear_attention", "full_attention")
            flat["layer_types"] = [
                kinds[(i + 1) % every == 0] for i in range(flat["num_hidden_layers"])
            ]
        flat["layer_types"] = tuple(flat["layer_types"])
        return Config(**{f.name: flat[f.name] for f in fields(Config) if f.name in flat})


@dataclass(frozen=True)
class DeltaState:
    S: Array  # [Hv, dk, dv]
    ring: Array  # [taps - 1, C], the last rows in front of the convolution


@dataclass(frozen=True)
class AttentionState:
    k: Array  # [p, nkv, hd], rotated
    v: Array  # [p, nkv, hd]


@dataclass(frozen=True)
class State:
    """What one sequence carries. A commit returns a new one; a preview returns none."""

    position: int
    layers: tuple[DeltaState | AttentionState, ...]
    logits: Array | None = None  # [V] of the last committed row


# Projections of a row through which other rows of its block see it.
_SEEN_BY_OTHERS = ("in_proj_qkv.weight", "in_proj_b.weight", "k_proj.weight", "v_proj.weight")


@dataclass
class BlockMemory:
    """What the previews of one block keep: projections by name, coresets by layer."""

    rows: dict[str, Array] = field(default_factory=dict)
    coresets: dict[str, NDArray[np.bool_]] = field(default_factory=dict)


class Clover:
    """Weights by checkpoint name, and the two modes.

    ``norm_offset`` is 1 for zero-centred norm weights (x·(1+w)), 0 for plain ones; left out, it
    follows from the mean of the first layer's norm. DeltaNet's gated norm is always plain.
    """

    def __init__(
        self,
        weights: Mapping[str, ArrayLike],
        config: Config | Mapping[str, Any],
        *,
        norm_offset: float | None = None,
        linear: Linear = linear,
    ) -> None:
        self.config = config if isinstance(config, Config) else Config.read(config)
        self.w: dict[str, Array] = {
            name.removeprefix("model.").removeprefix("language_model."): np.asarray(value, float)
            for name, value in weights.items()
        }
        if norm_offset is None:
            norm_offset = float(self.w["layers.0.input_layernorm.weight"].mean() < 0.5)
        self.norm_offset = norm_offset
        self.linear = linear
        self._memory: BlockMemory | None = None

    def with_flags(self, **flags: Any) -> Clover:
        """The same weights under a configuration that differs in the named fields."""
        config = replace(self.config, **flags)
        return Clover(self.w, config, norm_offset=self.norm_offset, linear=self.linear)

    def start(self) -> State:
        """The state of an empty sequence."""
        c = self.config
        key, value = c.linear_num_key_heads, c.linear_num_value_heads
        dk, dv = c.linear_key_head_dim, c.linear_value_head_dim
        ring = (c.linear_conv_kernel_dim - 1, 2 * key * dk + value * dv)
        cache = np.zeros((0, c.num_key_value_heads, c.head_dim))
        kinds: dict[str, DeltaState | AttentionState] = {
            "linear_attention": DeltaState(np.zeros((value, dk, dv)), np.zeros(ring)),
            "full_attention": AttentionState(cache, cache),
        }
        return State(0, tuple(kinds[kind] for kind in c.layer_types))

    def commit(self, state: State, ids: ArrayLike, *, closed: bool = False) -> tuple[Array, State]:
        """The causal forward over ids [n]: logits [n, V] and the state behind them."""
        logits, layers = self._forward(state, ids, preview=False, closed=closed)
        return logits, State(state.position + len(logits), layers, logits[-1])

    def preview(
        self,
        state: State,
        ids: ArrayLike,
        memory: BlockMemory | None = None,
        skipped: ArrayLike = (),
    ) -> Array:
        """One denoising pass over the whole block ids [n]: logits [n, V].

        With the ``memory`` of earlier previews of the block: their coresets, and what ``skipped``
        rows show of themselves to others is what it was then (their own logits mean nothing).
        """
        self._memory, self._skipped = memory, np.asarray(skipped, dtype=int)
        self._first = memory is None or not memory.rows
        try:
            return self._forward(state, ids, preview=True)[0]
        finally:
            self._memory = None

    def _forward(
        self, state: State, ids: ArrayLike, *, preview: bool, closed: bool = False
    ) -> tuple[Array, tuple[DeltaState | AttentionState, ...]]:
        x = self.w["embed_tokens.weight"][np.asarray(ids, dtype=int)]
        layers: list[DeltaState | AttentionState] = []
        for i, past in enumerate(state.layers):
            layer = f"layers.{i}."
            y = self._norm(x, layer + "input_layernorm.weight")
            new: DeltaState | AttentionState
            if isinstance(past, AttentionState):
                y, new = self._attention(layer + "self_attn.", y, past, preview)
            else:
                y, new = self._delta(layer + "linear_attn.", y, past, preview, closed)
            layers.append(new)
            x = x + y
            y = self._norm(x, layer + "post_attention_layernorm.weight")
            if layer + "mlp.gate.weight" in self.w:
                x = x + self._experts(layer + "mlp.", y, preview)
            else:
                x = x + self._swiglu(layer + "mlp.", y)
        head = "embed_tokens.weight" if self.config.tie_word_embeddings else "lm_head.weight"
        return self._project(head, self._norm(x, "norm.weight")), tuple(layers)

    def visible(self, n: int, p: int, preview: bool) -> NDArray[np.bool_]:
        """[n, p + n]: what the rows of a pass see in attention layers."""
        return np.ones((n, p + n), dtype=bool) if preview else np.tri(n, p + n, k=p, dtype=bool)

    def _norm(self, x: Array, name: str) -> Array:
        return rmsnorm(x, self.w[name] + self.norm_offset, self.config.rms_norm_eps)

    def _project(self, name: str, x: Array) -> Array:
        y = self.linear(name, x, self.w[name])
        if self._memory is not None and name.endswith(_SEEN_BY_OTHERS):
            if len(self._skipped):
                y[self._skipped] = self._memory.rows[name][self._skipped]
            self._memory.rows[name] = y
        return y

    def _attention(
        self, name: str, x: Array, past: AttentionState, preview: bool
    ) -> tuple[Array, AttentionState]:
        c = self.config
        n, p, hd = len(x), len(past.k), c.head_dim
        q = self._project(name + "q_proj.weight", x).reshape(n, c.num_attention_heads, -1)
        q, gate = q[..., :hd], q[..., hd:]  # per head: query rows, then gate rows
        k = self._project(name + "k_proj.weight", x).reshape(n, c.num_key_value_heads, hd)
        v = self._project(name + "v_proj.weight", x).reshape(n, c.num_key_value_heads, hd)
        at = (np.arange(p, p + n), c.rope_theta, int(hd * c.partial_rotary_factor))
        q = rope(self._norm(q, name + "q_norm.weight"), *at)
        k = rope(self._norm(k, name + "k_norm.weight"), *at)
        k, v = np.concatenate([past.k, k]), np.concatenate([past.v, v])
        o = attend(q, k, v, self.visible(n, p, preview))
        if c.attn_output_gate:
            o = o * sigmoid(gate)
        return self._project(name + "o_proj.weight", o.reshape(n, -1)), AttentionState(k, v)

    def _delta(
        self, name: str, x: Array, past: DeltaState, preview: bool, closed: bool
    ) -> tuple[Array, DeltaState]:
        c, w, n = self.config, self.w, len(x)
        heads, dv = c.linear_num_value_heads, c.linear_value_head_dim
        M = self._project(name + "in_proj_qkv.weight", x)
        z = self._project(name + "in_proj_z.weight", x).reshape(n, heads, dv)
        beta = sigmoid(self._project(name + "in_proj_b.weight", x))
        a = self._project(name + "in_proj_a.weight", x)
        g = -np.exp(w[name + "A_log"]) * softplus(a + w[name + "dt_bias"])
        q, k, v = self._split(name, past.ring, M, preview)
        o, S = np.zeros((n, heads, dv)), np.zeros_like(past.S)
        for h in range(heads):
            if preview:
                value = beta[:, h, None] * v[:, h] if c.preview_value_beta else v[:, h]
                weights = self._mixing(name, h, q[:, h], k[:, h])
                scale = c.linear_key_head_dim**-0.5 if c.history_q_scale else 1.0
                o[:, h] = delta_preview(past.S[h], q[:, h], k[:, h], value, weights, scale)
            else:
                rule = delta_closed if closed else delta_recurrent
                scaled = q[:, h] * c.linear_key_head_dim**-0.5
                o[:, h], S[h] = rule(past.S[h], scaled, k[:, h], v[:, h], g[:, h], beta[:, h])
        o = rmsnorm(o, w[name + "norm.weight"], c.rms_norm_eps) * silu(z)
        ring = np.concatenate([past.ring, M])[len(M) :]
        return self._project(name + "out_proj.weight", o.reshape(n, -1)), DeltaState(S, ring)

    def _split(self, name: str, ring: Array, M: Array, preview: bool) -> tuple[Array, Array, Array]:
        """Convolution, then q̂, k̂ [n, Hv, dk] (one copy per value head) and v [n, Hv, dv]."""
        c, n = self.config, len(M)
        right = self.w[name + "conv_right_weight"].reshape(M.shape[1], -1) if preview else None
        taps = self.w[name + "conv1d.weight"].reshape(M.shape[1], -1)
        x = short_conv(ring, M, taps, right)
        key = c.linear_num_key_heads * c.linear_key_head_dim
        q, k, v = x[:, :key], x[:, key : 2 * key], x[:, 2 * key :]
        repeat = c.linear_num_value_heads // c.linear_num_key_heads
        q, k = (
            l2norm(u.reshape(n, c.linear_num_key_heads, -1)).repeat(repeat, axis=1) for u in (q, k)
        )
        return q, k, v.reshape(n, c.linear_num_value_heads, -1)

    def _mixing(self, name: str, h: int, q: Array, k: Array) -> Array:
        """A preview's mixing weights of value head h: [n, n + 1]."""
        width = np.log(len(q) / self.config.history_ref_rows)
        bias = self.w[name + "bd_softmax_history_bias"][h]
        slope = self.w[name + "bd_softmax_history_c"][h]
        return preview_weights(
            q, k, self.w[name + "bd_softmax_logit_scale"][h], bias + slope * width
        )

    def _experts(self, name: str, x: Array, preview: bool) -> Array:
        c = self.config
        probabilities = softmax(self._project(name + "gate.weight", x))
        allowed = None
        if preview and c.coreset_size:
            coresets = {} if self._memory is None else self._memory.coresets
            allowed = coresets.setdefault(name, coreset(probabilities, c.coreset_size))
        if preview and c.coreset_share and not self._first:
            rows = np.delete(probabilities, self._skipped, axis=0)
            allowed = share_of_choices(rows, c.num_experts_per_tok, c.coreset_share, allowed)
        weights = route(probabilities, c.num_experts_per_tok, c.norm_topk_prob, allowed)
        y = np.zeros_like(x)
        for e in range(c.num_experts):
            rows = np.flatnonzero(weights[:, e])
            if len(rows):
                y[rows] += weights[rows, e, None] * self._expert(name + "experts.", e, x[rows])
        if c.shared_expert_intermediate_size:
            out = self._swiglu(name + "shared_expert.", x)
            y += sigmoid(self._project(name + "shared_expert_gate.weight", x)) * out
        return y

    def _swiglu(self, name: str, x: Array) -> Array:
        gate, up = (self._project(f"{name}{part}_proj.weight", x) for part in ("gate", "up"))
        return self._project(name + "down_proj.weight", silu(gate) * up)

    def _expert(self, name: str, e: int, x: Array) -> Array:
        both = self.linear(name + "gate_up_proj", x, self.w[name + "gate_up_proj"][e])
        gate, up = np.split(both, 2, axis=1)
        return self.linear(name + "down_proj", silu(gate) * up, self.w[name + "down_proj"][e])
