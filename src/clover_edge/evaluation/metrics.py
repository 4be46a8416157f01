"""What is measured, in plain numpy: arrays in, sums out.

Probabilities are over the tokens that a model may say: the padding of its vocabulary and the mask
token are taken out before the softmax.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Integers = NDArray[np.int64]

_CHUNK = 1 << 22  # logits turned to float64 at once
_NEVER = 1e4  # nats below the likeliest token: a probability of exactly 0 in float64
_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True)
class Vocabulary:
    """The tokens that have a probability: ids below `valid` but for `mask` (None: no such id)."""

    valid: int
    mask: int | None = None

    def log_probabilities(self, logits: Floats) -> Doubles:
        """Natural logarithms ``[n, valid]`` of softmax of logits ``[n, V]``."""
        x = logits[:, : self.valid].astype(np.float64)
        never = [] if self.mask is None or self.mask >= self.valid else [self.mask]
        x[:, never] = -np.inf
        x -= x.max(axis=1, keepdims=True)
        x[:, never] = -_NEVER  # finite: the difference of two is a number
        out: Doubles = x - np.log(np.exp(x).sum(axis=1, keepdims=True))
        return out


@dataclass(frozen=True)
class Scores:
    """By position; without a reference, the last two are empty."""

    nll: Doubles  # [1 or 2, n]: -log p(token) of the model and of the reference, nats
    kl: Doubles  # [n]: KL(reference || model), nats
    agree: NDArray[np.bool_]  # [n]: whether both find the same token likeliest


def score_rows(
    vocabulary: Vocabulary, targets: list[int], logits: Floats, reference: Floats | None = None
) -> Scores:
    """Scores of logits ``[n, V]`` whose rows should say `targets`; a few rows at a time."""
    sides = [logits] if reference is None else [logits, reference]
    step = max(1, _CHUNK // logits.shape[1])
    parts = []
    for start in range(0, len(targets), step):
        wanted = np.array(targets[start : start + step])
        logs = [vocabulary.log_probabilities(side[start : start + step]) for side in sides]
        nll = np.stack([-log[np.arange(len(log)), wanted] for log in logs])
        kl, agree = np.empty(0), np.empty(0, bool)
        if reference is not None:
            q, p = logs
            kl = (np.exp(p) * (p - q)).sum(axis=1)
            agree = p.argmax(axis=1) == q.argmax(axis=1)
        parts.append((nll, kl, agree))
    nll, kl, agree = (np.concatenate(column, axis=-1) for column in zip(*parts, strict=True))
    return Scores(nll, kl, agree)


@dataclass
class Tally:
    """Sums of scores. Likelihoods are weighted, divergence and agreement are not."""

    positions: int = 0
    nll: list[float] = field(default_factory=lambda: [0.0, 0.0])  # the model's, the reference's
    kl: float = 0.0
    agree: int = 0

    def add(self, scores: Scores, weight: float = 1.0) -> None:
        self.positions += scores.nll.shape[1]
        for side, nll in enumerate(scores.nll):
            self.nll[side] += weight * float(nll.sum())
        self.kl += float(scores.kl.sum())
        self.agree += int(scores.agree.sum())


class Masks:
    """Which positions of a block are masked, and the weight of their losses.

    The bound on a block's likelihood is E over t ~ U(0, 1) of (1/t) * the sum of -log p over the
    masked positions, each masked with probability t. Integrating t out leaves m ~ U{1 .. n} masked
    positions of n, chosen evenly, with the weight n/m: the same expectation with less noise, as
    in LLaDA's evaluation (Nie et al., 2025). m/n is stratified over blocks: it walks by the golden
    ratio. The same seed gives the same masks whatever the model.
    """

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._place = float(self._rng.random())

    def draw(self, n: int) -> tuple[list[int], float]:
        """Masked positions of a block of n, in order, and their weight n/m."""
        self._place = (self._place + _GOLDEN) % 1.0
        m = 1 + int(self._place * n)
        return sorted(self._rng.permutation(n)[:m].tolist()), n / m


def shared_experts(a: Integers, b: Integers) -> int:
    """Experts that the same rows of ``[n, k]`` have in common, over all rows."""
    return int((a[:, :, None] == b[:, None, :]).sum())


@dataclass
class Halves:
    """Squares of what a half layer adds to the residual: of the reference, and of the difference
    to it."""

    reference: float = 0.0
    difference: float = 0.0

    def add(self, reference: Floats, found: Floats) -> None:
        wide = reference.astype(np.float64)
        self.reference += float(np.square(wide).sum())
        self.difference += float(np.square(found - wide).sum())

    @property
    def relative_error(self) -> float:
        """||difference|| / ||reference||, root mean squares over all rows."""
        return math.sqrt(self.difference / self.reference) if self.reference else 0.0


@dataclass
class LayerTally:
    """One layer's halves and choices of experts."""

    mixer: Halves = field(default_factory=Halves)
    feed_forward: Halves = field(default_factory=Halves)
    shared: int = 0
    chosen: int = 0

    @property
    def router_agreement(self) -> float | None:
        """The share of the model's chosen experts that the reference chose, too; None without."""
        return self.shared / self.chosen if self.chosen else None
