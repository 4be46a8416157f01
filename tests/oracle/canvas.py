"""DiffusionGemma in float64 numpy, and the denoising of its canvases as a plain loop.

Every pass computes the whole context again; nothing is cached between steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from oracle.clover import Linear, linear
from oracle.equations import Array, attend, rmsnorm, rotate, route, softmax
from oracle.gemma import gelu

DECODER, COMMITS = "model.decoder.", "model.encoder.language_model."
Context = list[tuple[Array, Array]]  # keys and values by layer


class Canvas:
    """The two passes of one set of weights. ``without`` gets one detail wrong, to see that it is
    told."""

    def __init__(
        self,
        weights: Mapping[str, ArrayLike],
        config: Mapping[str, Any],
        *,
        linear: Linear = linear,
        without: str = "",
    ) -> None:
        self.w = {name: np.asarray(value, float) for name, value in weights.items()}
        self.config, self.linear, self.without = dict(config), linear, without
        self.full = [kind == "full_attention" for kind in config["layer_types"]]

    def commit(self, ids: ArrayLike) -> tuple[Array, Context]:
        """The causal pass over a whole text: logits [n, V], and what canvases see of it."""
        return self._layers(self._embed(ids), None, COMMITS)

    def canvas(self, context: Context, ids: ArrayLike, previous: Array | None) -> Array:
        """Logits [n, V] of a canvas behind ``context``; ``previous``: the logits of the step before
        as they were sampled from."""
        x = self._embed(ids)
        if self.without != "norm behind self-conditioning":
            x = self._unit(x + self._condition(previous))
        scalars = COMMITS if self.without == "two sets of scalars" else DECODER
        return self._layers(x, context, scalars)[0]

    def _condition(self, previous: Array | None) -> Array:
        if previous is None or self.without == "self-conditioning":
            return np.zeros(1)
        name = DECODER + "self_conditioning."
        table = self.w[DECODER + "embed_tokens.weight"]
        soft = softmax(previous) @ table * np.sqrt(self.config["hidden_size"])
        return self._mlp(name, self._norm(soft, name + "pre_norm.weight"))

    def _embed(self, ids: ArrayLike) -> Array:
        rows = self.w[DECODER + "embed_tokens.weight"][np.asarray(ids, dtype=int)]
        return rows * np.sqrt(self.config["hidden_size"])

    def _layers(self, x: Array, context: Context | None, scalars: str) -> tuple[Array, Context]:
        seen = []
        for i in range(self.config["num_hidden_layers"]):
            name = f"{DECODER}layers.{i}."
            past = context[i] if context else None
            y, new = self._attention(i, self._norm(x, name + "input_layernorm.weight"), past)
            seen.append(new)
            r = x + self._norm(y, name + "post_attention_layernorm.weight")
            y = self._norm(self._both(name, r), name + "post_feedforward_layernorm.weight")
            x = (r + y) * self.w[f"{scalars}layers.{i}.layer_scalar"]
        x = self._norm(x, DECODER + "norm.weight")
        logits = self._project(DECODER + "embed_tokens.weight", x)
        cap = self.config["final_logit_softcapping"]
        return logits if self.without == "soft cap" else cap * np.tanh(logits / cap), seen

    def _both(self, name: str, r: Array) -> Array:
        pre, post = ["", "_2"], ["_1", "_2"]
        if self.without == "experts' own norm":
            pre[1] = ""
        if self.without == "order of the norms behind":
            post.reverse()
        x, z = (self._norm(r, f"{name}pre_feedforward_layernorm{p}.weight") for p in pre)
        parts = self._mlp(name + "mlp.", x), self._experts(name, r, z)
        return sum(
            self._norm(y, f"{name}post_feedforward_layernorm{p}.weight")
            for y, p in zip(parts, post, strict=True)
        )

    def _experts(self, name: str, r: Array, z: Array) -> Array:
        x = z if self.without == "router on the residual" else self._unit(r)
        x = x * self.w[name + "router.scale"]
        if self.without != "router's scale":
            x = x * self.config["hidden_size"] ** -0.5
        probabilities = softmax(self._project(name + "router.proj.weight", x))
        weights = route(probabilities, self.config["top_k_experts"], True)
        if self.without != "experts' scales":
            weights = weights * self.w[name + "router.per_expert_scale"]
        y = np.zeros_like(z)
        for e in range(self.config["num_experts"]):
            gate, up = np.split(self._project(name + "experts.gate_up_proj", z, e), 2, axis=1)
            out = self._project(name + "experts.down_proj", gelu(gate) * up, e)
            y += weights[:, e, None] * out
        return y

    def _attention(
        self, i: int, x: Array, past: tuple[Array, Array] | None
    ) -> tuple[Array, tuple[Array, Array]]:
        name, n = f"{DECODER}layers.{i}.self_attn.", len(x)
        width = len(self.w[name + "q_norm.weight"])
        p = len(past[0]) if past else 0
        at = np.arange(p, p + n, dtype=float)
        raw = (self._project(f"{name}{part}_proj.weight", x) for part in "qk")
        q, plain_k = (y.reshape(n, -1, width) for y in raw)
        q, k = (
            self._rope(i, self._norm(y, f"{name}{part}_norm.weight"), at)
            for y, part in ((q, "q"), (plain_k, "k"))
        )
        v = k if self.without == "values from plain keys" else plain_k
        if not self.full[i]:
            v = self._project(name + "v_proj.weight", x).reshape(n, -1, width)
        v = v if self.without == "norm of values" else self._unit(v)
        if past:
            k, v = np.concatenate([past[0], k]), np.concatenate([past[1], v])
        scale = 1.0 if self.without == "attention's scale" else width**0.5
        o = attend(q * scale, k, v, self._visible(i, n, p, canvas=past is not None))
        return self._project(name + "o_proj.weight", o.reshape(n, -1)), (k, v)

    def _visible(self, i: int, n: int, p: int, *, canvas: bool) -> NDArray[np.bool_]:
        """A canvas's rows see all of it, and of the context as much as its first row would."""
        window = self.config["sliding_window"]
        causal = np.tri(n, p + n, k=p, dtype=bool)
        hidden = np.tri(n, p + n, k=p - window, dtype=bool)
        if self.full[i] or self.without == "window":
            hidden = np.zeros_like(causal)
        if not canvas:
            return causal & ~hidden
        if self.without == "canvas seen as a whole":
            return causal & ~hidden[:1]
        return np.repeat(~hidden[:1], n, axis=0)

    def _rope(self, i: int, x: Array, at: Array) -> Array:
        width = x.shape[-1]
        if not self.full[i]:
            theta, turning, whole = 1e4, width // 2, width
        elif self.without == "proportional rotation":  # pairs within the leading quarter
            theta, turning, whole = 1e6, width // 8, width // 4
        else:
            theta, turning, whole = 1e6, width // 8, width
        if self.without == "one rotary base":
            theta = 1e6
        frequencies = np.zeros(whole // 2)
        frequencies[:turning] = theta ** (-2 * np.arange(turning) / whole)
        return rotate(x, at[:, None] * frequencies)

    def _mlp(self, name: str, x: Array) -> Array:
        gate, up = (self._project(f"{name}{part}_proj.weight", x) for part in ("gate", "up"))
        return self._project(name + "down_proj.weight", gelu(gate) * up)

    def _project(self, name: str, x: Array, expert: int | None = None) -> Array:
        return self.linear(name, x, self.w[name] if expert is None else self.w[name][expert])

    def _norm(self, x: Array, name: str) -> Array:
        return rmsnorm(x, self.w[name], self.config["rms_norm_eps"])

    def _unit(self, x: Array) -> Array:
        return rmsnorm(x, np.ones(1), self.config["rms_norm_eps"])


class Judge(Protocol):
    """What the loop asks of a model; ``Canvas`` is one."""

    def commit(self, ids: ArrayLike, /) -> tuple[Array, Any]: ...
    def canvas(self, context: Any, ids: ArrayLike, previous: Array | None, /) -> Array: ...


@dataclass(frozen=True)
class CanvasOptions:
    width: int
    valid_vocab: int
    uniform: Callable[[int, int, int], float]  # of seed, position, step
    seed: int = 0
    canvases: int = 3
    steps: int = 12
    t_min: float = 0.3
    t_max: float = 0.7
    entropy_bound: float = 0.2
    stability_threshold: int = 1
    confidence_threshold: float = 0.01


@dataclass
class CanvasText:
    ids: list[int] = field(default_factory=list)
    kept: list[list[list[int]]] = field(default_factory=list)  # by canvas and step, positions
    margin: float = np.inf  # least distance of a decision to another one


def generate_canvases(judge: Judge, prompt: Sequence[int], o: CanvasOptions) -> CanvasText:
    """Whole canvases of most probable ids behind the prompt. A position in front of step s takes
    its noise from ``uniform(seed, position, -1 - s)``, and step s draws by ``uniform(…, s)``."""
    text = CanvasText()
    for _ in range(o.canvases):
        done = [*prompt, *text.ids]
        _, context = judge.commit(done)
        best, kept = _denoise(judge, context, len(done), o, text)
        text.ids += best
        text.kept.append(kept)
    return text


def _denoise(
    judge: Judge, context: Any, start: int, o: CanvasOptions, text: CanvasText
) -> tuple[list[int], list[list[int]]]:
    def drawn(step: int) -> Array:
        return np.array([o.uniform(o.seed, start + i, step) for i in range(o.width)])

    canvas = (drawn(-1) * o.valid_vocab).astype(int)
    previous, history, kept = None, list[list[int]](), list[list[int]]()
    for s in range(o.steps):
        temperature = o.t_min + (o.t_max - o.t_min) * (o.steps - s) / o.steps
        z = np.array(judge.canvas(context, canvas, previous), float)
        z[:, o.valid_vocab :] = -np.inf
        best = z.argmax(axis=1).tolist()
        previous = z / temperature
        p = softmax(previous)
        entropy = -np.sum(p * np.log(np.where(p > 0, p, 1)), axis=1)
        sums, u = p.cumsum(axis=1), drawn(s)
        order = np.argsort(entropy, kind="stable")
        before = np.cumsum(entropy[order]) - entropy[order]
        positions = sorted(order[before <= o.entropy_bound].tolist())
        kept.append(positions)
        canvas = (drawn(-2 - s) * o.valid_vocab).astype(int)
        canvas[positions] = (sums[positions] <= u[positions, None]).sum(axis=1)
        last = history[-o.stability_threshold :] if o.stability_threshold else []
        stable = len(last) == o.stability_threshold and all(ids == best for ids in last)
        text.margin = min(
            text.margin,
            float(np.abs(sums[positions] - u[positions, None]).min()),
            float(np.abs(before - o.entropy_bound).min()),
            float(np.diff(np.sort(z[:, : o.valid_vocab], axis=1)[:, -2:], axis=1).min()),
            float(abs(entropy.mean() - o.confidence_threshold)) if stable else np.inf,
        )
        history.append(best)
        if stable and entropy.mean() < o.confidence_threshold:
            break
    return history[-1], kept
