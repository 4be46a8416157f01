"""Full attention, and decoding of a canvas the plain way.

``judge(ids, first, last)`` gives logits [last - first, V] of those positions of a text and canvas.
A judge that is asked for some of them only uses keys and values that it has kept of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oracle.clover import AttentionState, State
from oracle.equations import Array, attend, softmax
from oracle.transformer import Transformer

Judge = Callable[[Sequence[int], int, int], Array]


class FullTransformer(Transformer):
    """A transformer all of whose rows see each other."""

    first = 0
    kept: State | None = None

    def logits(self, ids: Sequence[int]) -> Array:
        """Of a whole text: [n, V]."""
        return self.part(ids, 0, len(ids))

    def part(self, ids: Sequence[int], first: int, last: int) -> Array:
        """A judge: positions [first, last), whose keys and values replace those that were kept."""
        if last - first == len(ids):
            self.kept = self.start()
        assert self.kept is not None
        self.first = first
        logits, self.kept = self.commit(self.kept, ids[first:last])
        return logits

    def visible(self, n: int, p: int) -> NDArray[np.bool_]:
        return np.ones((n, p), dtype=bool)

    def _attention(self, name: str, x: Array, past: AttentionState) -> tuple[Array, AttentionState]:
        n, at = len(x), self.first + np.arange(len(x), dtype=float)

        def among(new: Array, old: Array) -> Array:
            return np.concatenate([old[: self.first], new, old[self.first + n :]])

        q = self._heads(name + "q", x, at)
        k = among(self._heads(name + "k", x, at), past.k)
        v = among(self._heads(name + "v", x, None), past.v)
        o = attend(q, k, v, self.visible(n, len(k)))
        return self._project(name + "o_proj.weight", o.reshape(n, -1)), AttentionState(k, v)


@dataclass(frozen=True)
class CanvasOptions:
    max_new_tokens: int
    mask: int
    valid_vocab: int
    width: int
    shift: int = 0
    cache: str = "none"
    threshold: float = 0.9
    steps: int = 0  # the block's positions shared out, or with eps Dream's schedule
    factor: float = 0.0
    eps: float = 0.0
    confidence: str = "probability"
    confidence_temperature: float = 0.0
    seed: int = 0
    stop_ids: tuple[int, ...] = ()
    stop_penalty: float = 0.0


@dataclass
class CanvasText:
    ids: list[int] = field(default_factory=list)
    stop_id: int | None = None
    changed: list[list[int]] = field(default_factory=list)  # by step, in the block
    margin: float = np.inf  # of the closest decision


def generate_canvas(judge: Judge, prompt: Sequence[int], o: CanvasOptions) -> CanvasText:
    """Greedy, block after block of a canvas that is as long as the answer may be."""
    out, n = CanvasText(), len(prompt)
    x = np.array([*prompt, *[o.mask] * o.max_new_tokens])
    for start in range(n, len(x), o.width):
        stop = min(start + o.width, len(x))
        _denoise(judge, x, start, stop, o, out)
        ends = [i for i in range(start, stop) if x[i] in o.stop_ids]
        if ends:
            out.stop_id, out.ids = int(x[ends[0]]), x[n : ends[0]].tolist()
            return out
    out.ids = x[n:].tolist()
    return out


def _denoise(
    judge: Judge, x: NDArray[Any], start: int, stop: int, o: CanvasOptions, out: CanvasText
) -> None:
    """Until no mask stands in front of a stop token. Steps that accept nothing, whatever the model
    says, are not taken."""
    step, first, last = 0, 0, len(x)
    while not _settled(x[start:stop].tolist(), o):
        masked = [i for i in range(start, stop) if x[i] == o.mask]
        draws = [uniform(~o.seed, i, step) for i in masked]
        quota = _quota(masked, draws, step, stop - start, o)
        if quota != 0 and quota != []:
            z = judge(x.tolist(), first, last)
            picks = {i: _pick(z[i - o.shift - first], o, out) for i in masked}
            accepted = _accept(picks, draws, quota, o, out)
            for i in accepted:
                x[i] = picks[i][0]
            out.changed.append([i - start for i in accepted])
            if o.cache != "none":
                first = start - o.shift
            if o.cache == "dual":
                last = stop
        step += 1


def _settled(block: list[int], o: CanvasOptions) -> bool:
    ends = [i for i, token in enumerate(block) if token in o.stop_ids]
    return o.mask not in block[: ends[0] if ends else None]


def _quota(
    masked: list[int], draws: list[float], step: int, width: int, o: CanvasOptions
) -> int | list[int]:
    """Least number of positions that a step accepts, or which ones."""
    if not o.eps:
        return max(1, width // o.steps + (step < width % o.steps)) if o.steps else 1
    t = np.linspace(1, o.eps, o.steps + 1)
    share = 1 - t[step + 1] / t[step] if step < o.steps - 1 else 1.0
    if o.confidence == "random":
        return [i for i, u in zip(masked, draws, strict=True) if u < share]
    return int(len(masked) * share)


def _pick(logits: Array, o: CanvasOptions, out: CanvasText) -> tuple[int, Array]:
    """The likeliest token, and probabilities over those that may be written, falling."""
    logits = np.array(logits, float)
    for stop in o.stop_ids:
        logits[stop] -= o.stop_penalty
    logits[o.valid_vocab :] = logits[o.mask] = -np.inf
    p = softmax(logits)
    falling = np.sort(p)[::-1]
    out.margin = min(out.margin, float(falling[0] - falling[1]))
    return int(p.argmax()), falling


def _accept(
    picks: dict[int, tuple[int, Array]],
    draws: list[float],
    quota: int | list[int],
    o: CanvasOptions,
    out: CanvasText,
) -> list[int]:
    if isinstance(quota, list):
        return quota
    ranks = {
        i: _rank(falling, u, o) for (i, (_, falling)), u in zip(picks.items(), draws, strict=True)
    }
    order = sorted(ranks, key=lambda i: -ranks[i])
    p = [float(picks[i][1][0]) for i in order]
    if o.factor:
        bounds = [1 - o.factor / (n + 1) for n in range(1, len(p) + 1)]
        quota = max([1, *(n + 1 for n in range(len(p)) if p[n] >= bounds[n])])
        gaps = [abs(a - b) for a, b in zip(p[1:], bounds[1:], strict=True)]
    elif o.eps:
        gaps = []
    else:
        gaps = [abs(value - o.threshold) for value in p]
    if quota < len(order):
        gaps.append(ranks[order[quota - 1]] - ranks[order[quota]])
    out.margin = min([out.margin, *gaps])
    above = not o.factor and not o.eps
    return sorted(
        i for n, i in enumerate(order) if n < quota or (above and picks[i][1][0] > o.threshold)
    )


def _rank(falling: Array, u: float, o: CanvasOptions) -> float:
    kept = falling[falling > 0]
    value = {
        "probability": falling[0],
        "margin": falling[0] - falling[1],
        "entropy": (kept * np.log(kept)).sum(),
        "random": u,
    }[o.confidence]
    if o.confidence_temperature:
        value = value / o.confidence_temperature - np.log(-np.log(u))
    return float(value)


def uniform(seed: int, position: int, step: int) -> float:
    """In [0, 1): three rounds of splitmix64's finaliser."""
    bits = 2**64 - 1

    def mix(x: int) -> int:
        x = (x + 0x9E3779B97F4A7C15) & bits
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & bits
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & bits
        return x ^ (x >> 31)

    return float((mix(mix(mix(seed & bits) ^ position) ^ step) >> 11) * 2.0**-53)
