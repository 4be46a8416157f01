"""The core's decoding loops against the oracle's, with f32 weights: same ids, same counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from oracle.clover import Clover
from oracle.compare import state_error
from oracle.decode import Decoded, Options, generate

from clover_edge import _core

ISAS = _core.available_isas()
PROMPT = np.random.default_rng(8).integers(0, 250, 19).tolist()
# What separates a decision from its alternative; the core's float32 error is far below it.
MARGIN = 1e-4

CASES: dict[str, dict[str, Any]] = {
    "default threshold": {},
    "half": {"threshold": 0.5},
    "low": {"threshold": 0.15},
    "one at a time": {"threshold": 1.0, "max_new_tokens": 32},
    "all at once": {"threshold": 0.0},
    "width 1": {"block_length": 1, "max_new_tokens": 9},
    "width 5": {"block_length": 5, "max_new_tokens": 13},
    "width 17": {"block_length": 17},
    "step limit": {"threshold": 0.6, "steps": 4},
    "last block not committed": {"threshold": 0.5, "commit_last": False},
    "credit": {"threshold": 0.55, "credit": 0.7},
    "much credit": {"threshold": 0.9, "credit": 3.0, "block_length": 16},
    "credit and penalties": {"threshold": 0.5, "credit": 1.5, "presence_penalty": 0.5},
    "presence": {"presence_penalty": 1.5, "threshold": 0.5},
    "frequency": {"frequency_penalty": 0.7, "threshold": 0.5},
    "repetition": {"repetition_penalty": 1.4, "threshold": 0.5},
    "autoregressive": {"mode": "ar", "max_new_tokens": 30},
    "autoregressive, penalties": {
        "mode": "ar",
        "max_new_tokens": 30,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.2,
        "repetition_penalty": 1.1,
    },
}


@pytest.fixture(scope="module")
def source(tiny: Callable[..., Any]) -> Any:
    """Positions felt and sharp logits, so that the texts vary and thresholds matter."""
    rope = {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 1.0}
    kinds = ["full_attention", "linear_attention", "linear_attention"] * 2
    return tiny(
        seed=1,
        layers=5,
        overrides={"layer_types": kinds[:5], "rope_parameters": rope},
        scale={"lm_head.weight": 2.0, "o_proj.weight": 2.0},
    )


@pytest.fixture(scope="module")
def model(source: Any) -> Clover:
    return source.oracle()


def want(model: Clover, **case: Any) -> tuple[dict[str, Any], Decoded, Any]:
    """(the core's options, what the oracle decodes, the state behind it)."""
    options = {"mode": "diffusion", "max_new_tokens": 64, "block_length": 32, "threshold": 0.9}
    options.update(case)
    valid = options.pop("valid_vocab", model.config.mask_token_id + 1)  # the tokenizer's last token
    spec = Options(**{**options, "valid_vocab": valid})
    decoded, state = generate(model, model.start(), PROMPT, spec)
    assert decoded.margin > MARGIN, "a decision of this case is too close to call; change its seed"
    return {**options, "stop_ids": list(spec.stop_ids)}, decoded, state


def run(core: Any, options: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]], Any]:
    state = core.new_state(128)
    events: list[dict[str, Any]] = []
    result = core.generate(state, PROMPT, options, lambda event: events.append(event) or True)
    return result, events, state


@pytest.mark.parametrize("name", CASES)
def test_same_text(
    source: Any, model: Clover, pack: Callable[..., Any], open_core: Callable[..., Any], name: str
) -> None:
    options, decoded, end = want(model, **CASES[name])
    for isa in ISAS:
        core = open_core(pack(source, "f32"), isa=isa)
        result, events, state = run(core, {**options, "fused_commit": False})
        assert result["ids"] == decoded.ids, isa
        assert (result["finish_reason"], result["stop_id"]) == ("length", None)
        counters = result["counters"]
        assert counters["denoise_steps"] == decoded.previews
        assert counters["commits"] == decoded.commits
        assert counters["forward_passes"] == decoded.previews + decoded.commits
        assert state.position == end.position
        assert state_error(state.arrays(), end) < 1e-4
        steps = [event for event in events if event["type"] == "step"]
        if options["mode"] == "diffusion":
            taken = [np.flatnonzero(event["accepted"]).tolist() for event in steps]
            assert taken == decoded.accepted
        check_fused(core, options, result, events, state)


def check_fused(core: Any, options: dict[str, Any], *separate: Any) -> None:
    """A commit in the next preview's pass: the same events and the same state, bit for bit."""
    result, events, state = run(core, options)
    want, want_events, want_state = separate
    assert result["ids"] == want["ids"]
    assert events == want_events
    counters, before = result["counters"], want["counters"]
    assert (counters["denoise_steps"], counters["rows"]) == (
        before["denoise_steps"],
        before["rows"],
    )
    ends = options.get("commit_last", True) or options["mode"] == "ar"
    if options["mode"] == "diffusion":
        assert counters["commits"] == int(ends)
        assert counters["bytes_read"] < before["bytes_read"] or before["blocks"] == 1
    arrays, want_arrays = state.arrays(), want_state.arrays()
    assert all(np.array_equal(arrays[name], want_arrays[name]) for name in want_arrays)


@pytest.mark.parametrize("mode", ["diffusion", "ar"])
def test_stop_token(
    source: Any, model: Clover, pack: Callable[..., Any], open_core: Callable[..., Any], mode: str
) -> None:
    _, whole, _ = want(model, mode=mode, threshold=0.5)
    stop = whole.ids[40]
    options, decoded, end = want(model, mode=mode, threshold=0.5, stop_ids=(stop, 3))
    assert decoded.stop_id == stop and 0 < len(decoded.ids) <= 40
    result, events, state = run(open_core(pack(source, "f32")), options)
    assert (result["ids"], result["finish_reason"], result["stop_id"]) == (
        decoded.ids,
        "stop",
        stop,
    )
    assert state.position == end.position
    blocks = [event for event in events if event["type"] == "block"]
    assert [i for event in blocks for i in event["ids"]] == decoded.ids
    assert [event["finish"] for event in blocks] == [None] * (len(blocks) - 1) + ["stop"]


@pytest.mark.parametrize("mode", ["diffusion", "ar"])
@pytest.mark.parametrize("penalty", [0.0, 0.6])
def test_padding_and_mask_are_never_picked(
    source: Any,
    model: Clover,
    pack: Callable[..., Any],
    open_core: Callable[..., Any],
    mode: str,
    penalty: float,
) -> None:
    """A spec under which tokens that the model likes to write are padding, or the mask."""
    case = {"mode": mode, "threshold": 0.5, "presence_penalty": penalty}
    _, usual, _ = want(model, **case)
    valid = 203  # within a tile of 16 rows
    mask = next(token for token in usual.ids if token < valid and token not in PROMPT)
    assert max(usual.ids) >= valid
    spec = {"mask_token_id": mask, "valid_vocab": valid}
    options, decoded, _ = want(model.with_flags(mask_token_id=mask), valid_vocab=valid, **case)
    assert mask not in decoded.ids and max(decoded.ids) < valid
    for isa in ISAS:
        core = open_core(pack(source, "f32"), isa=isa, spec=spec)
        assert run(core, options)[0]["ids"] == decoded.ids


@pytest.mark.parametrize("flags", [{}, {"coreset_size": 3}, {"preview_value_beta": True}])
@pytest.mark.parametrize("refresh", [0, 2])
@pytest.mark.parametrize("width", [32, 9])
def test_skipped_rows(
    source: Any,
    model: Clover,
    pack: Callable[..., Any],
    open_core: Callable[..., Any],
    flags: dict[str, Any],
    refresh: int,
    width: int,
) -> None:
    """Rows that a preview leaves out show others what they computed last."""
    case = {"threshold": 0.45, "skip_rows": True, "refresh": refresh, "block_length": width}
    options, decoded, end = want(model.with_flags(**flags), **case)
    for isa in ISAS:
        core = open_core(pack(source, "f32"), isa=isa, spec=flags)
        result, events, state = run(core, {**options, "fused_commit": False})
        assert result["ids"] == decoded.ids, isa
        steps = [event for event in events if event["type"] == "step"]
        taken = [np.flatnonzero(event["accepted"]).tolist() for event in steps]
        assert taken == decoded.accepted
        assert state_error(state.arrays(), end) < 1e-4
        counters = result["counters"]
        whole = (decoded.previews + decoded.commits) * width
        assert counters["rows"] == decoded.rows + 64 < whole
        check_fused(core, options, result, events, state)


@pytest.mark.parametrize("flags", [{}, {"coreset_size": 5}])
@pytest.mark.parametrize("case", [{}, {"skip_rows": True}])
def test_share_of_the_experts(
    source: Any,
    model: Clover,
    pack: Callable[..., Any],
    open_core: Callable[..., Any],
    flags: dict[str, Any],
    case: dict[str, Any],
) -> None:
    """Rows of steps behind the first use a share of what they would choose, inside a coreset."""
    case = {"threshold": 0.45, "block_length": 16, **case}
    options, whole, _ = want(model.with_flags(**flags), **case)
    _, decoded, end = want(model.with_flags(**flags, coreset_share=0.6), **case)
    assert decoded.ids != whole.ids
    for isa in ISAS:
        core = open_core(pack(source, "f32"), isa=isa, spec=flags)
        result, _, state = run(core, {**options, "coreset_share": 0.6})
        assert result["ids"] == decoded.ids, isa
        assert state_error(state.arrays(), end) < 1e-4
        assert run(core, {**options, "coreset_share": 1.0})[0]["ids"] == whole.ids


def test_credit_changes_the_text(model: Clover) -> None:
    plain, credited = (want(model, threshold=0.9, block_length=16, credit=c)[1] for c in (0.0, 3.0))
    assert credited.ids != plain.ids
    assert credited.previews < plain.previews


def test_coreset_of_a_generation(
    source: Any, model: Clover, pack: Callable[..., Any], open_core: Callable[..., Any]
) -> None:
    """The option overrides the spec's coreset for the previews of one generation."""
    core = open_core(pack(source, "f32"), spec={"coreset_size": 3})
    _, free, _ = want(model, threshold=0.5)
    options, tight, _ = want(model.with_flags(coreset_size=3), threshold=0.5)
    assert tight.ids != free.ids
    assert run(core, options)[0]["ids"] == tight.ids
    assert run(core, {**options, "coreset": 0})[0]["ids"] == free.ids
    loose = open_core(pack(source, "f32"))
    assert run(loose, {**options, "coreset": 3})[0]["ids"] == tight.ids
