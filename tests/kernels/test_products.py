"""Products with stored matrices: exact codes, odd sizes, rows that do not know each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from clover_edge import _core

ROWS = (1, 2, 3, 5, 8, 13, 17, 32, 33)
PACKED = [(scheme, group) for scheme in ("int8", "int4", "codebook4") for group in (32, 64, 128)]
PACKED.append(("int3", 64))
EXTREMES = {"int8": (-127, 127), "int4": (-8, 7), "int3": (-4, 3), "codebook4": (-127, 113)}
FLOATS = [("f32", 0), ("bf16", 0)]


def block_of(k: int) -> int:
    """Columns of activations that share a scale."""
    return next(block for block in (128, 64, 32) if k % block == 0)


def quantize(x: NDArray[np.float32]) -> NDArray[np.float64]:
    """Activations [rows, k] as int8 codes carry them, in numpy."""
    parts = x.reshape(len(x), -1, block_of(x.shape[1]))
    largest = np.abs(parts).max(axis=2, keepdims=True)
    inverse = np.divide(np.float32(127), largest, out=np.zeros_like(largest), where=largest > 0)
    codes = np.rint(parts * inverse)
    return (codes * (largest / np.float32(127)).astype(np.float64)).reshape(x.shape)


def expected(stored: Any, x: NDArray[np.float32]) -> NDArray[np.float64]:
    """The product in float64: of the integers with packed weights, of the floats otherwise."""
    if not stored.group:
        return x.astype(np.float64) @ stored.dense.T
    return quantize(x) @ stored.dense.T


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(("scheme", "group"), PACKED + FLOATS)
def test_product_equals_numpy(
    isa: str,
    scheme: str,
    group: int,
    rows: int,
    rng: np.random.Generator,
    random_matrix: Callable[..., Any],
    relative: Callable[[Any, Any], float],
) -> None:
    for n, k in ((1, 128), (16, 128), (37, 256), (70, 384)):
        stored = random_matrix(scheme, n, k, group)
        x = rng.standard_normal((rows, k)).astype(np.float32)
        assert relative(stored.matmul(isa, x), expected(stored, x)) < 2e-6, (n, k)


@pytest.mark.parametrize("scheme", ["f32", "bf16"])
@pytest.mark.parametrize("k", [1, 3, 7, 9, 17, 33, 100])
def test_float_product_at_odd_depth(
    isa: str,
    scheme: str,
    k: int,
    rng: np.random.Generator,
    random_matrix: Callable[..., Any],
    relative: Callable[[Any, Any], float],
) -> None:
    stored = random_matrix(scheme, 21, k)
    x = rng.standard_normal((6, k)).astype(np.float32)
    assert relative(stored.matmul(isa, x), expected(stored, x)) < 2e-6


@pytest.mark.parametrize(("scheme", "group"), PACKED)
def test_smallest_depth_is_one_group(
    isa: str,
    scheme: str,
    group: int,
    rng: np.random.Generator,
    random_matrix: Callable[..., Any],
    relative: Callable[[Any, Any], float],
) -> None:
    stored = random_matrix(scheme, 19, group, group)
    x = rng.standard_normal((3, group)).astype(np.float32)
    assert relative(stored.matmul(isa, x), expected(stored, x)) < 2e-6


@pytest.mark.parametrize(("scheme", "group"), PACKED)
def test_packed_products_have_the_bits_of_reference(
    fast_isa: str,
    scheme: str,
    group: int,
    rng: np.random.Generator,
    random_matrix: Callable[..., Any],
) -> None:
    stored = random_matrix(scheme, 53, 512, group)
    x = (rng.standard_normal((7, 512)) * 10 ** rng.uniform(-3, 3, (7, 1))).astype(np.float32)
    np.testing.assert_array_equal(stored.matmul(fast_isa, x), stored.matmul("reference", x))


@pytest.mark.parametrize(("scheme", "group"), PACKED)
def test_int8_activations_cost_little(
    scheme: str,
    group: int,
    rng: np.random.Generator,
    random_matrix: Callable[..., Any],
    relative: Callable[[Any, Any], float],
) -> None:
    stored = random_matrix(scheme, 64, 1024, group)
    x = rng.standard_normal((16, 1024)).astype(np.float32)
    exact = x.astype(np.float64) @ stored.dense.T
    assert relative(stored.matmul("reference", x), exact) < 1.2e-2


@pytest.mark.parametrize(
    ("scheme", "group"),
    [*FLOATS, ("int8", 32), ("int4", 64), ("int3", 64), ("codebook4", 32)],
)
def test_a_row_does_not_depend_on_its_company(
    isa: str,
    scheme: str,
    group: int,
    rng: np.random.Generator,
    random_matrix: Callable[..., Any],
) -> None:
    stored = random_matrix(scheme, 45, 192, group)
    x = rng.standard_normal((33, 192)).astype(np.float32)
    whole = stored.matmul(isa, x)
    alone = np.concatenate([stored.matmul(isa, x[r : r + 1]) for r in range(33)])
    np.testing.assert_array_equal(whole, alone)
    for rows in ROWS:
        np.testing.assert_array_equal(stored.matmul(isa, x[:rows]), whole[:rows])


@pytest.mark.parametrize(("scheme", "group"), [*FLOATS, ("int8", 64), ("int4", 32)])
def test_tiles_do_not_depend_on_the_range(
    isa: str,
    scheme: str,
    group: int,
    rng: np.random.Generator,
    random_matrix: Callable[..., Any],
) -> None:
    stored = random_matrix(scheme, 75, 128, group)  # five tiles, the last of 11 rows
    x = rng.standard_normal((5, 128)).astype(np.float32)
    whole = stored.matmul(isa, x)
    for first in range(5):
        for last in range(first, 6):
            part = stored.matmul(isa, x, tiles=(first, min(last, 5)))
            inside = slice(first * 16, min(last, 5) * 16)
            np.testing.assert_array_equal(part[:, inside], whole[:, inside])
            assert not part[:, : inside.start].any() and not part[:, inside.stop :].any()


@pytest.mark.parametrize(("scheme", "group"), [("f32", 0), ("int8", 32), ("int4", 32)])
def test_gathered_rows(
    isa: str,
    scheme: str,
    group: int,
    rng: np.random.Generator,
    random_matrix: Callable[..., Any],
) -> None:
    stored = random_matrix(scheme, 20, 96, group)
    x = rng.standard_normal((9, 96)).astype(np.float32)
    index = np.array([8, 0, 3, 3, 5, 1, 8], np.int32)
    np.testing.assert_array_equal(stored.matmul(isa, x, index=index), stored.matmul(isa, x)[index])


@pytest.mark.parametrize(("scheme", "group"), [("f32", 0), ("bf16", 0), ("int4", 32)])
def test_rows_with_a_stride(
    isa: str,
    scheme: str,
    group: int,
    rng: np.random.Generator,
    random_matrix: Callable[..., Any],
) -> None:
    stored = random_matrix(scheme, 20, 96, group)
    wide = rng.standard_normal((6, 200)).astype(np.float32)
    view = wide[:, 40:136]
    np.testing.assert_array_equal(stored.matmul(isa, view), stored.matmul(isa, view.copy()))


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("scheme", "group"), PACKED)
def test_extreme_codes_do_not_saturate(
    isa: str, scheme: str, group: int, sign: int, matrix_of: Callable[..., Any]
) -> None:
    """Every code and every activation at its largest: any 16-bit sum on the way would overflow."""
    k = 256
    for code in EXTREMES[scheme]:
        codes = np.full((18, k), code, np.int32)
        stored = matrix_of(codes, np.ones((18, k // group), np.float16), scheme, group)
        x = np.full((9, k), sign * 127.0, np.float32)
        np.testing.assert_array_equal(
            stored.matmul(isa, x), np.full((9, 18), sign * 127.0 * code * k)
        )


@pytest.mark.parametrize(("scheme", "group"), PACKED)
def test_alternating_extremes(
    isa: str, scheme: str, group: int, rng: np.random.Generator, matrix_of: Callable[..., Any]
) -> None:
    low, high = EXTREMES[scheme]
    k = 256
    codes = rng.choice(np.array([low, high], np.int32), (32, k))
    stored = matrix_of(codes, np.ones((32, k // group), np.float16), scheme, group)
    x = rng.choice(np.array([-127, 127], np.float32), (5, k))
    np.testing.assert_array_equal(stored.matmul(isa, x), x.astype(np.float64) @ codes.T)


@pytest.mark.parametrize("group", [32, 128])
def test_the_one_code_that_no_exporter_writes(
    isa: str, group: int, matrix_of: Callable[..., Any]
) -> None:
    """-128 can stand in a damaged file: every instruction set reads it as -128."""
    codes = np.full((16, 128), -128, np.int32)
    stored = matrix_of(codes, np.ones((16, 128 // group), np.float16), "int8", group)
    x = np.full((4, 128), 127.0, np.float32)
    np.testing.assert_array_equal(stored.matmul(isa, x), np.full((4, 16), -128 * 127.0 * 128))


@pytest.mark.parametrize(("scheme", "group"), [*FLOATS, ("int8", 32), ("int4", 32)])
def test_zero_rows_give_zero(
    isa: str, scheme: str, group: int, random_matrix: Callable[..., Any]
) -> None:
    stored = random_matrix(scheme, 20, 64, group)
    assert not stored.matmul(isa, np.zeros((3, 64), np.float32)).any()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(("scheme", "group"), [*FLOATS, ("int8", 64), ("int4", 32)])
def test_what_is_not_finite_reaches_its_own_row_only(
    isa: str,
    scheme: str,
    group: int,
    bad: float,
    rng: np.random.Generator,
    random_matrix: Callable[..., Any],
) -> None:
    stored = random_matrix(scheme, 20, 128, group)
    x = rng.standard_normal((6, 128)).astype(np.float32)
    clean = stored.matmul(isa, x)
    x[2, 77] = bad
    y = stored.matmul(isa, x)
    assert not np.isfinite(y[2]).any()
    others = [0, 1, 3, 4, 5]
    np.testing.assert_array_equal(y[others], clean[others])


@pytest.mark.parametrize(("scheme", "group"), PACKED + FLOATS)
def test_dequantised_rows(
    isa: str, scheme: str, group: int, random_matrix: Callable[..., Any]
) -> None:
    stored = random_matrix(scheme, 35, 128, group)
    for row in (0, 1, 15, 16, 34):
        got = _core.kernels.dequantize_row(isa, *stored.arguments, row, **stored.options)
        np.testing.assert_array_equal(got, stored.dense[row].astype(np.float32))


def test_every_half_precision_scale(isa: str, matrix_of: Callable[..., Any]) -> None:
    """Normal, subnormal, negative, zero: all finite 16-bit patterns as scales of a row."""
    bits = np.concatenate([np.arange(0, 0x7C00), np.arange(0x8000, 0xFC00)]).astype(np.uint16)
    scales = bits.view(np.float16)[: len(bits) // 16 * 16].reshape(-1, 1)
    codes = np.full((len(scales), 32), 3, np.int32)
    stored = matrix_of(codes, scales, "int4", 32)
    x = np.zeros((1, 32), np.float32)
    x[0, 5] = 127.0
    np.testing.assert_array_equal(
        stored.matmul(isa, x)[0], scales[:, 0].astype(np.float32) * np.float32(3 * 127)
    )
    last = len(scales) - 1
    row = _core.kernels.dequantize_row(isa, *stored.arguments, last)
    np.testing.assert_array_equal(row, np.full(32, scales[last, 0].astype(np.float32) * 3))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scheme": "int5"}, "scheme"),
        ({"scheme": "int3"}, "int3 has groups of 64"),
        ({"scheme": "codebook4"}, "codebook"),
        ({"codebook": np.zeros(16, np.int8)}, "codebook"),
        ({"group": 48}, "group"),
        ({"k": 100}, "multiple of the group"),
        ({"n": 40}, "data: expected"),
        ({"x": np.zeros((2, 63), np.float32)}, "rows of 64"),
        ({"index": np.array([0, 2], np.int32)}, "index"),
        ({"index": np.array([-1], np.int32)}, "index"),
        ({"tiles": (0, 3)}, "tiles"),
        ({"tiles": (2, 1)}, "tiles"),
    ],
)
def test_wrong_arguments(
    change: dict[str, Any], message: str, random_matrix: Callable[..., Any]
) -> None:
    stored = random_matrix("int4", 20, 64, 32)
    names = ("data", "scheme", "n", "k", "group")
    arguments = dict(zip(names, stored.arguments, strict=True))
    arguments["x"] = np.zeros((2, 64), np.float32)
    with pytest.raises(ValueError, match=message):
        _core.kernels.matmul("reference", **{**arguments, **change})
