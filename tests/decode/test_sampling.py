"""From logits to a token: penalties, temperature, top-k, top-p and the draw."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clover_edge._core import decoding

V, VALID, MASK = 40, 36, 7
LOGITS = np.random.default_rng(0).normal(0, 2, V).astype(np.float32)
REAL = [i for i in range(VALID) if i != MASK]


def pick(
    logits: np.ndarray = LOGITS, seen: dict[int, int] | None = None, u: float = 0.0, **options: Any
) -> tuple[int, float]:
    token, probability = decoding.pick(
        logits, valid_vocab=VALID, mask_token_id=MASK, options=options, seen=seen or {}, u=u
    )
    return token, probability


def softmax(logits: np.ndarray) -> np.ndarray:
    e = np.exp(logits.astype(float) - logits.max())
    return e / e.sum()


def drawn(**options: Any) -> dict[int, float]:
    """Which ids a grid of u reaches, and with what share."""
    grid = (np.arange(4000) + 0.5) / 4000
    ids, counts = np.unique([pick(u=u, **options)[0] for u in grid], return_counts=True)
    return {int(i): count / 4000 for i, count in zip(ids, counts, strict=True)}


def reference(temperature: float = 1, top_k: int = 0, top_p: float = 1) -> dict[int, float]:
    p = softmax(LOGITS[REAL] / temperature)
    order = np.argsort(-p, kind="stable")[: top_k or None]
    p = p[order] / p[order].sum()
    order = order[: int(np.searchsorted(np.cumsum(p), top_p)) + 1]
    p = p[: len(order)] / p[: len(order)].sum()
    return {REAL[i]: float(x) for i, x in zip(order, p, strict=True)}


def test_greedy_takes_the_best_real_token() -> None:
    logits = LOGITS.copy()
    logits[[MASK, VALID, V - 1]] = 50  # neither the mask nor padding, however likely
    best = REAL[int(np.argmax(LOGITS[REAL]))]
    token, probability = pick(logits)
    assert token == best
    assert probability == pytest.approx(softmax(LOGITS[REAL]).max(), rel=1e-6)


def test_greedy_ties_go_to_the_lower_id() -> None:
    logits = np.zeros(V, dtype=np.float32)
    logits[[12, 30]] = 1
    assert pick(logits)[0] == 12


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 1.0},
        {"temperature": 0.5},
        {"temperature": 2.0, "top_k": 5},
        {"temperature": 1.0, "top_p": 0.6},
        {"temperature": 1.5, "top_k": 12, "top_p": 0.8},
        {"temperature": 1.0, "top_k": 1000},
        {"temperature": 1.0, "top_p": 0.0},
    ],
)
def test_shares_of_a_draw(options: dict[str, Any]) -> None:
    """Every id gets its probability's share of u, and reports that probability."""
    want, found = reference(**options), drawn(**options)
    assert set(found) <= set(want)
    for token, probability in want.items():
        assert found.get(token, 0) == pytest.approx(probability, abs=2e-3)
    for u in (0.0, 0.3, 0.999999):
        token, probability = pick(u=u, **options)
        assert probability == pytest.approx(want[token], rel=1e-5)


def wide_logits(spread: float, size: int = 5000) -> np.ndarray:
    """More ids than a row looks at in its first rounds."""
    return np.random.default_rng(1).normal(0, spread, size).astype(np.float32)


def pick_wide(logits: np.ndarray, u: float, **options: Any) -> tuple[int, float]:
    token, probability = decoding.pick(
        np.append(logits, 99).astype(np.float32),
        valid_vocab=len(logits), mask_token_id=len(logits), options=options, seen={}, u=u,
    )  # fmt: skip
    return token, probability


@settings(deadline=None, max_examples=150)
@given(
    st.sampled_from([0.0, 0.1, 1.0, 4.0, 30.0]),
    st.sampled_from([0.3, 1.0, 3.0]),
    st.sampled_from([0, 1, 7, 64, 700, 9000]),
    st.sampled_from([0.0, 0.2037, 0.9011, 0.99917, 1.0]),  # no multiple of 1 / size
    st.floats(0, 1, exclude_max=True),
)
def test_any_cut_of_a_large_vocabulary(
    spread: float, temperature: float, top_k: int, top_p: float, u: float
) -> None:
    """Against a plain sort of all logits: the same set, and an order that ``u`` walks."""
    logits = wide_logits(spread)
    p = softmax(logits / temperature)
    cut = bool(top_k) or top_p < 1
    order = np.argsort(-logits, kind="stable") if cut else np.arange(len(logits))
    order = order[: top_k or None]
    kept = p[order] / p[order].sum()
    if top_p < 1:
        size = int(np.searchsorted(np.cumsum(kept), top_p)) + 1
        order, kept = order[:size], kept[:size] / kept[:size].sum()
    token, probability = pick_wide(logits, u, temperature=temperature, top_k=top_k, top_p=top_p)
    place = np.flatnonzero(order == token)
    assert len(place) == 1 or abs(p[token] / p[order[-1]] - 1) < 1e-4  # the border of the set
    if len(place):
        behind = np.cumsum(kept)[place[0]]
        assert behind - kept[place[0]] - 1e-4 <= u <= behind + 1e-4
        assert probability == pytest.approx(kept[place[0]], rel=2e-3)


def test_the_tail_of_a_draw_has_weight() -> None:
    """Rounding may leave a rest of ``u`` behind the last token: never one that has no weight."""
    logits = np.full(3000, -1000, np.float32)
    logits[[5, 1400]] = 1, 1
    for options in ({}, {"top_p": 0.9999999}, {"top_k": 50}):
        token, probability = pick_wide(logits, 1 - 2**-53, temperature=0.5, **options)
        assert token == 1400 and probability == pytest.approx(0.5)


def test_penalties() -> None:
    """Repetition divides or multiplies first, then frequency and presence are subtracted."""
    logits = np.full(V, -9, dtype=np.float32)
    logits[[1, 2, 3]] = 4, 3, -1
    seen = {1: 3, 3: 1}
    options = {"repetition_penalty": 2, "frequency_penalty": 0.25, "presence_penalty": 0.5}
    bent = logits.copy()
    bent[1] = 4 / 2 - 3 * 0.25 - 0.5
    bent[3] = -1 * 2 - 0.25 - 0.5
    token, probability = pick(logits, seen, **options)
    assert token == 2
    assert probability == pytest.approx(softmax(bent[REAL])[REAL.index(2)], rel=1e-6)
    for name, value in options.items():
        single = logits.copy()
        if name == "repetition_penalty":
            single[[1, 3]] = 2, -2
        else:
            single[[1, 3]] -= np.array([3, 1]) * value if "freq" in name else value
        token, probability = pick(logits, seen, **{name: value})
        assert token == REAL[int(np.argmax(single[REAL]))]
        assert probability == pytest.approx(softmax(single[REAL]).max(), rel=1e-6)


def test_tiny_temperature_is_greedy() -> None:
    assert pick(u=0.9999, temperature=1e-300) == (pick()[0], 1.0)


@settings(deadline=None)
@given(st.integers(0, 2**63 - 1), st.integers(0, 2**40), st.integers(0, 100))
def test_uniform_is_in_range_and_repeats(seed: int, position: int, step: int) -> None:
    u = decoding.uniform(seed, position, step)
    assert 0 <= u < 1
    assert u == decoding.uniform(seed, position, step)


def test_uniform_is_uniform_in_every_argument() -> None:
    for values in (
        [decoding.uniform(i, 5, 1) for i in range(4000)],
        [decoding.uniform(3, i, 1) for i in range(4000)],
        [decoding.uniform(3, 5, i) for i in range(4000)],
    ):
        counts = np.histogram(values, bins=20, range=(0, 1))[0]
        assert counts.min() > 140 and counts.max() < 260  # 200 expected, sigma 14
        assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 0.06
