"""Self-speculation writes what autoregressive decoding writes, in fewer passes or more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tiny_core import MASK, VALID, committed, same, tokens, write_tiny

from clover_edge.errors import ArgumentError, UnsupportedModelError

PROMPT = tokens(13, 1)
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return write_tiny(tmp_path_factory.mktemp("core") / "weights.bin").open()


def run(core: Any, mode: str, **options: Any) -> tuple[dict[str, Any], list[Any], Any]:
    state, events = core.new_state(300), list[Any]()
    asked = {"max_new_tokens": 40, "mode": mode, **options}
    result = core.generate(state, PROMPT, asked, lambda event: events.append(event) or True)
    return result, events, state


CASES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "one token": {"max_new_tokens": 1},
    "narrow": {"block_length": 3},
    "one wide": {"block_length": 1},
    "coreset": {"coreset": 3},
    "sampled": {"temperature": 1.0, "seed": 3},
    "sampled cold": {"temperature": 0.2, "seed": 4},
    "top-k": {"temperature": 1.5, "top_k": 5, "seed": 1},
    "top-p": {"temperature": 1.5, "top_p": 0.8, "seed": 2},
    "penalties": {"frequency_penalty": 0.5, "presence_penalty": 0.3},
    "repetition, sampled": {"repetition_penalty": 1.3, "temperature": 0.7, "seed": 9},
}


@pytest.mark.parametrize("name", CASES)
def test_the_autoregressive_text(core: Any, name: str) -> None:
    want, _, plain = run(core, "ar", **CASES[name])
    found, events, state = run(core, "speculative", **CASES[name])
    assert (found["ids"], found["finish_reason"]) == (want["ids"], want["finish_reason"])
    same(state.arrays(), plain.arrays())
    blocks = [event for event in events if event["type"] == "block"]
    assert [token for block in blocks for token in block["ids"]] == found["ids"]
    assert found["counters"]["blocks"] == found["counters"]["commits"] == len(blocks)


@pytest.mark.parametrize("at", [0, 7, 20])
def test_a_stop_token(core: Any, at: int) -> None:
    text = run(core, "ar")[0]["ids"]
    stop = text[at]
    want, _, plain = run(core, "ar", stop_ids=[stop])
    found, _, state = run(core, "speculative", stop_ids=[stop])
    assert (found["ids"], found["stop_id"]) == (want["ids"], stop)
    same(state.arrays(), plain.arrays())


def test_every_draft_is_a_preview(core: Any) -> None:
    """Behind the token that the last row decided, the most probable ones of one preview; of
    them the longest prefix that the causal rows agree with is taken."""
    _, events, _ = run(core, "speculative", block_length=6)
    state = committed(core, PROMPT)
    for event in (event for event in events if event["type"] == "step"):
        draft = event["draft"]
        if len(draft) > 1:
            logits = core.preview(state, [draft[0], *[MASK] * (len(draft) - 1)])
            logits[:, [MASK, *range(VALID, logits.shape[1])]] = -np.inf
            assert draft[1:] == logits[1:].argmax(axis=1).tolist()
        kept = sum(event["accepted"])
        assert event["accepted"] == [i < kept for i in range(len(draft))]
        assert event["ids"] == [*draft[:kept], *[MASK] * (len(draft) - kept)]
        causal = core.commit(state.snapshot(), draft, logits="all")
        causal[:, [MASK, *range(VALID, causal.shape[1])]] = -np.inf
        agrees = [
            row == token for row, token in zip(causal.argmax(axis=1), draft[1:], strict=False)
        ]
        assert kept == 1 + (agrees.index(False) if False in agrees else len(agrees))
        core.commit(state, draft[:kept])


def test_drafts_that_agree_save_passes(tiny: Open, pack: Open, open_core: Open) -> None:
    """Where all rows agree, as a model that always writes the same token does, a round is a
    whole block."""
    source = tiny(seed=1, layers=3, scale={"lm_head.weight": 0.0})
    core = open_core(pack(source, "f32"))
    state = core.new_state(300)
    asked = {"max_new_tokens": 64, "mode": "speculative", "block_length": 16}
    counters = core.generate(state, PROMPT, asked)["counters"]
    assert (counters["commits"], counters["denoise_steps"]) == (4, 4)


def test_a_listener_that_cancels(core: Any) -> None:
    state = core.new_state(300)
    result = core.generate(
        state,
        PROMPT,
        {"max_new_tokens": 40, "mode": "speculative", "block_length": 4},
        lambda event: not (event["type"] == "block" and event["block"] == 2),
    )
    assert result["finish_reason"] == "cancelled"
    same(state.arrays(), committed(core, [*PROMPT, *result["ids"]]).arrays())


def test_models_and_widths_that_cannot(
    core: Any, tiny_blocks: Open, pack: Open, open_core: Open
) -> None:
    with pytest.raises(ArgumentError, match="block_length"):
        run(core, "speculative", block_length=129)
    with pytest.raises(ArgumentError, match="needs a prompt"):
        core.generate(core.new_state(64), [], {"max_new_tokens": 1, "mode": "speculative"})
    blocks = open_core(pack(tiny_blocks("sdar", seed=3), "f32"))
    with pytest.raises(UnsupportedModelError, match="cannot decode autoregressively"):
        blocks.generate(blocks.new_state(64), PROMPT, {"mode": "speculative"})
