"""Passes that somebody else computes: the state, the loops and the head's statistics are the core's
own, and a core behind the interface gives the same numbers and the same text as that core alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_full_attention as full
from delegate import Delegate
from tiny_core import MASK, SPEC, TinyFile, same, tokens, write_tiny
from tiny_rule import Rule

from clover_edge import _core
from clover_edge.errors import ArgumentError, CloverError, UnsupportedModelError

PROMPT, BLOCK = tokens(13, 1), [*tokens(9, 2), *[MASK] * 7]
Open = Callable[..., Any]
SAMPLED: dict[str, Any] = {"temperature": 0.8, "seed": 4}
OPTIONS: list[dict[str, Any]] = [
    {},
    SAMPLED,
    {**SAMPLED, "top_k": 9, "top_p": 0.9, "logprobs": 3},
    {"presence_penalty": 0.7, "repetition_penalty": 1.3, "logprobs": 2},
    {"steps": 4, "strategy": "low_confidence_static"},
    {"entropy_bound": 2.0, "strategy": "entropy_bounded"},
    {"edit_threshold": 0.2},
    {"credit": 0.3},
    {"fused_commit": False},
]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> TinyFile:
    return write_tiny(tmp_path_factory.mktemp("core") / "weights.bin")


@pytest.fixture(scope="module")
def pair(file: TinyFile) -> tuple[Any, Any]:
    """(a core, one that asks its like)."""
    return file.open(), Delegate(file.open(), SPEC).open()


def text(core: Any, state: Any = None, prompt: list[int] = PROMPT, **options: Any) -> Any:
    """(result without times, events) of a generation."""
    events: list[dict[str, Any]] = []
    options = {"max_new_tokens": 40, "threshold": 0.3, **options}
    state = core.new_state(200) if state is None else state
    result = core.generate(state, prompt, options, lambda event: events.append(event) or True)
    steps = result.pop("counters")["denoise_steps"]
    return result, steps, events


def test_logits_and_states(pair: tuple[Any, Any]) -> None:
    """Long commits in chunks, previews of other widths, a commit in the pass of a preview."""
    core, other = pair
    a, b = core.new_state(300), other.new_state(300)
    for ids in (tokens(200, 7), PROMPT, PROMPT[:1]):
        assert np.array_equal(core.commit(a, ids, logits="all"), other.commit(b, ids, logits="all"))
        assert np.array_equal(core.preview(a, BLOCK), other.preview(b, BLOCK))
        assert np.array_equal(core.preview(a, BLOCK, [2, 9], 5), other.preview(b, BLOCK, [2, 9], 5))
        same(a.arrays(), b.arrays())
    rows = core.preview(a, BLOCK, commit=PROMPT), other.preview(b, BLOCK, commit=PROMPT)
    assert np.array_equal(*rows)
    same(a.arrays(), b.arrays())
    assert other.counters["rows"] == core.counters["rows"]
    assert (other.counters["bytes_read"], other.weight_bytes) == (0, 0)


@pytest.mark.parametrize("mode", ["diffusion", "ar"])
@pytest.mark.parametrize("options", OPTIONS)
def test_texts(pair: tuple[Any, Any], mode: str, options: dict[str, Any]) -> None:
    core, other = pair
    want, found = (text(one, mode=mode, **options) for one in (core, other))
    assert found == want
    assert len(set(want[0]["ids"])) > 5


def test_a_stop_token_and_a_second_turn(pair: tuple[Any, Any]) -> None:
    stop = text(pair[0])[0]["ids"][20]
    found = []
    for one in pair:
        state = one.new_state(200)
        first = text(one, state, stop_ids=[stop])
        found.append((first, text(one, state, prompt=PROMPT[:5]), state.position))
    assert found[0] == found[1]
    assert found[0][0][0]["finish_reason"] == "stop"


def test_a_constraint(pair: tuple[Any, Any]) -> None:
    results = []
    for one in pair:
        for mode in ("diffusion", "ar"):
            rule = Rule(lambda text: range(50 * (len(text) % 2), 50 * (len(text) % 2) + 50))
            state = one.new_state(200)
            asked = {"max_new_tokens": 30, "stop_ids": [rule.stop], "mode": mode, "threshold": 0.2}
            results.append(one.generate(state, PROMPT, asked, constraint=rule)["ids"])
            assert results[-1] == rule.text
    assert results[:2] == results[2:]


def test_marks_copies_and_saved_states(pair: tuple[Any, Any]) -> None:
    """Back to a mark and on, a fork, a snapshot, a state from its bytes: all go on alike."""
    found = []
    for one in pair:
        state = one.new_state(300)
        state.keep_marks(every=16, max_bytes=1 << 30)
        one.commit(state, tokens(40, 5))
        text(one, state, prompt=PROMPT)
        pieces: list[bytes] = []
        state.save(lambda piece, to=pieces: to.append(bytes(piece)))
        states = [one.load_state(b"".join(pieces), 300), state.snapshot(), state.fork(70)]
        at = state.rewind(60)
        found.append([(at, s.position, text(one, s, prompt=PROMPT[:4])) for s in [*states, state]])
    assert found[0] == found[1]
    assert found[0][0][0] > 0


@pytest.mark.parametrize("options", [{}, SAMPLED, {"skip": 3}])
@pytest.mark.parametrize("family", ["llada2", "sdar", "fast_dllm"])
def test_block_masks(
    tiny_blocks: Open, pack: Open, open_core: Open, family: str, options: dict[str, Any]
) -> None:
    """Prompts end within a block; blocks that a preview has computed whole take no commit."""
    core, other = both(open_core, pack(tiny_blocks(family, seed=3), "f32"))
    prompt = tokens(13, 1)[options.get("skip", 0) :]
    options = {name: value for name, value in options.items() if name != "skip"}
    results = []
    for one in (core, other):
        state = one.new_state(120)
        first = text(one, state, prompt, coreset=0, **options)
        results.append((first, text(one, state, prompt[:3], coreset=0), state.position))
    assert results[0] == results[1]
    a, b = core.new_state(120), other.new_state(120)
    for ids in (tokens(21, 3), tokens(6, 4)):
        assert np.array_equal(core.commit(a, ids, logits="all"), other.commit(b, ids, logits="all"))


@pytest.mark.parametrize("family", list(full.FAMILIES))
def test_full_attention(
    tiny_full_attention: Open, pack: Open, open_core: Open, family: str
) -> None:
    core, other = both(open_core, pack(tiny_full_attention(family, seed=3), "f32"))
    for options in ({}, {**SAMPLED, "confidence": "margin"}):
        results = [
            text(one, prompt=tokens(13, 1), block_length=8, max_new_tokens=24, **options)
            for one in (core, other)
        ]
        assert results[0] == results[1]
    with pytest.raises(UnsupportedModelError, match="cache"):
        text(other, block_length=8, cache="prefix")


def both(open_core: Open, folder: Path) -> tuple[Any, Any]:
    from clover_edge.loader import read_folder

    return open_core(folder), Delegate(open_core(folder), read_folder(folder).spec).open()


@pytest.mark.parametrize(
    ("named", "options"),
    [
        ("coreset 3", {"coreset": 3}),
        ("coreset_share", {"coreset_share": 0.5}),
        ("skip_rows", {"skip_rows": True}),
        ("mode speculative", {"mode": "speculative"}),
    ],
)
def test_refused_options(pair: tuple[Any, Any], named: str, options: dict[str, Any]) -> None:
    state = pair[1].new_state(100)
    with pytest.raises(UnsupportedModelError, match=named):
        pair[1].generate(state, PROMPT, options)
    assert state.position == 0


def test_refused_calls(file: TinyFile, pair: tuple[Any, Any]) -> None:
    other, state = pair[1], pair[1].new_state(100)
    with pytest.raises(UnsupportedModelError, match="rollback"):
        other.commit(state, PROMPT, rollback=True)
    with pytest.raises(UnsupportedModelError, match="coreset 3"):
        other.preview(state, BLOCK, coreset=3)
    with pytest.raises(UnsupportedModelError, match="observe"):
        other.observe(print)
    block = _core.Block()
    other.preview(state, BLOCK, block=block)
    with pytest.raises(UnsupportedModelError, match="rows left out"):
        other.preview(state, BLOCK, block=block, compute=[0])
    delegate = Delegate(file.open(), SPEC)
    with pytest.raises(UnsupportedModelError, match="kv"):
        delegate.open(kv="int8")
    with pytest.raises(ArgumentError, match="no tensors"):
        file.open(external=delegate)
    with pytest.raises(ArgumentError, match='external: has no "forward"'):
        _core.Model(SPEC, [], [], external=object())


def test_exceptions_pass_through(file: TinyFile) -> None:
    """A commit that fails half way leaves the state as an error of the core's own does."""
    delegate = Delegate(file.open(), SPEC)
    other, forward = delegate.open(), delegate.forward
    state = other.new_state(100)
    other.commit(state, PROMPT)
    before = state.snapshot()

    class Mine(Exception):
        pass

    def fail(*_: Any) -> Any:
        raise Mine("no device")

    broken = _Replaced(fail, delegate.head).open()
    with pytest.raises(Mine, match="no device"):
        broken.preview(broken.new_state(10), BLOCK)
    state = broken.new_state(300)
    with pytest.raises(Mine):
        broken.commit(state, PROMPT)
    with pytest.raises(CloverError, match="half way"):
        broken.commit(state, PROMPT)
    state.truncate(0)
    with pytest.raises(Mine):
        broken.generate(state, PROMPT)
    headless = _Replaced(forward, fail).open()
    state = headless.new_state(100)
    with pytest.raises(Mine):
        headless.commit(state, PROMPT)
    assert state.position == len(PROMPT)  # it is committed, its logits are not known
    same({k: v for k, v in before.arrays().items() if k != "logits"}, _held(state, delegate))


def _held(state: Any, delegate: Delegate) -> dict[str, np.ndarray]:
    """What a state holds whose head fails."""
    copies: dict[str, np.ndarray] = {}
    pieces: list[bytes] = []
    state.save(lambda piece: pieces.append(bytes(piece)))
    for name, values in delegate.open().load_state(b"".join(pieces), 100).arrays().items():
        if name != "logits":
            copies[name] = values
    return copies


class _Replaced:
    def __init__(self, forward: Any, head: Any) -> None:
        self.forward, self.head = forward, head

    def open(self) -> Any:
        return _core.Model(SPEC, [], [], external=self, threads=1)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda hidden, new: (hidden[:, 1:], new), "hidden is no contiguous"),
        (lambda hidden, new: (hidden.astype(np.float64), new), "float64"),
        (lambda hidden, new: hidden, "no pair"),
        (lambda hidden, new: (hidden, {**new, "kv.1.k": new["kv.1.k"][1:]}), "kv.1.k is no contig"),
        (lambda hidden, new: (hidden, {"kv.1.k": new["kv.1.k"]}), "returns no delta.0.S"),
        (lambda hidden, new: (hidden * np.inf, new), "not finite"),
    ],
)
def test_answers_that_do_not_fit(file: TinyFile, spoil: Any, said: str) -> None:
    delegate = Delegate(file.open(), SPEC)
    spoiled = _Replaced(lambda *call: spoil(*delegate.forward(*call)), delegate.head).open()
    with pytest.raises(CloverError, match=said):
        spoiled.commit(spoiled.new_state(100), PROMPT)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_logits_that_are_not_finite(file: TinyFile, value: float) -> None:
    delegate = Delegate(file.open(), SPEC)

    def head(hidden: np.ndarray) -> np.ndarray:
        logits = delegate.head(hidden)
        logits[-1, 7] = value
        return logits

    spoiled = _Replaced(delegate.forward, head).open()
    with pytest.raises(CloverError, match="a logit is not finite"):
        spoiled.commit(spoiled.new_state(100), PROMPT)
    with pytest.raises(CloverError, match="a logit is not finite"):
        spoiled.generate(spoiled.new_state(300), PROMPT)
