"""Operations on single rows against float64 numpy, at widths that are no multiple of a vector."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from clover_edge._core import kernels

Array = NDArray[Any]
Relative = Callable[[Any, Any], float]
ROWS = (1, 2, 3, 5, 8, 13, 17, 32, 33)
WIDTHS = (1, 3, 7, 8, 9, 15, 16, 17, 31, 33, 96, 250)
TOLERANCE = 1e-6


def sigmoid(x: Array) -> Array:
    return 0.5 * (1 + np.tanh(0.5 * x.astype(np.float64)))


def silu(x: Array) -> Array:
    return x.astype(np.float64) * sigmoid(x)


def normal(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("n", WIDTHS)
def test_rmsnorm(isa: str, n: int, rng: np.random.Generator, relative: Relative) -> None:
    x, w = normal(rng, 5, n), normal(rng, n)
    wide = x.astype(np.float64)
    for offset, eps in ((0.0, 1e-6), (1.0, 1e-5)):
        want = wide / np.sqrt((wide**2).mean(axis=1, keepdims=True) + eps) * (w + offset)
        assert relative(kernels.rmsnorm(isa, x, w, offset, eps), want) < TOLERANCE


@pytest.mark.parametrize(("heads", "d"), [(1, 1), (3, 7), (2, 16), (4, 33), (1, 128)])
def test_l2norm(isa: str, heads: int, d: int, rng: np.random.Generator, relative: Relative) -> None:
    x = normal(rng, 4, heads * d)
    u = x.astype(np.float64).reshape(4, heads, d)
    want = u / np.sqrt((u**2).sum(axis=2, keepdims=True) + 1e-6) * 0.25
    assert relative(kernels.l2norm(isa, x, heads, 0.25), want.reshape(4, -1)) < TOLERANCE


@pytest.mark.parametrize("n", WIDTHS)
def test_silu_mul_and_sigmoid_mul(
    isa: str, n: int, rng: np.random.Generator, relative: Relative
) -> None:
    gate, up = 4 * normal(rng, 3, n), normal(rng, 3, n)
    assert relative(kernels.silu_mul(isa, gate, up), silu(gate) * up) < TOLERANCE
    assert relative(kernels.sigmoid_mul(isa, up, gate), sigmoid(gate) * up) < TOLERANCE


@pytest.mark.parametrize("n", WIDTHS)
def test_gelu_mul(isa: str, n: int, rng: np.random.Generator, relative: Relative) -> None:
    gate, up = 4 * normal(rng, 3, n), normal(rng, 3, n)
    x = gate.astype(np.float64)
    want = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) * up
    assert relative(kernels.gelu_mul(isa, gate, up), want) < TOLERANCE


def test_exponentials_over_their_whole_range(isa: str) -> None:
    """Relative accuracy point by point, not only against the largest value of a row."""
    x = np.linspace(-85, 88, 20001, dtype=np.float32)[None]
    one = np.ones_like(x)
    got = kernels.sigmoid_mul(isa, one, x).astype(np.float64)
    want = 1 / (1 + np.exp(-x.astype(np.float64)))
    assert np.max(np.abs(got / want - 1)) < 5e-7


@pytest.mark.parametrize("value", [-1e4, -104.0, -88.0, 88.8, 104.0, 1e4, np.inf, -3e38, 3e38])
def test_gates_far_out(isa: str, value: float) -> None:
    gate, one = np.full((1, 19), value, np.float32), np.ones((1, 19), np.float32)
    want = 1.0 if value > 0 else 0.0
    np.testing.assert_allclose(kernels.sigmoid_mul(isa, one, gate), want, atol=1e-37)
    for product in (kernels.silu_mul(isa, gate, one), kernels.gelu_mul(isa, gate, one)):
        np.testing.assert_allclose(product, value if value > 0 else 0.0, rtol=1e-6, atol=1e-35)


@pytest.mark.parametrize(("heads", "dv"), [(1, 1), (3, 5), (2, 16), (4, 24), (2, 128)])
def test_gated_norm(
    isa: str, heads: int, dv: int, rng: np.random.Generator, relative: Relative
) -> None:
    o, z, w = normal(rng, 6, heads * dv), normal(rng, 6, heads * dv), normal(rng, dv)
    x = o.astype(np.float64).reshape(6, heads, dv)
    normed = x / np.sqrt((x**2).mean(axis=2, keepdims=True) + 1e-6) * w
    want = normed.reshape(6, -1) * silu(z)
    assert relative(kernels.gated_norm(isa, o, z, w, 1e-6), want) < TOLERANCE


def convolved(ring: Array, block: Array, w: Array, right: Array | None) -> Array:
    rows, taps = len(block), w.shape[1]
    joined = np.concatenate([ring, block]).astype(np.float64)
    out = np.zeros(block.shape)
    for t in range(rows):
        for j in range(taps):
            out[t] += joined[t + j] * w[:, j]
        for d in range(taps - 1):
            if right is not None and t + 1 + d < rows:
                out[t] += block[t + 1 + d].astype(np.float64) * right[:, d]
    return silu(out)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("taps", [2, 3, 4, 5, 9])
def test_conv(isa: str, taps: int, rows: int, rng: np.random.Generator, relative: Relative) -> None:
    channels = 37
    ring, block = normal(rng, taps - 1, channels), normal(rng, rows, channels)
    w, right = normal(rng, channels, taps), normal(rng, channels, taps - 1)
    for ahead in (None, right):
        want = convolved(ring, block, w, ahead)
        assert relative(kernels.conv(isa, ring, block, w, ahead), want) < TOLERANCE


def test_conv_over_a_range_of_channels(isa: str, rng: np.random.Generator) -> None:
    ring, block = normal(rng, 3, 50), normal(rng, 6, 50)
    w, right = normal(rng, 50, 4), normal(rng, 50, 3)
    whole = kernels.conv(isa, ring, block, w, right)
    for first, last in ((0, 50), (0, 1), (5, 38), (49, 50), (7, 7)):
        part = kernels.conv(isa, ring, block, w, right, channels=(first, last))
        np.testing.assert_array_equal(part[:, first:last], whole[:, first:last])
        assert not part[:, :first].any() and not part[:, last:].any()


def test_conv_split_over_rows_has_the_same_bits(isa: str, rng: np.random.Generator) -> None:
    """What a commit needs: rows one by one, the ring carried on, equal the whole block."""
    ring, block, w = normal(rng, 3, 20), normal(rng, 9, 20), normal(rng, 20, 4)
    joined = np.concatenate([ring, block])
    alone = [kernels.conv(isa, joined[t : t + 3], block[t : t + 1], w) for t in range(9)]
    np.testing.assert_array_equal(kernels.conv(isa, ring, block, w), np.concatenate(alone))


@pytest.mark.parametrize(("k", "block"), [(384, 128), (192, 64), (96, 32)])
@pytest.mark.parametrize("rows", [1, 3, 8])
def test_quantize(isa: str, k: int, block: int, rows: int, rng: np.random.Generator) -> None:
    x = (normal(rng, rows, k) * 10 ** rng.uniform(-6, 6, (rows, 1))).astype(np.float32)
    x[0, :block] = 0  # a zero block
    q, scale, total = kernels.quantize(isa, x)
    parts = x.reshape(rows, -1, block)
    largest = np.abs(parts).max(axis=2)
    np.testing.assert_array_equal(scale, largest / np.float32(127))
    inverse = np.divide(np.float32(127), largest, out=np.zeros_like(largest), where=largest > 0)
    codes = np.rint(parts * inverse[..., None])
    np.testing.assert_array_equal(q.reshape(codes.shape), codes)
    np.testing.assert_array_equal(total, codes.reshape(rows, -1, 32).sum(axis=2))
    assert np.abs(q).max() == 127


def test_quantize_rounds_ties_to_even(isa: str) -> None:
    x = np.zeros((1, 32), np.float32)
    x[0, :8] = (127, 0.5, 1.5, 2.5, -0.5, -1.5, 125.5, 126.5)
    q, scale, _ = kernels.quantize(isa, x)
    assert q[0, :8].tolist() == [127, 0, 2, 2, 0, -2, 126, 126]
    assert scale[0, 0] == 1


@pytest.mark.parametrize("size", [1e-45, 1e-39, 1e-37, 1e-36, 1e-30, 3e38])
def test_quantize_at_the_ends_of_float(isa: str, size: float) -> None:
    """No infinity or NaN out of finite input, and the error within half a step."""
    x = np.full((1, 32), size, np.float32) * np.linspace(-1, 1, 32, dtype=np.float32)
    q, scale, _ = kernels.quantize(isa, x)
    assert np.isfinite(scale).all()
    error = np.abs(q * scale[0, 0].astype(np.float64) - x)
    assert error.max() <= max(0.5001 * size / 127, 1.001e-36)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_quantize_marks_what_is_not_finite(isa: str, bad: float, rng: np.random.Generator) -> None:
    x = normal(rng, 2, 192)
    x[1, 70] = bad
    q, scale, total = kernels.quantize(isa, x)
    assert np.isnan(scale[1, 1]) and np.isfinite(scale[[0, 0, 0, 1, 1], [0, 1, 2, 0, 2]]).all()
    assert not q[1, 64:128].any() and not total[1, 2:4].any()


def row_operations(rng: np.random.Generator, isa: str) -> dict[str, Callable[[Array], Array]]:
    """Each operation as a function of rows of 42 numbers alone."""
    w, gate_w = normal(rng, 42), normal(rng, 21)
    return {
        "rmsnorm": lambda x: kernels.rmsnorm(isa, x, w, 1.0, 1e-6),
        "l2norm": lambda x: kernels.l2norm(isa, x, 2, 1.0),
        "silu_mul": lambda x: kernels.silu_mul(isa, x, x),
        "gelu_mul": lambda x: kernels.gelu_mul(isa, x, x),
        "sigmoid_mul": lambda x: kernels.sigmoid_mul(isa, x, x),
        "gated_norm": lambda x: kernels.gated_norm(isa, x, x, gate_w, 1e-6),
    }


OPERATIONS = ("rmsnorm", "l2norm", "silu_mul", "gelu_mul", "sigmoid_mul", "gated_norm")


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_row_does_not_depend_on_its_company(
    isa: str, name: str, rng: np.random.Generator
) -> None:
    operation = row_operations(rng, isa)[name]
    x = normal(rng, 33, 42)
    whole = operation(x)
    for rows in ROWS:
        np.testing.assert_array_equal(operation(x[:rows]), whole[:rows])
        np.testing.assert_array_equal(operation(x[rows - 1 : rows]), whole[rows - 1 : rows])


@pytest.mark.parametrize("name", OPERATIONS)
def test_rows_with_a_stride(isa: str, name: str, rng: np.random.Generator) -> None:
    operation = row_operations(rng, isa)[name]
    view = normal(rng, 4, 100)[:, 13:55]
    np.testing.assert_array_equal(operation(view), operation(view.copy()))


@pytest.mark.parametrize("column", [0, 20, 41])
@pytest.mark.parametrize("name", OPERATIONS)
def test_nan_stays_in_its_row(isa: str, name: str, column: int, rng: np.random.Generator) -> None:
    operation = row_operations(rng, isa)[name]
    x = normal(rng, 3, 42)
    x[1, column] = np.nan
    out = operation(x)
    assert np.isnan(out[1, column])
    assert np.isfinite(out[[0, 2]]).all()


def test_wrong_arguments(rng: np.random.Generator) -> None:
    x = normal(rng, 2, 64)
    with pytest.raises(ValueError, match=r"w: expected \[1, 64\]"):
        kernels.rmsnorm("reference", x, x[0, :63], 0.0, 1e-6)
    with pytest.raises(ValueError, match="heads"):
        kernels.l2norm("reference", x, 3, 1.0)
    with pytest.raises(ValueError, match="up"):
        kernels.silu_mul("reference", x, x[:1])
    with pytest.raises(ValueError, match="gate"):
        kernels.sigmoid_mul("reference", x, x[:, :32])
    with pytest.raises(ValueError, match="w: does not divide"):
        kernels.gated_norm("reference", x, x, x[0, :5], 1e-6)
    with pytest.raises(ValueError, match="ring"):
        kernels.conv("reference", x[:1], x, normal(rng, 64, 4))
    with pytest.raises(ValueError, match="multiple of 32"):
        kernels.quantize("reference", x[:, :48])
    with pytest.raises(ValueError, match="empty"):
        kernels.silu_mul("reference", x[:0], x[:0])
