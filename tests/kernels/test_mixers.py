"""The gated delta rule in its three forms, and attention, against their equations in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from clover_edge._core import kernels

Array = NDArray[Any]
Relative = Callable[[Any, Any], float]
ROWS = (1, 2, 3, 5, 8, 13, 17, 32, 33, 70)
SIZES = [(16, 16), (5, 3), (8, 40), (33, 17), (64, 64)]  # dk, dv
TOLERANCE = 1e-5


@dataclass(frozen=True)
class Head:
    q: Array
    k: Array
    v: Array
    g: Array
    beta: Array
    state: Array

    def rows(self, first: int, last: int) -> Head:
        part = slice(first, last)
        return replace(
            self,
            q=self.q[part],
            k=self.k[part],
            v=self.v[part],
            g=self.g[part],
            beta=self.beta[part],
        )

    def run(self, form: str, isa: str) -> tuple[Array, Array]:
        operation = kernels.delta_commit if form == "commit" else kernels.delta_closed
        result: tuple[Array, Array] = operation(
            isa, self.q, self.k, self.v, self.g, self.beta, self.state
        )
        return result

    def exact(self) -> tuple[Array, Array]:
        """Token by token in float64."""
        state = self.state.astype(np.float64)
        out = np.zeros(self.v.shape)
        for t in range(len(self.q)):
            q, k = self.q[t].astype(np.float64), self.k[t].astype(np.float64)
            state = np.exp(np.float64(self.g[t])) * state
            d = self.beta[t] * (self.v[t] - state.T @ k)
            state = state + np.outer(k, d)
            out[t] = state.T @ q
        return out, state


def unit(x: Array) -> Array:
    return (x / np.sqrt((x**2).sum(axis=1, keepdims=True) + 1e-6)).astype(np.float32)


def make_head(rng: np.random.Generator, rows: int, dk: int, dv: int, decay: float = 1.0) -> Head:
    return Head(
        q=unit(rng.standard_normal((rows, dk))) * np.float32(dk**-0.5),
        k=unit(rng.standard_normal((rows, dk))),
        v=rng.standard_normal((rows, dv)).astype(np.float32),
        g=(-decay * rng.exponential(size=rows)).astype(np.float32),
        beta=rng.uniform(0, 1, rows).astype(np.float32),
        state=rng.standard_normal((dk, dv)).astype(np.float32),
    )


@pytest.mark.parametrize("form", ["commit", "closed"])
@pytest.mark.parametrize("rows", ROWS)
def test_delta_rule(
    isa: str, form: str, rows: int, rng: np.random.Generator, relative: Relative
) -> None:
    for dk, dv in SIZES:
        head = make_head(rng, rows, dk, dv)
        out, state = head.run(form, isa)
        want_out, want_state = head.exact()
        assert relative(out, want_out) < TOLERANCE, (dk, dv)
        assert relative(state, want_state) < TOLERANCE, (dk, dv)


@pytest.mark.parametrize("form", ["commit", "closed"])
@pytest.mark.parametrize("decay", [0.0, 1e-3, 30.0, 1e4])
def test_weak_and_strong_decay(
    isa: str, form: str, decay: float, rng: np.random.Generator, relative: Relative
) -> None:
    """e^(G_i - G_j) above the diagonal would overflow under strong decay."""
    head = make_head(rng, 33, 32, 32, decay)
    out, state = head.run(form, isa)
    want_out, want_state = head.exact()
    assert relative(out, want_out) < TOLERANCE
    assert relative(state, want_state) < TOLERANCE


@pytest.mark.parametrize("form", ["commit", "closed"])
def test_keys_that_repeat(
    isa: str, form: str, rng: np.random.Generator, relative: Relative
) -> None:
    """The hardest triangle: equal keys, beta near 1, no decay."""
    head = make_head(rng, 32, 16, 16, 0.0)
    head = replace(head, k=np.repeat(head.k[:1], 32, axis=0), beta=np.full(32, 0.999, np.float32))
    out, state = head.run(form, isa)
    want_out, want_state = head.exact()
    assert relative(out, want_out) < 2 * TOLERANCE
    assert relative(state, want_state) < 2 * TOLERANCE


def test_commit_has_the_same_bits_however_rows_are_split(
    isa: str, rng: np.random.Generator
) -> None:
    for dk, dv in SIZES:
        head = make_head(rng, 21, dk, dv)
        whole_out, whole_state = head.run("commit", isa)
        for cuts in ((9, 12, 21), tuple(range(1, 22)), (20, 21)):
            outs, state, first = [], head.state, 0
            for last in cuts:
                out, state = replace(head.rows(first, last), state=state).run("commit", isa)
                outs.append(out)
                first = last
            np.testing.assert_array_equal(np.concatenate(outs), whole_out)
            np.testing.assert_array_equal(state, whole_state)


def test_closed_form_split_agrees(isa: str, rng: np.random.Generator, relative: Relative) -> None:
    """A block of 9 and nine blocks of 1: the same state to 1e-6 of its size."""
    head = make_head(rng, 9, 64, 64)
    whole_out, whole_state = head.run("closed", isa)
    state = head.state
    for t in range(9):
        out, state = replace(head.rows(t, t + 1), state=state).run("closed", isa)
        assert np.abs(out[0] - whole_out[t]).max() < 1e-6
    assert relative(state, whole_state) < 1e-6


def test_rows_with_strides(isa: str, rng: np.random.Generator) -> None:
    head = make_head(rng, 7, 16, 24)
    qk = np.concatenate([head.q, head.k, head.v], axis=1)  # as a layer's convolution leaves them
    gates = np.stack([head.beta, head.g], axis=1)
    strided = replace(
        head,
        q=qk[:, :16],
        k=qk[:, 16:32],
        v=qk[:, 32:],
        g=gates[:, 1:],
        beta=gates[:, :1],
    )
    for form in ("commit", "closed"):
        for got, want in zip(strided.run(form, isa), head.run(form, isa), strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("form", ["commit", "closed"])
def test_nan_reaches_the_output(isa: str, form: str, rng: np.random.Generator) -> None:
    head = make_head(rng, 5, 16, 16)
    v = head.v.copy()
    v[2, 3] = np.nan
    out, state = replace(head, v=v).run(form, isa)
    clean, _ = head.run(form, isa)
    assert np.isnan(out[2:, 3]).all() and np.isnan(state[:, 3]).all()
    np.testing.assert_array_equal(out[:2], clean[:2])


def preview_exact(
    head: Head, logit_scale: float, history_logit: float, history_scale: float, value_beta: bool
) -> Array:
    q, k, v = (x.astype(np.float64) for x in (head.q, head.k, head.v))
    logits = np.concatenate([logit_scale * q @ k.T, np.full((len(q), 1), history_logit)], axis=1)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    values = v * head.beta[:, None] if value_beta else v
    history = history_scale * q @ head.state.astype(np.float64)
    out: Array = weights[:, :-1] @ values + weights[:, -1:] * history
    return out


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("value_beta", [False, True])
def test_preview(
    isa: str, value_beta: bool, rows: int, rng: np.random.Generator, relative: Relative
) -> None:
    for dk, dv in SIZES:
        head = make_head(rng, rows, dk, dv)
        for options in ((5.0, -1.0, 0.3), (-2.0, 30.0, 1.0), (100.0, 0.0, 0.1)):
            got = kernels.delta_preview(
                isa, head.q, head.k, head.v, head.beta, head.state, *options, value_beta
            )
            want = preview_exact(head, *options, value_beta)
            assert relative(got, want) < TOLERANCE, (dk, dv, options)


def test_preview_rows_do_not_depend_on_their_place_in_a_group(
    isa: str, rng: np.random.Generator
) -> None:
    """Rows are computed four at a time: rolling all rows rolls the queries through the places."""
    head = make_head(rng, 7, 16, 20)
    options = (3.0, 0.5, 0.25)
    base = kernels.delta_preview(isa, head.q, head.k, head.v, head.beta, head.state, *options)
    for shift in range(1, 7):
        q = np.roll(head.q, shift, axis=0)
        got = kernels.delta_preview(isa, q, head.k, head.v, head.beta, head.state, *options)
        np.testing.assert_array_equal(got, np.roll(base, shift, axis=0))


def attention_exact(
    q: Array, k: Array, v: Array, causal: bool, scale: float, window: int = 0
) -> Array:
    rows, past = len(q), len(k) - len(q)
    out = np.zeros((rows, v.shape[1]))
    for r in range(rows):
        keys = past + (r + 1 if causal else rows)
        first = max(0, (keys if causal else past + 1) - window) if window else 0
        scores = scale * k[first:keys].astype(np.float64) @ q[r].astype(np.float64)
        weights = np.exp(scores - scores.max())
        out[r] = weights @ v[first:keys] / weights.sum()
    return out


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("rows", ROWS)
def test_attention(
    isa: str, causal: bool, rows: int, rng: np.random.Generator, relative: Relative
) -> None:
    for past, width in ((0, 16), (1, 8), (31, 33), (32, 5), (100, 64)):
        q, k, v = (
            rng.standard_normal((n, width)).astype(np.float32)
            for n in (rows, past + rows, past + rows)
        )
        scale = 3 * width**-0.5
        got = kernels.attention(isa, q, k, v, causal, scale)
        want = attention_exact(q, k, v, causal, scale)
        assert relative(got, want) < TOLERANCE, (past, width)


def test_causal_rows_have_the_same_bits_however_they_are_split(
    isa: str, rng: np.random.Generator
) -> None:
    rows, past, width = 70, 13, 24
    q, k, v = (
        rng.standard_normal((n, width)).astype(np.float32) for n in (rows, past + rows, past + rows)
    )
    whole = kernels.attention(isa, q, k, v, True, 0.3)
    for size in (1, 2, 3, 5, 8, 32, 64):
        for first in range(0, rows, size):
            last = min(first + size, rows)
            seen = past + last
            part = kernels.attention(isa, q[first:last], k[:seen], v[:seen], True, 0.3)
            np.testing.assert_array_equal(part, whole[first:last])


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [1, 2, 9, 63, 64, 65, 130, 1000])
def test_a_window_hides_the_keys_in_front_of_it(
    isa: str, window: int, causal: bool, rng: np.random.Generator, relative: Relative
) -> None:
    for past, rows, width in ((0, 1, 8), (0, 70, 16), (63, 3, 33), (200, 17, 16), (129, 64, 8)):
        q, k, v = (
            rng.standard_normal((n, width)).astype(np.float32)
            for n in (rows, past + rows, past + rows)
        )
        scale = 3 * width**-0.5
        got = kernels.attention(isa, q, k, v, causal, scale, window=window)
        want = attention_exact(q, k, v, causal, scale, window)
        assert relative(got, want) < TOLERANCE, (past, rows)


def test_windowed_rows_have_the_same_bits_however_they_are_split(
    isa: str, rng: np.random.Generator
) -> None:
    """And whatever stands in front of every row's window."""
    rows, past, width, window = 70, 140, 24, 40
    q, k, v = (
        rng.standard_normal((n, width)).astype(np.float32) for n in (rows, past + rows, past + rows)
    )
    whole = kernels.attention(isa, q, k, v, True, 0.3, window=window)
    k[: past + 1 - window] = v[: past + 1 - window] = 1e30
    for size in (1, 3, 8, 64):
        for first in range(0, rows, size):
            last = min(first + size, rows)
            seen = past + last
            part = kernels.attention(
                isa, q[first:last], k[:seen], v[:seen], True, 0.3, window=window
            )
            np.testing.assert_array_equal(part, whole[first:last])


@pytest.mark.parametrize("format", ["f32", "f16", "int8"])
@pytest.mark.parametrize("heads", [2, 3, 4, 5, 8])
def test_heads_that_share_keys_have_the_bits_of_each_alone(
    isa: str, heads: int, format: str, rng: np.random.Generator
) -> None:
    rows, past, width = 9, 70, 32
    q = rng.standard_normal((rows, heads * width)).astype(np.float32)
    k, v = (rng.standard_normal((past + rows, width)).astype(np.float32) for _ in range(2))
    for causal in (True, False):
        together = kernels.attention(isa, q, k, v, causal, 0.3, format)
        for h in range(heads):
            own = slice(h * width, (h + 1) * width)
            alone = kernels.attention(isa, q[:, own], k, v, causal, 0.3, format)
            np.testing.assert_array_equal(together[:, own], alone)


def kept(x: Array, format: str) -> Array:
    """Rows as the cache gives them back."""
    if format == "f16":
        return np.clip(x, -65504, 65504).astype(np.float16).astype(np.float64)
    scale = (np.abs(x).max(axis=1, keepdims=True) / np.float32(127)).astype(np.float64)
    inverse = np.float32(127) / np.abs(x).max(axis=1, keepdims=True)
    return np.rint(x * inverse) * scale


@pytest.mark.parametrize("format", ["f16", "int8"])
@pytest.mark.parametrize("width", [8, 16, 33, 64])
def test_attention_over_narrow_caches(
    isa: str, width: int, format: str, rng: np.random.Generator, relative: Relative
) -> None:
    q, k, v = (rng.standard_normal((n, width)).astype(np.float32) for n in (7, 107, 107))
    k[3] *= 1e-3
    v[5] *= 300
    k[40] *= 1e-6  # subnormal in half precision
    got = kernels.attention(isa, q, k, v, True, width**-0.5, format)
    want = attention_exact(q, kept(k, format), kept(v, format), True, width**-0.5)
    assert relative(got, want) < TOLERANCE


@pytest.mark.parametrize("format", ["f16", "int8"])
def test_half_precision_values_saturate_and_nan_stays(isa: str, format: str) -> None:
    q, k = np.zeros((1, 16), np.float32), np.zeros((1, 16), np.float32)
    v = np.full((1, 16), 1e6, np.float32)
    large = 65504.0 if format == "f16" else 1e6
    np.testing.assert_allclose(kernels.attention(isa, q, k, v, True, 1.0, format), large)
    v[0, 3] = np.nan
    assert np.isnan(kernels.attention(isa, q, k, v, True, 1.0, format)[0, 3])


def test_attention_with_strides(isa: str, rng: np.random.Generator) -> None:
    q = rng.standard_normal((5, 60)).astype(np.float32)[:, 20:44]
    kv = rng.standard_normal((40, 96)).astype(np.float32)
    k, v = kv[:, 8:32], kv[:, 56:80]
    np.testing.assert_array_equal(
        kernels.attention(isa, q, k, v, True, 0.2),
        kernels.attention(isa, q.copy(), k.copy(), v.copy(), True, 0.2),
    )


def test_scores_far_apart(isa: str, rng: np.random.Generator, relative: Relative) -> None:
    q, k, v = (rng.standard_normal((n, 16)).astype(np.float32) for n in (4, 90, 90))
    for scale in (1e3, -1e3, 0.0):
        want = attention_exact(q, k, v, False, scale)
        assert relative(kernels.attention(isa, q, k, v, False, scale), want) < 2e-4


def test_a_later_row_cannot_poison_an_earlier_one(isa: str, rng: np.random.Generator) -> None:
    q, k, v = (rng.standard_normal((n, 16)).astype(np.float32) for n in (6, 40, 40))
    clean = kernels.attention(isa, q, k, v, True, 0.25)
    bad_k, bad_v = k.copy(), v.copy()
    bad_k[-2] = bad_v[-2] = np.nan  # row 4 of the pass
    for keys, values in ((bad_k, v), (k, bad_v)):
        out = kernels.attention(isa, q, keys, values, True, 0.25)
        np.testing.assert_array_equal(out[:4], clean[:4])
        assert np.isnan(out[4:]).all()


def test_wrong_arguments(rng: np.random.Generator) -> None:
    head = make_head(rng, 3, 8, 8)
    with pytest.raises(ValueError, match="k: expected"):
        replace(head, k=head.k[:2]).run("commit", "reference")
    with pytest.raises(ValueError, match="state"):
        replace(head, state=head.state[:4]).run("closed", "reference")
    with pytest.raises(ValueError, match="g: expected"):
        replace(head, g=head.g[:2], beta=head.beta[:2]).run("commit", "reference")
    with pytest.raises(ValueError, match="past"):
        kernels.attention("reference", head.q, head.k[:2], head.v[:2], True, 1.0)
