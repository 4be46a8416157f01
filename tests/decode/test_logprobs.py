"""Log-probabilities of tokens: of the raw logits, at the step that accepted the token."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tiny_core import MASK, VALID, committed, tokens, write_tiny

from clover_edge.errors import ArgumentError

PROMPT = tokens(13, 1)
NOISE: dict[str, Any] = {"temperature": 0.7, "top_k": 9, "seed": 5, "frequency_penalty": 0.4}


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return write_tiny(tmp_path_factory.mktemp("core") / "weights.bin").open()


def run(core: Any, **options: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    events: list[dict[str, Any]] = []
    asked = {"max_new_tokens": 40, "threshold": 0.3, "logprobs": 3, **options}
    result = core.generate(core.new_state(300), PROMPT, asked, lambda e: events.append(e) or True)
    return result, events


def log_softmax(logits: np.ndarray) -> np.ndarray:
    real = logits.astype(np.float64)
    real[..., [MASK, *range(VALID, real.shape[-1])]] = -np.inf
    return real - np.log(np.exp(real).sum(-1, keepdims=True))


def agree(entry: Any, logits: np.ndarray, token: int) -> None:
    """One entry against a row of raw logits."""
    (value, top), want = entry, log_softmax(logits)
    np.testing.assert_allclose(value, want[token], rtol=1e-4, atol=1e-4)
    order = np.argsort(-want, kind="stable")[: len(top)]
    assert [token_id for token_id, _ in top] == order.tolist()
    np.testing.assert_allclose([p for _, p in top], want[order], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("options", [{}, NOISE, {"temperature": 1.0}])
def test_autoregressive(core: Any, options: dict[str, Any]) -> None:
    result, events = run(core, mode="ar", **options)
    state = core.new_state(300)
    logits = core.commit(state, PROMPT)[0]
    assert len(result["logprobs"]) == len(result["ids"]) == 40
    for token, entry in zip(result["ids"], result["logprobs"], strict=True):
        agree(entry, logits, token)
        assert len(entry[1]) == 3
        logits = core.commit(state, [token])[0]
    blocks = [event["logprobs"] for event in events if event["type"] == "block"]
    assert [entry for block in blocks for entry in block] == result["logprobs"]


@pytest.mark.parametrize("options", [{}, NOISE, {"edit_threshold": 0.1}])
def test_denoising(core: Any, options: dict[str, Any]) -> None:
    """Replayed from raw previews: the last step that wrote a position is the one that counts."""
    result, events = run(core, **options)
    state = committed(core, PROMPT)
    block, rows, replaced, seen = [MASK] * 16, {}, 0, 0
    for event in events[1:]:
        if event["type"] == "step":
            logits = core.preview(state, block)
            for i in np.flatnonzero(event["accepted"]):
                replaced += block[i] != MASK
                rows[i] = logits[i]
            block = event["ids"]
            continue
        for i, token in enumerate(event["ids"]):
            agree(event["logprobs"][i], rows[i], token)
            seen += 1
        core.commit(state, event["ids"], logits="none")
        block, rows = [MASK] * 16, {}
    assert seen == len(result["ids"]) == len(result["logprobs"])
    assert ("edit_threshold" in options) == (replaced > 0)


@pytest.mark.parametrize("options", [{}, NOISE])
def test_speculation_has_those_of_the_autoregressive_text(
    core: Any, options: dict[str, Any]
) -> None:
    want, found = (run(core, mode=mode, **options)[0] for mode in ("ar", "speculative"))
    assert want["ids"] == found["ids"]
    for one, other in zip(want["logprobs"], found["logprobs"], strict=True):
        np.testing.assert_allclose(one[0], other[0], rtol=1e-4, atol=1e-4)
        assert [token for token, _ in one[1]] == [token for token, _ in other[1]]


@pytest.mark.parametrize("mode", ["ar", "diffusion", "speculative"])
def test_they_change_nothing_and_are_off_by_default(core: Any, mode: str) -> None:
    plain, events = run(core, mode=mode, logprobs=-1)
    assert plain["logprobs"] == []
    assert all(event["logprobs"] == [] for event in events if event["type"] == "block")
    asked = run(core, mode=mode, logprobs=0)[0]
    assert asked["ids"] == plain["ids"]
    assert all(top == () for _, top in asked["logprobs"])
    assert asked["counters"]["rows"] == plain["counters"]["rows"]


def test_a_greedy_text_without_penalties_reads_the_head_no_more_often(core: Any) -> None:
    """The pass that picked the tokens serves for their log-probabilities."""
    read = [run(core, logprobs=n)[0]["counters"]["bytes_read"] for n in (-1, 0, 20)]
    assert read[0] == read[1] == read[2]
    drawn = [run(core, logprobs=n, **NOISE)[0]["counters"]["bytes_read"] for n in (-1, 0)]
    assert drawn[0] < drawn[1]


def test_what_is_out_of_range_is_refused(core: Any) -> None:
    for count in (-2, 21):
        with pytest.raises(ArgumentError, match="logprobs"):
            run(core, logprobs=count)


def test_the_text_ends_and_so_do_they(core: Any) -> None:
    free = run(core)[0]
    stop = free["ids"][20]
    ended = run(core, stop_ids=[stop])[0]
    at = free["ids"].index(stop)
    assert len(ended["logprobs"]) == len(ended["ids"]) == at
    assert ended["logprobs"] == free["logprobs"][:at]
