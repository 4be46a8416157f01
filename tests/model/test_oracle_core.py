"""The compiled core against the float64 oracle: both modes, state, every instruction set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from oracle.clover import Clover, State
from oracle.compare import relative_error, state_error

from clover_edge import _core

TOLERANCE = 1e-4  # f32 weights, logits and state
ISAS = _core.available_isas()
WIDTHS = (1, 3, 17, 32)
PROMPT = 11

VARIANTS: dict[str, dict[str, Any]] = {
    "tied head": {"overrides": {"tie_word_embeddings": True}},
    "no shared expert": {"overrides": {"shared_expert_intermediate_size": 0}},
    "no output gate": {"overrides": {"attn_output_gate": False}},
    "plain top-k weights": {"overrides": {"norm_topk_prob": False}, "top_k": 3},
    "plain norms": {"norm": "plain"},
    "one value head a key head": {
        "overrides": {"linear_num_key_heads": 3, "linear_num_value_heads": 3}
    },
    "unlike head widths": {
        "overrides": {"linear_key_head_dim": 24, "linear_value_head_dim": 40, "head_dim": 48}
    },
    "all heads their own": {"overrides": {"num_key_value_heads": 4}},
    "three taps": {"overrides": {"linear_conv_kernel_dim": 3}},
    "odd widths": {"hidden": 52, "overrides": {"head_dim": 24, "moe_intermediate_size": 22}},
    "first layer attends": {
        "layers": 3,
        "overrides": {"layer_types": ["full_attention", "linear_attention", "full_attention"]},
    },
}


@dataclass(frozen=True)
class Pass:
    """What the oracle says about one block."""

    noisy: list[int]
    preview: np.ndarray
    ids: list[int]
    logits: np.ndarray
    state: State


def trace(model: Clover, width: int, blocks: int = 3) -> tuple[list[int], np.ndarray, list[Pass]]:
    """A prompt, its logits, and for each block a preview with masks and the commit."""
    rng = np.random.default_rng(width)
    prompt = rng.integers(0, 250, PROMPT).tolist()
    first, state = model.commit(model.start(), prompt)
    passes = []
    for _ in range(blocks):
        ids = rng.integers(0, 250, width)
        noisy = np.where(rng.random(width) < 0.6, model.config.mask_token_id, ids).tolist()
        preview = model.preview(state, noisy)
        logits, state = model.commit(state, ids)
        passes.append(Pass(noisy, preview, ids.tolist(), logits, state))
    return prompt, first, passes


def check(core: Any, model: Clover, width: int, tolerance: float = TOLERANCE) -> None:
    prompt, first, passes = trace(model, width)
    state = core.new_state(PROMPT + 3 * width)
    assert relative_error(core.commit(state, prompt, logits="all"), first) < tolerance
    for block, want in enumerate(passes):
        preview = core.preview(state, want.noisy)
        assert relative_error(preview, want.preview) < tolerance, f"preview {block}"
        logits = core.commit(state, want.ids, logits="all")
        assert relative_error(logits, want.logits) < tolerance, f"commit {block}"
        assert state.position == want.state.position
        assert state_error(state.arrays(), want.state) < tolerance, f"state {block}"


@pytest.fixture(scope="module")
def model(tiny: Callable[..., Any]) -> Clover:
    return tiny(seed=1, layers=5).oracle()


@pytest.fixture(scope="module")
def folder(tiny: Callable[..., Any], pack: Callable[..., Any]) -> Any:
    return pack(tiny(seed=1, layers=5), "f32")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("isa", ISAS)
def test_three_blocks(
    model: Clover, folder: Any, open_core: Callable[..., Any], isa: str, width: int
) -> None:
    check(open_core(folder, isa=isa), model, width)


@pytest.mark.parametrize("width", [3, 32])
@pytest.mark.parametrize("isa", ISAS)
def test_three_blocks_in_closed_form(
    model: Clover, folder: Any, open_core: Callable[..., Any], isa: str, width: int
) -> None:
    check(open_core(folder, isa=isa, delta_form="closed"), model, width)


@pytest.mark.parametrize("name", VARIANTS)
def test_variants(
    tiny: Callable[..., Any], pack: Callable[..., Any], open_core: Callable[..., Any], name: str
) -> None:
    """Other shapes and switches of the architecture."""
    source = tiny(**{"seed": 3, **VARIANTS[name]})
    check(open_core(pack(source, "f32")), source.oracle(), 7)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({"history_q_scale": False}, {}),
        ({"preview_value_beta": True}, {}),
        ({"history_ref_rows": 5}, {}),
        ({"coreset_size": 3}, {}),
        ({"coreset_size": 7}, {}),
        ({"rope_theta": 100.0}, {}),
        ({"norm_topk_prob": False}, {"norm_topk": False}),
    ],
)
def test_flags(
    model: Clover,
    folder: Any,
    open_core: Callable[..., Any],
    ours: dict[str, Any],
    theirs: dict[str, Any],
) -> None:
    """Fields of the spec, each of which moves the logits by far more than the tolerance."""
    plain, bent = trace(model, 17)[2][0], trace(model.with_flags(**ours), 17)[2][0]
    assert relative_error(bent.preview, plain.preview) > 20 * TOLERANCE
    for isa in ISAS:
        core = open_core(folder, isa=isa, spec=theirs or ours)
        check(core, model.with_flags(**ours), 17)


@pytest.mark.parametrize("isa", ISAS)
def test_long_prompt(folder: Any, open_core: Callable[..., Any], model: Clover, isa: str) -> None:
    """Longer than the passes that a prefill is cut into."""
    ids = np.random.default_rng(2).integers(0, 250, 150).tolist()
    want, end = model.commit(model.start(), ids)
    for form in ("sequential", "closed"):
        core = open_core(folder, isa=isa, delta_form=form)
        state = core.new_state(len(ids))
        assert relative_error(core.commit(state, ids, logits="all"), want) < TOLERANCE, form
        assert state_error(state.arrays(), end) < TOLERANCE, form


def test_width_of_a_preview(folder: Any, open_core: Callable[..., Any], model: Clover) -> None:
    """``width`` replaces n in ln(n / history_ref_rows)."""
    core, (prompt, _, passes) = open_core(folder), trace(model, 17, blocks=1)
    state, noisy = core.new_state(64), passes[0].noisy[:16]
    core.commit(state, prompt)
    past = model.commit(model.start(), prompt)[1]
    want = model.with_flags(history_ref_rows=64).preview(past, noisy)  # 16/64 = 8/32
    assert relative_error(core.preview(state, noisy, width=8), want) < TOLERANCE
    assert relative_error(core.preview(state, noisy), want) > 20 * TOLERANCE


@pytest.mark.parametrize("isa", ISAS)
def test_which_logits(folder: Any, open_core: Callable[..., Any], model: Clover, isa: str) -> None:
    core = open_core(folder, isa=isa)
    prompt, _, passes = trace(model, 17, blocks=1)
    states = [core.new_state(64) for _ in range(3)]
    every = core.commit(states[0], prompt, logits="all")
    last = core.commit(states[1], prompt)
    assert core.commit(states[2], prompt, logits="none") is None
    assert every.shape == (PROMPT, model.config.vocab_size)
    assert last.shape == (1, model.config.vocab_size)
    assert np.array_equal(last[0], every[-1])
    for state in states:
        assert np.array_equal(state.arrays()["logits"], every[-1])
    noisy = passes[0].noisy
    whole = core.preview(states[0], noisy)
    rows = [16, 0, 5]
    assert np.array_equal(core.preview(states[0], noisy, rows=rows), whole[rows])


@pytest.mark.parametrize("isa", ISAS)
def test_preview_leaves_no_trace(
    folder: Any, open_core: Callable[..., Any], model: Clover, isa: str
) -> None:
    core = open_core(folder, isa=isa)
    prompt, _, passes = trace(model, 32, blocks=1)
    state = core.new_state(64)
    core.commit(state, prompt)
    before = state.arrays()
    first = core.preview(state, passes[0].noisy)
    core.preview(state, passes[0].ids[:3])
    assert np.array_equal(core.preview(state, passes[0].noisy), first)
    after = state.arrays()
    assert state.position == PROMPT
    for name, value in before.items():
        assert np.array_equal(after[name], value), name


@pytest.mark.parametrize("kept", range(10))
def test_rollback_is_a_shorter_commit(
    folder: Any, open_core: Callable[..., Any], model: Clover, kept: int
) -> None:
    """A commit with rollback can be taken back to any of its rows, and goes on from there."""
    core, (prompt, _, passes) = open_core(folder), trace(model, 17, blocks=1)
    ids, noisy = passes[0].ids[:9], passes[0].noisy
    state = core.new_state(64)
    core.commit(state, prompt)
    core.commit(state, ids, rollback=True)
    state.truncate(PROMPT + kept)
    want = model.commit(model.start(), prompt + ids[:kept])[1]
    assert state.position == want.position
    assert state_error(state.arrays(), want) < TOLERANCE
    assert relative_error(core.preview(state, noisy), model.preview(want, noisy)) < TOLERANCE


def test_snapshot_and_restore(folder: Any, open_core: Callable[..., Any], model: Clover) -> None:
    core, (prompt, _, passes) = open_core(folder), trace(model, 17, blocks=1)
    state = core.new_state(64)
    core.commit(state, prompt)
    saved, before = state.snapshot(), state.arrays()
    logits = core.commit(state, passes[0].ids, logits="all")
    state.restore(saved)
    assert state.position == saved.position == PROMPT
    for name, value in before.items():
        assert np.array_equal(state.arrays()[name], value), name
        assert np.array_equal(saved.arrays()[name], value), name
    assert np.array_equal(core.commit(state, passes[0].ids, logits="all"), logits)
    state.truncate(0)
    assert np.array_equal(core.commit(state, prompt), core.commit(core.new_state(64), prompt))
