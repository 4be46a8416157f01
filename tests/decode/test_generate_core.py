"""The decoding loops of the core: events, counters, ends, cancellation, errors."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_core import MASK, VALID, TinyFile, committed, same, tokens, write_tiny

from clover_edge.errors import ArgumentError, ContextLengthError

PROMPT = tokens(13, 1)
Event = dict[str, Any]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> TinyFile:
    return write_tiny(tmp_path_factory.mktemp("core") / "weights.bin")


@pytest.fixture(scope="module")
def core(file: TinyFile) -> Any:
    return file.open()


def run(core: Any, state: Any = None, **options: Any) -> tuple[Event, list[Event], Any]:
    """(result, events, state) of a generation."""
    state = state or core.new_state(200)
    events: list[Event] = []
    options = {"max_new_tokens": 40, "threshold": 0.3, **options}
    result = core.generate(state, PROMPT, options, lambda event: events.append(event) or True)
    return result, events, state


def text(events: list[Event]) -> list[int]:
    return [token for event in events if event["type"] == "block" for token in event["ids"]]


def greedy(logits: np.ndarray) -> int:
    real = logits.copy()
    real[[MASK, *range(VALID, len(real))]] = -np.inf
    return int(real.argmax())


def test_autoregressive_is_greedy_over_the_commits(core: Any) -> None:
    result, events, state = run(core, mode="ar")
    other = core.new_state(200)
    logits = core.commit(other, PROMPT)[0]
    for token in result["ids"]:
        assert token == greedy(logits)
        logits = core.commit(other, [token])[0]
    same(state.arrays(), other.arrays())
    assert len(set(result["ids"])) > 5
    steps = [event for event in events if event["type"] == "step"]
    assert [event["ids"] for event in steps] == [[token] for token in result["ids"]]
    assert all(event["draft"] == event["ids"] and event["accepted"] == [True] for event in steps)
    counters = result["counters"]
    assert (counters["denoise_steps"], counters["commits"], counters["rows"]) == (0, 40, 40)


def test_events_tell_the_whole_story(core: Any) -> None:
    """Replayed from raw previews: every draft, every acceptance, every block."""
    result, events, state = run(core)
    assert events[0] == {"type": "prefill", "tokens": 13}
    replay = committed(core, PROMPT)
    block = [MASK] * 16
    for event in events[1:]:
        if event["type"] == "block":
            assert event["ids"] == (block if event["finish"] is None else block[:8])
            core.commit(replay, event["ids"], logits="none")
            block = [MASK] * 16
            continue
        logits = core.preview(replay, block)
        for i, token in enumerate(block):
            assert event["draft"][i] == (greedy(logits[i]) if token == MASK else token)
            if event["accepted"][i]:
                assert token == MASK
                block[i] = event["draft"][i]
        assert event["ids"] == block
    assert [event["block"] for event in events if event["type"] == "block"] == [0, 1, 2]
    assert text(events) == result["ids"]
    assert (result["finish_reason"], result["stop_id"]) == ("length", None)
    same(state.arrays(), replay.arrays())


def test_counters(core: Any) -> None:
    result, events, _ = run(core, fused_commit=False)
    counters = result["counters"]
    steps = sum(event["type"] == "step" for event in events)
    assert counters["blocks"] == counters["commits"] == 3
    assert counters["denoise_steps"] == steps
    assert counters["forward_passes"] == steps + 3
    assert counters["prefill_passes"] == 1
    assert counters["rows"] == 16 * steps + 16 + 16 + 8
    assert 3 * 2 * (steps + 3) <= counters["experts_touched"] <= 3 * 8 * (steps + 3)
    tight = run(core, coreset=3, fused_commit=False)[0]["counters"]
    previews = tight["denoise_steps"]
    assert tight["experts_touched"] <= 3 * (3 * previews + 8 * tight["commits"])
    assert 0 < tight["bytes_read"] < (previews + tight["commits"]) * core.weight_bytes
    for name in ("prefill_seconds", "first_block_seconds", "decode_seconds"):
        assert counters[name] > 0
    long = core.generate(core.new_state(400), tokens(300), {"max_new_tokens": 0})
    assert (long["ids"], long["finish_reason"]) == ([], "length")
    assert long["counters"]["prefill_passes"] == 3
    assert long["counters"]["forward_passes"] == long["counters"]["rows"] == 0


def test_sampling_repeats_and_differs_by_seed(core: Any) -> None:
    texts = [run(core, temperature=1.5, seed=seed)[0]["ids"] for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]
    assert all(token < VALID and token != MASK for text in texts for token in text)


def test_the_mask_and_padding_are_never_emitted(tmp_path: Path) -> None:
    """Also where the head likes nothing better."""
    file = write_tiny(tmp_path / "weights.bin")
    head = np.zeros((160, 48), dtype=np.float32)
    head[[MASK, VALID, 159]] = np.random.default_rng(0).normal(0, 9, (3, 48))
    head[:100] = np.random.default_rng(1).normal(0, 0.1, (100, 48))
    file.write("head", head)
    core = file.open()
    for options in ({}, {"mode": "ar"}, {"temperature": 3.0}, {"presence_penalty": 1.0}):
        ids = run(core, **options)[0]["ids"]
        assert len(ids) == 40 and MASK not in ids and max(ids) < VALID


def test_a_stop_token_ends_the_text(core: Any) -> None:
    free = run(core)[0]["ids"]
    stop = free[20]
    first = free.index(stop)
    for commit_last in (True, False):
        result, events, state = run(core, stop_ids=[MASK - 1, stop], commit_last=commit_last)
        assert result["ids"] == free[:first]
        assert (result["finish_reason"], result["stop_id"]) == ("stop", stop)
        assert events[-1]["finish"] == "stop"
        assert events[-1]["ids"] == free[first // 16 * 16 : first]
        kept = first + 1 if commit_last else first // 16 * 16
        assert state.position == 13 + kept
        same(state.arrays(), committed(core, PROMPT, free[:kept]).arrays())


def test_what_nobody_reads_is_not_denoised(core: Any) -> None:
    """One token at a time, most probable first: the block is over when its text is."""
    saved = 0
    for seed in range(3):
        committed_prompt = committed(core, tokens(5, seed))

        def decode(budget: int, state: Any = committed_prompt) -> tuple[Event, list[Event]]:
            events: list[Event] = []
            options = {"threshold": 1.0, "max_new_tokens": budget}
            result = core.generate(state.snapshot(), [1], options, events.append)
            return result, [event for event in events if event["type"] == "step"]

        full, steps = decode(16)
        order = [event["accepted"].index(True) for event in steps]
        assert sorted(order) == list(range(16))
        for budget in (1, 2, 3, 5, 9):
            result, steps = decode(budget)
            assert result["ids"] == full["ids"][:budget]
            assert len(steps) == 1 + max(order.index(i) for i in range(budget))
            saved += 16 - len(steps)
    assert saved


def test_a_budget_of_whole_blocks_fits_exactly(core: Any) -> None:
    state = core.new_state(13 + 32)
    result = core.generate(state, PROMPT, {"max_new_tokens": 32, "threshold": 0.0})
    assert len(result["ids"]) == 32
    assert state.position == state.capacity


def test_a_conversation_goes_on_in_the_same_state(core: Any) -> None:
    first, _, state = run(core, max_new_tokens=16)
    second = core.generate(state, [5, 6], {"max_new_tokens": 16, "threshold": 0.3})
    fresh = core.generate(
        core.new_state(200),
        [*PROMPT, *first["ids"], 5, 6],
        {"max_new_tokens": 16, "threshold": 0.3},
    )
    assert second["ids"] == fresh["ids"]
    going_on = core.generate(state, [], {"max_new_tokens": 1, "mode": "ar"})
    assert len(going_on["ids"]) == 1


@pytest.mark.parametrize("mode", ["diffusion", "ar"])
@pytest.mark.parametrize("at", range(9))
def test_cancelling_at_any_event(core: Any, mode: str, at: int) -> None:
    """What was reported as final is returned and, in the state, committed."""
    events: list[Event] = []

    def listen(event: Event) -> bool:
        events.append(event)
        return len(events) <= at

    state = core.new_state(200)
    options = {"max_new_tokens": 40, "threshold": 0.3, "mode": mode}
    result = core.generate(state, PROMPT, options, listen)
    assert len(events) == at + 1
    assert result["finish_reason"] == "cancelled"
    assert result["ids"] == text(events)
    assert state.position == 13 + len(result["ids"])
    same(state.arrays(), committed(core, PROMPT + result["ids"]).arrays())


def test_cancelling_a_finished_text_changes_nothing(core: Any) -> None:
    options = {"max_new_tokens": 16, "threshold": 0.3}
    listen = lambda event: event["type"] != "block"  # noqa: E731
    assert core.generate(core.new_state(64), PROMPT, options, listen)["finish_reason"] == "length"


def test_a_callback_that_raises(core: Any) -> None:
    class Halt(Exception):
        pass

    def listen(event: Event) -> bool:
        if event["type"] == "block":
            raise Halt
        return True

    state = core.new_state(200)
    with pytest.raises(Halt):
        core.generate(state, PROMPT, {"threshold": 0.3, "max_new_tokens": 16}, listen)
    assert state.position == 13
    assert run(core)[0]["ids"]


def test_a_callback_that_calls_the_model(core: Any) -> None:
    state, other = core.new_state(64), core.new_state(64)

    def listen(event: Event) -> bool:
        core.commit(other, [1])
        return True

    with pytest.raises(ArgumentError, match="in use by the call that runs this callback"):
        core.generate(state, PROMPT, {"max_new_tokens": 16}, listen)
    core.commit(other, [1])


def test_another_thread_waits_and_the_interpreter_runs_on(core: Any) -> None:
    """A second caller waits for the first one's end while its callbacks still get through."""
    want = run(core)[0]["ids"]
    inside = threading.Event()
    found: list[list[int]] = []
    thread = threading.Thread(target=lambda: (inside.wait(), found.append(run(core)[0]["ids"])))
    thread.start()

    def listen(event: Event) -> bool:
        inside.set()
        return True

    options = {"max_new_tokens": 40, "threshold": 0.3}
    assert core.generate(core.new_state(200), PROMPT, options, listen)["ids"] == want
    thread.join()
    assert found == [want]


INTERRUPT = """
import sys, threading, signal, os, time
sys.path.insert(0, {tests!r})
# a job in the background inherits "ignore"
signal.signal(signal.SIGINT, signal.default_int_handler)
from pathlib import Path
from tiny_core import write_tiny, tokens
core = write_tiny(Path({path!r})).open()
state, ids = core.new_state(1 << 20), tokens(500_000)
def press():
    while state.position == 0:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=press).start()
try:
    {call}
except KeyboardInterrupt:
    print("interrupted", state.position)
"""


@pytest.mark.parametrize(
    "call",
    [
        "core.generate(state, [1], {'max_new_tokens': 500_000, 'threshold': 1.0})",
        "core.generate(state, [1], {'max_new_tokens': 500_000, 'mode': 'ar'})",
        "core.commit(state, ids, logits='none')",
    ],
)
def test_ctrl_c(tmp_path: Path, call: str) -> None:
    script = INTERRUPT.format(
        tests=str(Path(__file__).parents[1]), path=str(tmp_path / "w.bin"), call=call
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("interrupted"), done.stdout
    assert 0 < int(done.stdout.split()[1]) < 500_000


OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"mode": "both"}, "mode"),
    ({"max_new_tokens": -1}, "max_new_tokens"),
    ({"max_new_tokens": 1.5}, "max_new_tokens"),
    ({"max_new_tokens": True}, "max_new_tokens"),
    ({"block_length": 0}, "block_length"),
    ({"block_length": 1025}, "block_length"),
    ({"threshold": -0.1}, "threshold"),
    ({"threshold": float("nan")}, "threshold"),
    ({"threshold": "x"}, "threshold"),
    ({"steps": -1}, "steps"),
    ({"temperature": -1}, "temperature"),
    ({"temperature": float("inf")}, "temperature"),
    ({"top_k": -1}, "top_k"),
    ({"top_k": 2**31}, "top_k"),
    ({"top_p": 1.1}, "top_p"),
    ({"seed": 2**64}, "seed"),
    ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"presence_penalty": float("nan")}, "presence_penalty"),
    ({"stop_ids": [160]}, "stop id 160"),
    ({"stop_ids": 3}, "stop_ids"),
    ({"stop_ids": ["x"]}, "stop_ids"),
    ({"coreset": 1}, "coreset 1"),
    ({"coreset": -1}, "coreset"),
    ({"commit_last": 1}, "commit_last"),
    ({"credit": -1}, "credit"),
    ({"credit": 0.7, "temperature": 1.0}, "credit is not supported together with temperature"),
    ({"skip_rows": 1}, "skip_rows"),
    ({"skip_rows": True, "edit_threshold": 0.9}, "skip_rows is not supported together"),
    ({"refresh": -1}, "refresh"),
    ({"blocklength": 3}, "blocklength"),
]


@pytest.mark.parametrize(("options", "message"), OPTIONS)
def test_options_out_of_their_domain(core: Any, options: dict[str, Any], message: str) -> None:
    state = core.new_state(400)
    with pytest.raises(ArgumentError, match=message):
        core.generate(state, PROMPT, {"max_new_tokens": 8, **options})
    assert state.position == 0


def test_prompts_that_are_refused(core: Any) -> None:
    with pytest.raises(ArgumentError, match="mask"):
        core.generate(core.new_state(64), [1, MASK], {"max_new_tokens": 1})
    with pytest.raises(ArgumentError, match="needs a prompt"):
        core.generate(core.new_state(64), [], {"max_new_tokens": 1, "mode": "ar"})
    assert core.generate(core.new_state(64), [], {"max_new_tokens": 4})["ids"]
    state = core.new_state(20)
    with pytest.raises(ContextLengthError, match=r"13 prompt tokens and max_new_tokens 8 .* 20"):
        core.generate(state, PROMPT, {"max_new_tokens": 8})
    assert state.position == 0
