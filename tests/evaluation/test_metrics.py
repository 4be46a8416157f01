"""Metrics against the plainest numpy."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from clover_edge.evaluation import metrics
from clover_edge.evaluation.metrics import (
    Halves,
    Masks,
    Tally,
    Vocabulary,
    score_rows,
    shared_experts,
)

RNG = np.random.default_rng(0)
V, VALID, MASK = 40, 37, 30


def rows(n: int) -> np.ndarray:
    return RNG.normal(0, 4, (n, V)).astype(np.float32)


def probabilities(logits: np.ndarray) -> np.ndarray:
    """Softmax over real tokens, zero elsewhere; one row at a time."""
    out = np.zeros(logits.shape)
    real = [i for i in range(VALID) if i != MASK]
    for row, x in zip(out, logits.astype(float), strict=True):
        e = np.exp(x[real] - x[real].max())
        row[real] = e / e.sum()
    return out


def divergence(p: np.ndarray, q: np.ndarray) -> float:
    return sum(a * np.log(a / b) for a, b in zip(p, q, strict=True) if a)


@pytest.mark.parametrize("chunk", [1, 3 * V, 1 << 22])
def test_scores(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(metrics, "_CHUNK", chunk)
    found, reference = rows(11), rows(11)
    reference[:4] = found[:4] + 0.1 * rows(4)
    found[:, MASK] = reference[:, MASK] = 99  # likeliest, were it a token
    targets = [i for i in RNG.integers(0, MASK, 11).tolist()]
    q, p = probabilities(found), probabilities(reference)
    scores = score_rows(Vocabulary(VALID, MASK), targets, found, reference)
    np.testing.assert_allclose(scores.nll[0], -np.log(q[np.arange(11), targets]))
    np.testing.assert_allclose(scores.nll[1], -np.log(p[np.arange(11), targets]))
    np.testing.assert_allclose(scores.kl, [divergence(*pair) for pair in zip(p, q, strict=True)])
    assert scores.agree.tolist() == (p.argmax(1) == q.argmax(1)).tolist()
    assert 0 < scores.agree.sum() < 11

    alone = score_rows(Vocabulary(VALID, MASK), targets, found)
    assert np.array_equal(alone.nll, scores.nll[:1])
    assert alone.kl.size == alone.agree.size == 0


def test_a_vocabulary_without_mask() -> None:
    x = rows(3)
    want = x.astype(float) - np.log(np.exp(x.astype(float)).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(Vocabulary(V).log_probabilities(x), want)
    beyond = Vocabulary(VALID, VALID).log_probabilities(x)  # a mask among the padding
    assert np.array_equal(beyond, Vocabulary(VALID).log_probabilities(x))


def test_tally() -> None:
    tally, a, b = Tally(), rows(4), rows(4)
    one = score_rows(Vocabulary(V), [1, 2, 3, 4], a, b)
    tally.add(one, weight=2)
    tally.add(one)
    assert tally.positions == 8 and tally.agree == 2 * one.agree.sum()
    np.testing.assert_allclose(tally.nll, 3 * one.nll.sum(axis=1))
    np.testing.assert_allclose(tally.kl, 2 * one.kl.sum())


def test_masks() -> None:
    """m of n evenly often, every position equally, weights n/m, and the same for a seed."""
    draw = Masks(3).draw
    drawn = [draw(8) for _ in range(4000)]
    sizes = Counter(len(rows) for rows, _ in drawn)
    assert sorted(sizes) == list(range(1, 9))
    assert max(sizes.values()) - min(sizes.values()) < 8  # stratified: chance would give some 60
    assert all(weight == 8 / len(rows) for rows, weight in drawn)
    assert all(rows == sorted(set(rows)) for rows, _ in drawn)
    places = Counter(row for rows, _ in drawn for row in rows)
    assert max(places.values()) < 1.1 * min(places.values())
    again, other = Masks(3).draw, Masks(4).draw
    assert [again(8) for _ in range(9)] == drawn[:9] != [other(8) for _ in range(9)]


def test_masks_estimate_the_bound() -> None:
    """The same mean as (1/t) over masks of Bernoulli(t), t uniform; losses that depend on m and
    on the position."""
    n, losses = 6, RNG.uniform(1, 2, 6)
    draw, rng = Masks(0).draw, np.random.default_rng(1)

    def loss(masked: np.ndarray) -> np.ndarray:  # of rows of 0 and 1
        total: np.ndarray = (masked * losses).sum(axis=-1) * (1 + masked.sum(axis=-1))
        return total

    drawn = [draw(n) for _ in range(20000)]
    masked = np.zeros((len(drawn), n))
    for row, (positions, _) in zip(masked, drawn, strict=True):
        row[positions] = 1
    ours = (np.array([weight for _, weight in drawn]) * loss(masked)).mean()
    t = (np.arange(1 << 20) + 0.5)[:, None] / (1 << 20)
    want = (loss(rng.random((len(t), n)) < t) / t[:, 0]).mean()
    assert abs(ours / want - 1) < 0.01


def test_layers() -> None:
    a, b = rows(5), rows(5)
    halves = Halves()
    halves.add(a[:2], b[:2])
    halves.add(a[2:], b[2:])
    want = np.sqrt(np.square(a - b).mean() / np.square(a).mean())
    assert halves.relative_error == pytest.approx(want, rel=1e-6)
    assert Halves().relative_error == 0


def test_shared_experts() -> None:
    a = np.array([[1, 2, 3], [4, 5, 6]])
    b = np.array([[3, 1, 9], [7, 8, 9]])
    assert shared_experts(a, b) == shared_experts(b, a) == 2
    assert shared_experts(a, a) == 6
