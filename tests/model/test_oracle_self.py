"""The oracle against itself and against the page of equations, written out a second time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from oracle import equations
from oracle.clover import AttentionState, Clover, Config, DeltaState, State
from oracle.decode import Options, generate

IDS = np.random.default_rng(5).integers(0, 250, 64)


@pytest.fixture(scope="module")
def model(tiny: Callable[..., Any]) -> Clover:
    return tiny(seed=1, layers=5).oracle()


@pytest.fixture(scope="module")
def past(model: Clover) -> State:
    """A state with 13 committed tokens in it."""
    return model.commit(model.start(), IDS[:13])[1]


def arrays(state: State) -> dict[str, np.ndarray]:
    return {
        f"{i}.{name}": value
        for i, layer in enumerate(state.layers)
        for name, value in vars(layer).items()
    }


def relative(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.abs(a - b).max() / np.abs(b).max())


@pytest.mark.parametrize("strength", [0.05, 1.0, 200.0])
def test_closed_form_is_the_recurrence(strength: float) -> None:
    """From a non-zero state, under weak decay and under one that overflows an unmasked exp."""
    rng = np.random.default_rng(0)
    n, dk, dv = 37, 12, 20
    q, k = (equations.l2norm(rng.standard_normal((n, dk))) for _ in range(2))
    v, S = rng.standard_normal((n, dv)), rng.standard_normal((dk, dv))
    g, beta = -strength * rng.uniform(0, 1, n), rng.uniform(0, 1, n)
    o, end = equations.delta_recurrent(S, q, k, v, g, beta)
    closed, closed_end = equations.delta_closed(S, q, k, v, g, beta)
    assert relative(closed, o) < 1e-12
    assert relative(closed_end, end) < 1e-12


def test_closed_form_through_the_model(model: Clover, past: State) -> None:
    logits, state = model.commit(past, IDS[13:45])
    closed, closed_state = model.commit(past, IDS[13:45], closed=True)
    assert relative(closed, logits) < 1e-12
    for name, value in arrays(state).items():
        assert relative(arrays(closed_state)[name], value) < 1e-12, name


def test_nine_at_once_is_nine_times_one(model: Clover, past: State) -> None:
    logits, state = model.commit(past, IDS[13:22])
    singly, one = [], past
    for token in IDS[13:22]:
        row, one = model.commit(one, [token])
        singly.append(row[0])
    assert relative(np.array(singly), logits) < 1e-12
    assert one.position == state.position == 22
    for name, value in arrays(state).items():
        assert relative(arrays(one)[name], value) < 1e-12, name


def test_short_blocks_keep_old_ring_rows(model: Clover, past: State) -> None:
    before, after = past.layers[0], model.commit(past, IDS[:2])[1].layers[0]
    assert isinstance(before, DeltaState) and isinstance(after, DeltaState)
    assert np.array_equal(after.ring[0], before.ring[2])
    assert not np.array_equal(after.ring[1:], before.ring[1:])


def test_commit_is_causal_and_preview_sees_the_block(model: Clover, past: State) -> None:
    ids = IDS[13:23].copy()
    commit, preview = model.commit(past, ids)[0], model.preview(past, ids)
    ids[-1] = 7
    assert np.allclose(model.commit(past, ids)[0][:-1], commit[:-1], rtol=0, atol=1e-12)
    moved = np.abs(model.preview(past, ids) - preview).max(axis=1)
    assert (moved > 1e-3).all()


def test_preview_is_read_only(model: Clover, past: State) -> None:
    before = {name: value.copy() for name, value in arrays(past).items()}
    first = model.preview(past, IDS[:9])
    assert np.array_equal(model.preview(past, IDS[:9]), first)
    for name, value in arrays(past).items():
        assert np.array_equal(value, before[name]), name


@pytest.mark.parametrize("n", [1, 2, 3, 6])
def test_convolution_written_out(n: int) -> None:
    rng = np.random.default_rng(n)
    ring, block = rng.standard_normal((3, 5)), rng.standard_normal((n, 5))
    w, r = rng.standard_normal((5, 4)), rng.standard_normal((5, 3))
    out = equations.short_conv(ring, block, w, r)
    for t in range(n):
        for c in range(5):
            total = 0.0
            for j in range(4):
                at = t + j - 3
                total += w[c, j] * (block[at, c] if at >= 0 else ring[at, c])
            for d in (1, 2, 3):
                if t + d < n:  # rows past the block are absent
                    total += r[c, d - 1] * block[t + d, c]
            assert out[t, c] == pytest.approx(total / (1 + np.exp(-total)), rel=1e-12)
    causal = equations.short_conv(ring, block, w)
    assert np.array_equal(out[-1], causal[-1])


def test_preview_head_written_out() -> None:
    rng = np.random.default_rng(3)
    n, dk, dv = 4, 6, 5
    q, k = (equations.l2norm(rng.standard_normal((n, dk))) for _ in range(2))
    v, S = rng.standard_normal((n, dv)), rng.standard_normal((dk, dv))
    weights = equations.preview_weights(q, k, 3.5, -0.4)
    o = equations.delta_preview(S, q, k, v, weights, dk**-0.5)
    for t in range(n):
        e = [np.exp(3.5 * sum(q[t] * k[s])) for s in range(n)] + [np.exp(-0.4)]
        rows = sum(e[s] * v[s] for s in range(n))
        history = e[n] * sum(S[i] * q[t, i] * dk**-0.5 for i in range(dk))
        assert o[t] == pytest.approx((rows + history) / sum(e), rel=1e-12)


def test_width_calibration(model: Clover, past: State) -> None:
    """The history's logit is bias + c ln(n/32): c has no say at 32 rows, and has one at 8."""
    bent = Clover(
        {n: w + (2 if n.endswith("history_c") else 0) for n, w in model.w.items()}, model.config
    )
    assert np.array_equal(bent.preview(past, IDS[:32]), model.preview(past, IDS[:32]))
    assert relative(bent.preview(past, IDS[:8]), model.preview(past, IDS[:8])) > 1e-2
    # With c moved by 2, eight rows get the bias moved by 2 ln(8/32).
    moved = {
        n: w + (2 * np.log(8 / 32) if n.endswith("history_bias") else 0) for n, w in model.w.items()
    }
    again = Clover(moved, model.config).preview(past, IDS[:8])
    assert relative(bent.preview(past, IDS[:8]), again) < 1e-12
    eight = [m.with_flags(history_ref_rows=8).preview(past, IDS[:8]) for m in (bent, model)]
    assert np.array_equal(*eight)


def test_empty_history_only_takes_its_share(model: Clover) -> None:
    """With S = 0 a huge history logit scales the read-out, which the gated norm takes out again."""
    bent = {n: w + (3 if n.endswith("history_bias") else 0) for n, w in model.w.items()}
    empty = model.start()
    a, b = model.preview(empty, IDS[:16]), Clover(bent, model.config).preview(empty, IDS[:16])
    assert relative(a, b) < 1e-3  # up to the epsilon of the norm


def test_preview_flags_change_the_mixer_only(model: Clover, past: State) -> None:
    base = model.preview(past, IDS[:8])
    for flag in ({"history_q_scale": False}, {"preview_value_beta": True}):
        assert relative(model.with_flags(**flag).preview(past, IDS[:8]), base) > 1e-2, flag
        committed = model.with_flags(**flag).commit(past, IDS[:8])[0]
        assert np.array_equal(committed, model.commit(past, IDS[:8])[0])


def test_coreset(model: Clover, past: State) -> None:
    experts, top_k = model.config.num_experts, model.config.num_experts_per_tok
    free = model.preview(past, IDS[:8])
    assert np.array_equal(model.with_flags(coreset_size=experts).preview(past, IDS[:8]), free)
    tight = model.with_flags(coreset_size=top_k + 1)
    assert relative(tight.preview(past, IDS[:8]), free) > 1e-2
    assert np.array_equal(tight.commit(past, IDS[:8])[0], model.commit(past, IDS[:8])[0])


def test_routing_by_hand() -> None:
    p = np.array([[0.4, 0.3, 0.2, 0.1], [0.05, 0.1, 0.25, 0.6]])
    assert equations.route(p, 2, True) == pytest.approx(
        np.array([[4 / 7, 3 / 7, 0, 0], [0, 0, 25 / 85, 60 / 85]])
    )
    assert equations.route(p, 1, False) == pytest.approx(np.array([[0.4, 0, 0, 0], [0, 0, 0, 0.6]]))
    # the best two experts over all rows are 3 (0.6) and 0 (0.4)
    assert equations.route(p, 2, True, equations.coreset(p, 2)) == pytest.approx(
        np.array([[0.8, 0, 0, 0.2], [5 / 65, 0, 0, 60 / 65]])
    )


def test_random_models_are_lively(model: Clover, past: State) -> None:
    """Neither the mixer's softmax nor the head's is one-hot or flat, and every part is felt."""
    entropies, shares = [], []
    mixing = model._mixing
    model._mixing = lambda *args: record(mixing(*args))  # type: ignore[method-assign]

    def record(weights: np.ndarray) -> np.ndarray:
        entropies.append(-(weights * np.log(weights)).sum(axis=1) / np.log(weights.shape[1]))
        shares.append(weights[:, -1])
        return weights

    try:
        probability = equations.softmax(model.preview(past, IDS[:32])).max(axis=1)
    finally:
        model._mixing = mixing  # type: ignore[method-assign]
    assert 0.2 < np.mean(entropies) < 0.95
    assert 0.01 < np.mean(shares) < 0.5
    assert 0.05 < probability.mean() < 0.95
    assert probability.max() > 1.5 * probability.min()


def test_configuration_forms(tiny: Callable[..., Any]) -> None:
    flat, nested = tiny(seed=1), tiny(seed=1, nested=True)
    assert Config.read(flat.config) == Config.read(nested.config)
    short = {k: v for k, v in flat.config.items() if k != "layer_types"}
    assert Config.read(short) == Config.read(flat.config)


def test_norm_convention_is_detected(tiny: Callable[..., Any]) -> None:
    zero, plain = tiny(seed=1), tiny(seed=1, norm="plain", dtype="f32")
    assert (zero.oracle().norm_offset, plain.oracle().norm_offset) == (1.0, 0.0)
    shifted = {
        name: value - 1 if "norm.weight" in name and "linear_attn" not in name else value
        for name, value in plain.tensors.items()
    }
    model, same = plain.oracle(), Clover(shifted, plain.config)
    assert same.norm_offset == 1.0
    assert (
        relative(same.commit(same.start(), IDS[:9])[0], model.commit(model.start(), IDS[:9])[0])
        < 1e-5
    )  # the shift itself was rounded to float32


# ---- the loop ----------------------------------------------------------------------------------


def options(model: Clover, **more: Any) -> Options:
    valid = model.config.mask_token_id + 1
    return Options(**{"max_new_tokens": 24, "valid_vocab": valid, "block_length": 8, **more})


def test_threshold_extremes(model: Clover) -> None:
    one, _ = generate(model, model.start(), IDS[:9], options(model, threshold=1.0))
    assert (one.previews, one.commits, len(one.ids)) == (24, 3, 24)
    everything, _ = generate(model, model.start(), IDS[:9], options(model, threshold=0.0))
    assert (everything.previews, everything.commits) == (3, 3)
    two, _ = generate(model, model.start(), IDS[:9], options(model, threshold=1.0, steps=2))
    assert [len(rows) for rows in two.accepted] == [4, 4] * 3
    assert all(i < model.config.mask_token_id for i in one.ids + everything.ids)


def test_text_is_cut(model: Clover) -> None:
    whole, end = generate(model, model.start(), IDS[:9], options(model))
    assert (whole.finish_reason, len(whole.ids), end.position) == ("length", 24, 33)
    stop = whole.ids[11]
    first = whole.ids.index(stop)
    cut, end = generate(
        model, model.start(), IDS[:9], options(model, stop_ids=(stop,), commit_last=False)
    )
    assert (cut.finish_reason, cut.stop_id, cut.ids) == ("stop", stop, whole.ids[:first])
    assert end.position == 9 + first // 8 * 8  # whole blocks; the last one is not committed
    kept, end = generate(model, model.start(), IDS[:9], options(model, stop_ids=(stop,)))
    assert (kept.ids, end.position) == (cut.ids, 9 + first + 1)
    short, _ = generate(model, model.start(), IDS[:9], options(model, max_new_tokens=10))
    assert short.ids == whole.ids[:10]
    assert short.previews < whole.previews  # no step for positions behind the budget
    # a stop token behind the budget is not seen
    late = options(model, max_new_tokens=first, stop_ids=(stop,))
    assert first > 0
    assert generate(model, model.start(), IDS[:9], late)[0].finish_reason == "length"


def test_autoregressive_is_greedy_teacher_forcing(model: Clover) -> None:
    out, state = generate(model, model.start(), IDS[:9], options(model, mode="ar"))
    assert (len(out.ids), out.commits, state.position) == (24, 24, 33)
    logits, _ = model.commit(model.start(), [*IDS[:9], *out.ids])
    real = logits[8:-1, : model.config.mask_token_id]
    assert out.ids == real.argmax(axis=1).tolist()


def test_penalties_change_the_response(model: Clover) -> None:
    plain, _ = generate(model, model.start(), IDS[:9], options(model, max_new_tokens=40))
    strict, _ = generate(
        model,
        model.start(),
        IDS[:9],
        options(model, max_new_tokens=40, presence_penalty=1e3, threshold=1.0),
    )
    assert len(set(strict.ids)) == 40 > len(set(plain.ids))


def test_attention_state_holds_rotated_keys(model: Clover, past: State) -> None:
    layer = past.layers[3]
    assert isinstance(layer, AttentionState)
    c = model.config
    assert layer.k.shape == (13, c.num_key_value_heads, c.head_dim)
