"""Long prompts: read pass by pass, so that whoever waits no more can say so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import clover_edge
from clover_edge import PrefillEvent

PROMPT = [5 + i * 7 % 80 for i in range(300)]  # three passes


@pytest.fixture(scope="module")
def folder(tiny: Callable[..., Any], pack: Callable[..., Path]) -> Path:
    return pack(tiny(seed=21, overrides={"max_position_embeddings": 512}), "int4")


def test_the_pieces_make_the_same_state(folder: Path, open_core: Callable[..., Any]) -> None:
    core = open_core(folder)
    whole, pieces = core.new_state(400), core.new_state(400)
    told: list[int] = []

    def listen(event: dict[str, Any]) -> bool:
        if event["type"] == "prefill":
            told.append(event["tokens"])
        return True

    options = {"max_new_tokens": 8, "commit_last": True}
    first = core.generate(whole, PROMPT, options)
    second = core.generate(pieces, PROMPT, options, listen)
    assert told == [128, 256, 300]
    assert first["ids"] == second["ids"]
    assert first["counters"]["prefill_passes"] == second["counters"]["prefill_passes"] == 3
    one, two = whole.arrays(), pieces.arrays()
    assert all(one[name].tobytes() == two[name].tobytes() for name in one)


def test_cancelled_between_passes(folder: Path, open_core: Callable[..., Any]) -> None:
    core = open_core(folder)
    state = core.new_state(400)
    found = core.generate(state, PROMPT, {"max_new_tokens": 8}, lambda event: False)
    assert (found["ids"], found["finish_reason"]) == ([], "cancelled")
    assert state.position == 128
    assert found["counters"]["denoise_steps"] == 0


def test_streams_tell_how_far_it_is(folder: Path) -> None:
    with clover_edge.load(folder, threads=1) as model:
        events = [e for e in model.stream(PROMPT, max_new_tokens=8) if isinstance(e, PrefillEvent)]
        assert events == [PrefillEvent(128, 300), PrefillEvent(256, 300)]
        session = model.session()
        session.generate(PROMPT[:150], max_new_tokens=8)
        longer = [*session.tokens, *PROMPT]
        kept = session.reach(longer)
        told = [e for e in session.stream(longer, max_new_tokens=8) if isinstance(e, PrefillEvent)]
        assert told[0] == PrefillEvent(kept + 128, len(longer))
        cut = session.stream(PROMPT, max_new_tokens=8)
        assert any(isinstance(event, PrefillEvent) for event in cut)
        cut.close()
        again = session.generate(PROMPT, max_new_tokens=8)
        assert again.token_ids == model.generate(PROMPT, max_new_tokens=8).token_ids
