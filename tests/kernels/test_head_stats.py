"""What a pass over the head reports for a row: argmax, its logit, and the sum of exponentials."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

Matrix = Callable[..., Any]
KINDS = [("f32", 0), ("bf16", 0), ("int8", 32), ("int4", 64)]


def check(stats: Any, logits: np.ndarray[Any, Any], ids: np.ndarray[Any, Any]) -> None:
    argmax, largest, total = stats
    real = logits[:, ids].astype(np.float64)
    np.testing.assert_array_equal(argmax, ids[real.argmax(axis=1)])
    np.testing.assert_array_equal(largest, real.max(axis=1).astype(np.float32))
    want = np.exp(real - real.max(axis=1, keepdims=True)).sum(axis=1)
    np.testing.assert_allclose(total, want, rtol=3e-6)


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 8, 13, 17, 32, 33])
@pytest.mark.parametrize(("scheme", "group"), KINDS)
def test_statistics_of_the_logits(
    isa: str,
    scheme: str,
    group: int,
    rows: int,
    rng: np.random.Generator,
    random_matrix: Matrix,
) -> None:
    head = random_matrix(scheme, 600, 64, group)  # more than two stripes of 256
    x = rng.standard_normal((rows, 64)).astype(np.float32)
    logits = head.matmul(isa, x)
    check(head.head_stats(isa, x, valid=600), logits, np.arange(600))
    for valid, banned in ((1, -1), (17, 3), (256, 255), (257, 256), (531, 530), (599, 0)):
        ids = np.setdiff1d(np.arange(valid), [banned])
        check(head.head_stats(isa, x, valid=valid, banned=banned), logits, ids)


def test_the_likeliest_token_may_be_banned_or_padding(
    isa: str, rng: np.random.Generator, random_matrix: Matrix
) -> None:
    head = random_matrix("f32", 100, 32)
    x = rng.standard_normal((4, 32)).astype(np.float32)
    logits = head.matmul(isa, x)
    for row in range(4):
        best = int(logits[row].argmax())
        ids = np.setdiff1d(np.arange(100), [best])
        stats = head.head_stats(isa, x[row : row + 1], valid=100, banned=best)
        check(stats, logits[row : row + 1], ids)


def test_ranges_combine(isa: str, rng: np.random.Generator, random_matrix: Matrix) -> None:
    head = random_matrix("int8", 410, 64, 32)
    x = rng.standard_normal((3, 64)).astype(np.float32)
    whole = head.head_stats(isa, x, valid=400, banned=77)
    parts = [
        head.head_stats(isa, x, valid=400, banned=77, tiles=tiles)
        for tiles in ((0, 1), (1, 9), (9, 26))
    ]
    for row in range(3):
        best = max(parts, key=lambda part: part[1][row])
        largest = best[1][row]
        assert best[0][row] == whole[0][row] and largest == whole[1][row]
        total = sum(part[2][row] * np.exp(np.float64(part[1][row] - largest)) for part in parts)
        np.testing.assert_allclose(total, whole[2][row], rtol=3e-6)


@pytest.mark.parametrize(("tiles", "valid", "banned"), [((3, 6), 48, -1), ((2, 3), 33, 32)])
def test_a_range_without_real_ids(
    isa: str,
    tiles: tuple[int, int],
    valid: int,
    banned: int,
    rng: np.random.Generator,
    random_matrix: Matrix,
) -> None:
    head = random_matrix("f32", 96, 32)
    x = rng.standard_normal((2, 32)).astype(np.float32)
    argmax, largest, total = head.head_stats(isa, x, valid=valid, banned=banned, tiles=tiles)
    assert argmax.tolist() == [-1, -1]
    assert np.isneginf(largest).all() and not total.any()


def test_ties_go_to_the_lowest_id(isa: str, matrix_of: Matrix) -> None:
    codes = np.ones((300, 32), np.int32)
    codes[[40, 41, 280]] = 3
    head = matrix_of(codes, np.ones((300, 1), np.float16), "int4", 32)
    x = np.ones((2, 32), np.float32)
    assert head.head_stats(isa, x, valid=300)[0].tolist() == [40, 40]
    assert head.head_stats(isa, x, valid=300, banned=40)[0].tolist() == [41, 41]


def test_a_row_does_not_depend_on_its_company(
    isa: str, rng: np.random.Generator, random_matrix: Matrix
) -> None:
    head = random_matrix("int4", 300, 64, 32)
    x = rng.standard_normal((9, 64)).astype(np.float32)
    whole = head.head_stats(isa, x, valid=290, banned=5)
    for row in range(9):
        alone = head.head_stats(isa, x, valid=290, banned=5, index=np.array([row], np.int32))
        for one, all_ in zip(alone, whole, strict=True):
            np.testing.assert_array_equal(one, all_[row : row + 1])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_logit_that_is_not_finite_shows(isa: str, bad: float, random_matrix: Matrix) -> None:
    """The other logits of the row are fine; only one real id of the table is bad."""
    head = random_matrix("f32", 300, 32)
    head.data[:] = 0.01
    head.data[123] = bad
    x = np.ones((2, 32), np.float32)
    _, largest, _ = head.head_stats(isa, x, valid=300)
    assert np.isnan(largest).all()
    _, largest, _ = head.head_stats(isa, x, valid=300, banned=123)  # nobody reads that id now
    assert np.isfinite(largest).all()
    _, largest, _ = head.head_stats(isa, x, valid=123)
    assert np.isfinite(largest).all()


@pytest.mark.parametrize(("scheme", "group"), KINDS)
def test_nan_activations_show(
    isa: str,
    scheme: str,
    group: int,
    rng: np.random.Generator,
    random_matrix: Matrix,
) -> None:
    head = random_matrix(scheme, 40, 64, group)
    x = rng.standard_normal((3, 64)).astype(np.float32)
    x[1, 9] = np.nan
    _, largest, _ = head.head_stats(isa, x, valid=40)
    assert np.isnan(largest).tolist() == [False, True, False]


def test_large_logits(isa: str, matrix_of: Matrix) -> None:
    """exp(logit - max) of logits far apart is 0, not NaN, and the sum stays a sum."""
    codes = np.zeros((64, 32), np.int32)
    codes[7], codes[50] = -7, 7
    head = matrix_of(codes, np.full((64, 1), 1000, np.float16), "int4", 32)
    x = np.full((1, 32), 127.0, np.float32)
    argmax, largest, total = head.head_stats(isa, x, valid=64)
    assert argmax[0] == 50 and largest[0] == 7 * 32 * 127 * 1000 and total[0] == 1


def test_valid_out_of_range(random_matrix: Matrix) -> None:
    head = random_matrix("f32", 20, 8)
    with pytest.raises(ValueError, match="valid"):
        head.head_stats("reference", np.ones((1, 8), np.float32), valid=21)


@pytest.mark.parametrize(("scheme", "group"), KINDS)
def test_temperature_and_penalties(
    isa: str, scheme: str, group: int, rng: np.random.Generator, random_matrix: Matrix
) -> None:
    """Repetition first, then what is subtracted; only the sum is at a temperature."""
    head = random_matrix(scheme, 600, 64, group)
    x = rng.standard_normal((5, 64)).astype(np.float32)
    logits = head.matmul(isa, x)
    penalties = [(0, 0.5), (17, 1.0), (191, -2.0), (192, 0.25), (530, 3.0), (599, 0.1)]
    bent = logits.copy()
    for i, subtract in penalties:
        column = bent[:, i]
        bent[:, i] = np.where(column > 0, column / np.float32(1.5), column * np.float32(1.5))
        bent[:, i] -= np.float32(subtract)
    options = {"valid": 590, "banned": 17, "repetition": 1.5, "penalties": penalties}
    ids = np.setdiff1d(np.arange(590), [17])
    found = head.head(isa, x, with_logits=True, **options)[3]
    np.testing.assert_array_equal(found[:, ids], bent[:, ids])
    assert np.isneginf(np.delete(found, ids, axis=1)).all()
    argmax, largest, total = head.head_stats(isa, x, factor=0.25, **options)
    best = bent[:, ids].max(axis=1)
    np.testing.assert_array_equal(argmax, ids[bent[:, ids].argmax(axis=1)])
    np.testing.assert_array_equal(largest, best)
    want = np.exp((bent[:, ids].astype(np.float64) - best[:, None]) * 0.25).sum(axis=1)
    np.testing.assert_allclose(total, want, rtol=3e-6)


@pytest.mark.parametrize(("scheme", "group"), KINDS)
def test_soft_cap(
    isa: str, scheme: str, group: int, rng: np.random.Generator, random_matrix: Matrix
) -> None:
    """In front of penalties; the statistics are those of the capped logits."""
    head = random_matrix(scheme, 600, 64, group)
    x = 3 * rng.standard_normal((5, 64)).astype(np.float32)
    logits = head.matmul(isa, x).astype(np.float64)
    cap = float(np.abs(logits).mean())
    want = cap * np.tanh(logits / cap)
    want[:, 193] = want[:, 193] - 0.5
    options = {"valid": 590, "banned": 17, "softcap": cap, "penalties": [(193, 0.5)]}
    ids = np.setdiff1d(np.arange(590), [17])
    found = head.head(isa, x, with_logits=True, **options)[3]
    np.testing.assert_allclose(found[:, ids], want[:, ids], atol=1e-6 * cap)
    check(head.head_stats(isa, x, **options), found, ids)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_soft_cap_hides_nothing(isa: str, bad: float, random_matrix: Matrix) -> None:
    head = random_matrix("f32", 300, 32)
    head.data[:] = 0.01
    head.data[123] = bad
    x = np.ones((2, 32), np.float32)
    _, largest, _ = head.head_stats(isa, x, valid=300, softcap=30.0)
    assert np.isnan(largest).all()


def test_a_steep_temperature_leaves_the_best(isa: str, random_matrix: Matrix) -> None:
    head = random_matrix("f32", 400, 32)
    x = np.ones((1, 32), np.float32)
    largest = float(np.finfo(np.float32).max)
    total = head.head_stats(isa, x, factor=largest, valid=400, banned=3)[2]
    assert total.tolist() == [1.0]
