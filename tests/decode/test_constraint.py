"""Decoding under a constraint that is no grammar: a table of what may follow what."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tiny_core import MASK, VALID, V, committed, same, tokens, write_tiny
from tiny_rule import STOP, Rule

from clover_edge.errors import ArgumentError, CloverError

PROMPT = tokens(13, 1)


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return write_tiny(tmp_path_factory.mktemp("core") / "weights.bin").open()


def anything() -> Rule:
    return Rule(lambda text: range(VALID))


def turns(text: list[int]) -> range:
    """Three classes of tokens, in turns; a text may end behind the third."""
    kind = len(text) % 3
    ends = [STOP] if kind == 0 and text else []
    return [*range(40 * kind, 40 * kind + 40), *ends]


def run(core: Any, rule: Any, **options: Any) -> tuple[dict[str, Any], list[dict[str, Any]], Any]:
    events: list[dict[str, Any]] = []
    state = core.new_state(300)
    asked = {"max_new_tokens": 40, "threshold": 0.3, "stop_ids": [STOP], **options}
    result = core.generate(
        state, PROMPT, asked, lambda e: events.append(e) or True, constraint=rule
    )
    return result, events, state


MODES = ("ar", "speculative", "diffusion")
WAYS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampled": {"temperature": 1.3, "seed": 2},
    "top-k": {"temperature": 1.0, "top_k": 7, "seed": 3},
    "top-p": {"temperature": 1.0, "top_p": 0.7, "seed": 4},
    "penalties": {"frequency_penalty": 0.6, "repetition_penalty": 1.2},
    "narrow": {"block_length": 3},
    "skip rows": {"skip_rows": True, "refresh": 2},
    "sub-blocks": {"sub_block": 4},
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("way", WAYS)
def test_every_token_is_allowed(core: Any, mode: str, way: str) -> None:
    rule = Rule(turns)
    result, events, _ = run(core, rule, mode=mode, **WAYS[way])
    text = result["ids"]
    for i, token in enumerate(text):
        assert token in turns(text[:i])
    stopped = result["finish_reason"] == "stop"
    assert rule.text[: len(text)] == text
    if stopped:
        assert len(text) % 3 == 0 and rule.text == [*text, STOP]
    else:
        assert len(text) == 40
    assert set(rule.rooms) == {40}
    blocks = [event["ids"] for event in events if event["type"] == "block"]
    assert [token for block in blocks for token in block] == text


@pytest.mark.parametrize("way", [*WAYS][:5])
@pytest.mark.parametrize("mode", ["ar", "speculative"])
def test_what_allows_everything_changes_nothing(core: Any, mode: str, way: str) -> None:
    want, _, plain = run(core, None, mode="ar", **WAYS[way])
    found, _, state = run(core, anything(), mode=mode, **WAYS[way])
    assert found["ids"] == want["ids"]
    same(state.arrays(), plain.arrays())


def test_greedy_picks_are_the_best_allowed(core: Any) -> None:
    result = run(core, Rule(turns), mode="ar")[0]
    state = core.new_state(300)
    logits = core.commit(state, PROMPT)[0]
    for i, token in enumerate(result["ids"]):
        real = np.full(V, -np.inf)
        allowed = turns(result["ids"][:i])
        real[allowed] = logits[allowed]
        assert token == int(real.argmax())
        logits = core.commit(state, [token])[0]


def test_draws_follow_the_distribution_among_allowed_tokens(core: Any) -> None:
    """The first token, drawn often, against the softmax over what is allowed."""
    allowed = [3, 17, 44, 90, 120, 121]
    logits = core.commit(core.new_state(300), PROMPT)[0].astype(np.float64)
    want = np.exp(logits[allowed] - logits[allowed].max())
    want /= want.sum()
    count = np.zeros(len(allowed))
    for seed in range(600):
        options = {"mode": "ar", "max_new_tokens": 1, "temperature": 1.0, "seed": seed}
        token = run(core, Rule(lambda text: allowed), **options)[0]["ids"][0]
        count[allowed.index(token)] += 1
    assert np.abs(count / 600 - want).max() < 4 * (0.25 / 600) ** 0.5


@pytest.mark.parametrize("mode", MODES)
def test_forced_tokens_cost_no_forward(core: Any, mode: str) -> None:
    """Of every eight tokens one is free; and a text that is all forced takes no step."""

    def must(text: list[int]) -> list[int]:
        return [(7 * i) % 100 for i in range(len(text), (len(text) + 7) // 8 * 8)]

    rule = Rule(lambda text: range(100), must)
    result = run(core, rule, mode=mode)[0]
    assert all(token == (7 * i) % 100 for i, token in enumerate(result["ids"]) if i % 8)
    assert rule.picked == [0, 8, 16, 24, 32]
    most = {"ar": 5, "speculative": 15, "diffusion": 8}
    assert result["counters"]["forward_passes"] <= most[mode]
    fixed = [*tokens(39, 3), STOP]
    result = run(core, Rule(lambda text: [], lambda text: fixed[len(text) :]), mode=mode)[0]
    assert (result["ids"], result["stop_id"]) == (fixed[:-1], STOP)
    assert result["counters"]["denoise_steps"] == 0


@pytest.mark.parametrize("mode", MODES)
def test_a_single_allowed_token_needs_no_pick(core: Any, mode: str) -> None:
    want = [*tokens(20, 4), STOP]
    result = run(core, Rule(lambda text: [want[len(text)]]), mode=mode)[0]
    assert (result["ids"], result["finish_reason"]) == (want[:-1], "stop")
    if mode == "diffusion":  # the others make a pass for every token that no rule has forced
        assert result["counters"]["denoise_steps"] == 0


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("budget", [1, 2, 5, 6, 16, 17, 33])
def test_room_is_kept_for_the_end(core: Any, mode: str, budget: int) -> None:
    """A text needs two tokens and a stop token behind whatever else it has: 7, 8, STOP."""

    def must(text: list[int]) -> list[int]:
        if text and text[-1] in (7, 8):
            return [8, STOP] if text[-1] == 7 else [STOP]
        return [7, 8, STOP] if len(text) >= budget - 3 and budget >= 3 else []

    rule = Rule(lambda text: range(10, 100), must, lambda text, room: room >= 3 or budget < 3)
    result = run(core, rule, mode=mode, max_new_tokens=budget)[0]
    if budget < 3:
        assert (result["finish_reason"], len(result["ids"])) == ("length", budget)
        return
    assert (result["finish_reason"], result["ids"][-2:]) == ("stop", [7, 8])
    assert len(result["ids"]) == budget - 1


@pytest.mark.parametrize("mode", MODES)
def test_a_refused_token_gives_way_to_what_is_forced(core: Any, mode: str) -> None:
    refused = []

    def takes(text: list[int], room: int) -> bool:
        if len(text) == 6:
            refused.append(text[-1])
        return len(text) != 6

    def must(text: list[int]) -> list[int]:
        return [101, STOP][len(text) - 5 :] if refused else []

    result = run(core, Rule(lambda text: range(100), must, takes), mode=mode)[0]
    assert len(refused) == 1
    assert (len(result["ids"]), result["ids"][-1], result["stop_id"]) == (6, 101, STOP)


def test_drafts_behind_the_front_are_checked_and_dropped(core: Any) -> None:
    """Step events: what stands stays, a draft may go, and nothing stands that is not allowed."""
    result, events, _ = run(core, Rule(turns), threshold=0.05)
    kept: list[int] = []
    drafted = 0
    for event in events[1:]:
        if event["type"] == "block":
            kept = []
            continue
        ids = event["ids"]
        front = ids.index(MASK) if MASK in ids else len(ids)
        assert ids[front:] == [MASK] * (len(ids) - front) and ids[: len(kept)] == kept
        assert front > len(kept), "a step accepts one token at least"
        assert event["accepted"] == [len(kept) <= i < front for i in range(len(ids))]
        assert event["draft"][:front] == ids[:front] and MASK not in event["draft"]
        drafted += len(ids) - front
        kept = ids[:front]
    assert drafted > 0 and len(result["ids"]) > 20


def test_sure_steps_accept_several(core: Any) -> None:
    """Where the model's own text is allowed, the threshold decides how many a step accepts."""
    slow = run(core, anything(), threshold=1.0)[0]["counters"]
    fast = run(core, anything(), threshold=0.05)[0]["counters"]
    assert slow["denoise_steps"] == 40 > 2 * fast["denoise_steps"]


@pytest.mark.parametrize("mode", MODES)
def test_logprobs_are_those_of_the_raw_logits(core: Any, mode: str) -> None:
    result = run(core, Rule(turns), mode=mode, logprobs=2)[0]
    assert len(result["logprobs"]) == len(result["ids"])
    assert all(value is not None and value < 0 for value, _ in result["logprobs"])
    assert run(core, Rule(turns), mode=mode)[0]["ids"] == result["ids"]
    if mode == "diffusion":
        return
    state = committed(core, PROMPT[:-1])
    rows = core.commit(state, [PROMPT[-1], *result["ids"]], logits="all").astype(np.float64)
    rows[:, [MASK, *range(VALID, V)]] = -np.inf
    rows -= np.log(np.exp(rows).sum(-1, keepdims=True))
    for i, (token, (value, _)) in enumerate(zip(result["ids"], result["logprobs"], strict=True)):
        np.testing.assert_allclose(value, rows[i, token], rtol=1e-3, atol=1e-3)


def test_logprobs_of_forced_tokens(core: Any) -> None:
    """In mode ar from the pass that commits them; a block that no step has seen has none."""

    def must(text: list[int]) -> list[int]:
        return [(7 * i) % 100 for i in range(len(text), (len(text) + 7) // 8 * 8)]

    causal = run(core, Rule(lambda text: range(100), must), mode="ar", logprobs=0)[0]
    state = committed(core, PROMPT[:-1])
    rows = core.commit(state, [PROMPT[-1], *causal["ids"]], logits="all").astype(np.float64)
    rows[:, [MASK, *range(VALID, V)]] = -np.inf
    rows -= np.log(np.exp(rows).sum(-1, keepdims=True))
    values = [value for value, _ in causal["logprobs"]]
    want = [rows[i, token] for i, token in enumerate(causal["ids"])]
    np.testing.assert_allclose(values, want, rtol=1e-3, atol=1e-3)
    fixed = tokens(40, 3)
    forced = run(core, Rule(lambda text: [], lambda text: fixed[len(text) :]), logprobs=0)[0]
    assert forced["logprobs"] == [(None, ())] * 40


def test_a_cancelled_text_is_a_prefix(core: Any) -> None:
    rule, seen = Rule(turns), []
    result = core.generate(
        core.new_state(300),
        PROMPT,
        {"max_new_tokens": 40, "stop_ids": [STOP], "block_length": 4},
        lambda event: seen.append(event) or len(seen) < 9,
        constraint=rule,
    )
    assert result["finish_reason"] == "cancelled"
    assert rule.text[: len(result["ids"])] == result["ids"]


@pytest.mark.parametrize("method", ["force", "allowed", "advance"])
def test_an_error_of_the_rule_ends_the_generation(core: Any, method: str) -> None:
    rule = Rule(turns)

    def fail(*_: Any) -> None:
        raise KeyError(method)

    setattr(rule, method, fail)
    for mode in MODES:
        with pytest.raises(KeyError, match=method):
            run(core, rule, mode=mode)
    assert run(core, None)[0]["ids"], "the model is free again"


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (Rule(lambda text: []), "allows no token"),
        (Rule(turns, lambda text: [V]), "is no token"),
        (Rule(turns, lambda text: [MASK]), "is no token"),
        (Rule(turns, takes=lambda text, room: False), "refuses a token and forces none"),
    ],
)
@pytest.mark.parametrize("mode", MODES)
def test_what_makes_no_sense_is_an_error(core: Any, rule: Rule, message: str, mode: str) -> None:
    rule.text.clear()
    with pytest.raises(CloverError, match=message):
        run(core, rule, mode=mode)


def test_what_is_refused(core: Any) -> None:
    for options in (
        {"steps": 4},
        {"fixed_schedule": True},
        {"strategy": "sequential"},
        {"factor": 1.0},
        {"credit": 0.7},
        {"edit_threshold": 0.9},
    ):
        with pytest.raises(ArgumentError, match="constraint"):
            run(core, Rule(turns), **options)
    with pytest.raises(ArgumentError, match="stop token"):
        run(core, Rule(turns), stop_ids=[])
    small = Rule(turns)
    small.bits = small.bits[:-1].copy()
    with pytest.raises(ArgumentError, match='"bits" is no contiguous array of 5 32-bit words'):
        run(core, small)
    with pytest.raises(ArgumentError, match='no "force"'):
        run(core, object())
