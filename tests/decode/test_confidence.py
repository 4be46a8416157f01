"""What ranks the positions of a canvas, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from clover_edge._core import decoding

MASK, VALID = 7, 700  # several stripes of the head


def kept(logits: np.ndarray, temperature: float, top_k: int, top_p: float) -> np.ndarray:
    """Probabilities that may be drawn, falling, scaled to one."""
    z = np.delete(logits[:VALID].astype(float), MASK)
    p = np.sort(np.exp((z - z.max()) / (temperature or 1.0)))[::-1]
    p /= p.sum()
    if temperature and top_k:
        p = p[:top_k] / p[:top_k].sum()
    if temperature and top_p < 1:
        p = p[: int((np.cumsum(p) < top_p).sum()) + 1]
    return p / p.sum()


@pytest.mark.parametrize(
    "sampling",
    [
        {},
        {"temperature": 0.7},
        {"temperature": 1.3, "top_k": 40},
        {"temperature": 1.3, "top_p": 0.8},
        {"temperature": 0.9, "top_k": 200, "top_p": 0.6},
        {"temperature": 0.01},
        {"temperature": 1.0, "top_k": 1},
    ],
)
@pytest.mark.parametrize("measure", ["margin", "entropy"])
def test_of_the_distribution_that_is_drawn_from(measure: str, sampling: dict[str, Any]) -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        logits = (2 * rng.standard_normal(720)).astype(np.float32)
        logits[[MASK, 710]] = 50.0  # neither has a say
        p = kept(
            logits,
            sampling.get("temperature", 0.0),
            sampling.get("top_k", 0),
            sampling.get("top_p", 1.0),
        )
        second = p[1] if len(p) > 1 else 0.0
        positive = p[p > 0]
        want = p[0] - second if measure == "margin" else (positive * np.log(positive)).sum()
        found = decoding.confidence(
            logits,
            valid_vocab=VALID,
            mask_token_id=MASK,
            options={**sampling, "confidence": measure},
            u=rng.random(),
        )
        assert found == pytest.approx(want, rel=1e-4, abs=1e-5)


def test_probability_is_that_of_the_pick() -> None:
    logits = np.random.default_rng(0).standard_normal(720).astype(np.float32)
    options = {"temperature": 1.0, "top_p": 0.5, "confidence": "probability"}
    keys: dict[str, Any] = {"valid_vocab": VALID, "mask_token_id": MASK, "options": options}
    _, probability = decoding.pick(logits, seen={}, u=0.7, **keys)
    assert decoding.confidence(logits, u=0.7, **keys) == probability
