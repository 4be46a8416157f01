"""Block diffusion under a block mask, the plain way: every step computes the whole text again.

``logits`` is any judge: ids [n] of a text whose blocks count from ``origin`` to logits [n, V].
Where what is in front of a block is causal, ``origin`` is where the block starts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from oracle.clover import Linear, linear
from oracle.equations import Array, best, sigmoid, softmax
from oracle.transformer import Transformer

Judge = Callable[[Sequence[int], int], Array]


def block_mask(n: int, width: int, origin: int = 0) -> NDArray[np.bool_]:
    """[n, n]: a row sees its block and those before it."""
    block = (np.arange(n) - origin) // width
    visible: NDArray[np.bool_] = block[:, None] >= block[None, :]
    return visible


class BlockTransformer(Transformer):
    """A transformer under a block mask; LLaDA2's router and shared expert where it has them."""

    def __init__(
        self,
        weights: Mapping[str, ArrayLike],
        config: Mapping[str, Any],
        *,
        linear: Linear = linear,
    ) -> None:
        super().__init__(weights, config, linear=linear)
        self.width: int = config.get("bd_size") or config["block_size"]
        self.origin = 0

    def logits(self, ids: Sequence[int], origin: int = 0) -> Array:
        """Of a whole text: [n, V]."""
        self.origin = origin
        return self.commit(self.start(), ids)[0]

    def visible(self, n: int, p: int) -> NDArray[np.bool_]:
        assert p == 0
        return block_mask(n, self.width, self.origin)

    def weights_of_experts(self, name: str, x: Array) -> Array:
        c = self.config
        if c.get("score_function") != "sigmoid":
            return super().weights_of_experts(name, x)
        scores = sigmoid(self._project(name + "gate.weight", x))
        chosen = scores + self.w.get(name + "gate.expert_bias", np.zeros(1))
        if c.get("coreset"):  # which takes the place of groups
            pool = best(chosen.max(axis=0), c["coreset"])
            outside = np.setdiff1d(np.arange(chosen.shape[1]), pool)
            chosen[:, outside] = -np.inf
            c = {**c, "n_group": 1, "topk_group": 1}
        groups = chosen.reshape(len(x), c["n_group"], -1)
        two = np.sort(groups, axis=2)[..., -2:].sum(axis=2)
        weights = np.zeros_like(scores)
        for row in range(len(x)):
            kept = np.zeros(c["n_group"], dtype=bool)
            kept[best(two[row], c["topk_group"])] = True
            limited = np.where(kept[:, None], groups[row], -np.inf).reshape(-1)
            ids = best(limited, c["num_experts_per_tok"])
            total = scores[row, ids].sum() + 1e-20 if c["norm_topk_prob"] else 1.0
            weights[row, ids] = scores[row, ids] / total * c["routed_scaling_factor"]
        return weights


@dataclass(frozen=True)
class BlockOptions:
    max_new_tokens: int
    mask: int
    valid_vocab: int
    width: int
    absolute: bool = True  # blocks count from position 0, or from the end of the prompt
    shift: int = 0
    causal: bool = False  # what is in front of a block sees nothing behind itself
    seed: bool = False  # the row in front of a block decides its first token
    threshold: float = 0.9
    steps: int = 0  # with a fixed schedule: the block's positions shared out
    edit_threshold: float | None = None
    max_post_steps: int = 16
    sub_block: int = 0
    strategy: str = "low_confidence_dynamic"
    factor: float = 0.0
    entropy_bound: float = 0.35
    stop_ids: tuple[int, ...] = ()


@dataclass
class BlockText:
    ids: list[int] = field(default_factory=list)
    stop_id: int | None = None
    changed: list[list[int]] = field(default_factory=list)  # by step, in the block
    edits: int = 0
    margin: float = np.inf  # of the closest decision


def generate_blocks(judge: Judge, prompt: Sequence[int], o: BlockOptions) -> BlockText:
    """Greedy, block after block; confidence is a probability over ids that may be written."""
    out, text = BlockText(), list(prompt)
    origin = 0 if o.absolute else len(prompt) % o.width
    assert not (o.causal and o.absolute)
    while True:
        block = np.full(o.width - (len(text) - origin) % o.width, o.mask)
        origin = len(text) if o.causal else origin
        if (o.shift or o.seed) and len(block) == o.width:
            block[0] = _pick(judge(text, origin)[-1], o, out)[0]
        room = o.max_new_tokens + len(prompt) - len(text)
        _denoise(judge, text, origin, block, room, o, out)
        text += [int(i) for i in block]
        new = text[len(prompt) :][: o.max_new_tokens]
        ends = [i for i, token in enumerate(new) if token in o.stop_ids]
        if ends or len(text) - len(prompt) >= o.max_new_tokens:
            out.stop_id = new[ends[0]] if ends else None
            out.ids = new[: ends[0]] if ends else new
            return out


def _pick(logits: Array, o: BlockOptions, out: BlockText) -> tuple[int, float]:
    logits = logits.copy()
    logits[o.valid_vocab :] = logits[o.mask] = -np.inf
    p = softmax(logits)
    second, first = np.sort(p)[-2:]
    out.margin = min(out.margin, float(first - second))
    return int(p.argmax()), float(first)


def _denoise(
    judge: Judge,
    text: list[int],
    origin: int,
    block: NDArray[Any],
    room: int,
    o: BlockOptions,
    out: BlockText,
) -> None:
    """Until no mask is left; with editing until a step that found none changes nothing."""
    n, step, post, first = len(block), 0, 0, o.width - len(block)
    while True:
        masked = np.flatnonzero(block == o.mask)
        if o.edit_threshold is None and _decided(block, room, o):
            return
        if len(masked) == 0:
            if post == o.max_post_steps:
                return
            post += 1
        z = judge([*text, *(int(i) for i in block)], origin)[len(text) - o.shift :][:n]
        if o.sub_block:
            masked = masked[(masked + first) // o.sub_block == (masked[0] + first) // o.sub_block]
        picks = {int(i): _pick(z[i], o, out) for i in masked}
        least = 1
        if o.steps:
            least = max(1, o.width // o.steps + (step < o.width % o.steps))
        accepted = _accepted(picks, {i: z[i] for i in picks}, least, o, out)
        edits = []
        if o.edit_threshold is not None:
            for i in np.flatnonzero(block != o.mask):
                token, p = _pick(z[i], o, out)
                if token != block[i]:
                    out.margin = min(out.margin, abs(p - o.edit_threshold))
                    if p > o.edit_threshold:
                        edits.append((int(i), token))
        found_masks = len(masked) > 0
        for i in accepted:
            block[i] = picks[i][0]
        for i, token in edits:
            block[i] = token
        out.edits += len(edits)
        out.changed.append(sorted([*accepted, *(i for i, _ in edits)]))
        step += 1
        if o.edit_threshold is not None and not found_masks and not edits:
            return


def _accepted(
    picks: dict[int, tuple[int, float]],
    logits: dict[int, Array],
    least: int,
    o: BlockOptions,
    out: BlockText,
) -> list[int]:
    """Masked positions that a step accepts, by SDAR's four strategies or Fast-dLLM's factor."""
    if o.strategy == "sequential":
        return sorted(picks)[:least]
    if o.strategy == "entropy_bounded":
        return _by_entropy({i: _entropy(z, o) for i, z in logits.items()}, least, o, out)
    order = sorted(picks, key=lambda i: -picks[i][1])
    falling = [picks[i][1] for i in order]
    if o.factor:
        steps = [p - (1 - o.factor / (n + 1)) for n, p in enumerate(falling, 1)]
        out.margin = min([out.margin, *map(abs, steps[1:])])
        return order[: max([least, *(n for n, gap in enumerate(steps, 1) if gap >= 0)])]
    threshold = 2.0 if o.strategy == "low_confidence_static" else o.threshold
    _note_order(out, falling, least, threshold)
    return [i for r, i in enumerate(order) if r < least or picks[i][1] > threshold]


def _entropy(logits: Array, o: BlockOptions) -> float:
    p = softmax(np.delete(logits[: o.valid_vocab], o.mask))
    return float(-(p * np.log(np.maximum(p, 1e-300))).sum())


def _by_entropy(
    entropy: dict[int, float], least: int, o: BlockOptions, out: BlockText
) -> list[int]:
    """Every prefix of the ascending order whose members in front of the last sum to the bound."""
    order = sorted(entropy, key=lambda i: entropy[i])
    before = [sum(entropy[j] for j in order[:n]) for n in range(len(order))]
    count = max(least, sum(total <= o.entropy_bound for total in before))
    gaps = [abs(total - o.entropy_bound) for total in before]
    if count < len(order):
        gaps.append(entropy[order[count]] - entropy[order[count - 1]])
    out.margin = min([out.margin, *gaps])
    return order[:count]


def _note_order(out: BlockText, falling: list[float], least: int, threshold: float) -> None:
    """Probabilities near the threshold, or near each other where the least number cuts."""
    gaps = [abs(p - threshold) for p in falling]
    if least < len(falling) and falling[least] <= threshold:
        gaps.append(falling[least - 1] - falling[least])
    out.margin = min([out.margin, *gaps])


def _decided(block: NDArray[Any], room: int, o: BlockOptions) -> bool:
    """No mask stands in front of a stop token or the end of the budget."""
    kept = [int(token) for token in block[:room]]
    ends = [i for i, token in enumerate(kept) if token in o.stop_ids]
    return o.mask not in kept[: ends[0] if ends else None]
