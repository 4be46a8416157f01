"""Arrays to stored bytes and back, and how the loss is measured."""

from __future__ import annotations

import math

import numpy as np
import pytest

from clover_edge.errors import ArgumentError
from clover_edge.quant import CODEBOOK, ErrorStats, Scheme, decode, encode, relative_error
from clover_edge.quant.encode import from_bf16

ALL = [
    Scheme("f32"),
    Scheme("bf16"),
    *(Scheme(name, group) for name in ("int4", "int8") for group in (32, 64, 128)),
    *(Scheme("codebook4", group, CODEBOOK) for group in (32, 64, 128)),
    Scheme("int3", 64),
]
# max |difference| / max |source| of Gaussian weights
WORST = {"f32": 0.0, "bf16": 1 / 256, "int8": 0.005, "int4": 0.17, "codebook4": 0.16, "int3": 0.35}


def named(scheme: Scheme) -> str:
    return f"{scheme.name}-g{scheme.group}"


def gaussian(n: int, k: int) -> np.ndarray:
    return np.random.default_rng(7).standard_normal((n, k)).astype(np.float32)


@pytest.mark.parametrize("n", [1, 16, 23])
@pytest.mark.parametrize("scheme", ALL, ids=named)
def test_decoded_weights_are_close(scheme: Scheme, n: int) -> None:
    x, stats = gaussian(n, 256), ErrorStats()
    data = encode(x, scheme, stats)
    assert data.size == scheme.nbytes(x.shape)
    got = decode(data, x.shape, scheme)
    assert relative_error(x, got) <= WORST[scheme.name]
    assert stats.relative_error == pytest.approx(relative_error(x, got))


@pytest.mark.parametrize("scheme", ALL, ids=named)
def test_joined_chunks_equal_the_whole(scheme: Scheme) -> None:
    x = gaussian(100, 1024)  # larger than the internal chunk, too
    parts = [encode(x[a:b], scheme) for a, b in ((0, 16), (16, 80), (80, 100))]
    assert np.concatenate(parts).tobytes() == encode(x, scheme).tobytes()


@pytest.mark.parametrize("scheme", ALL, ids=named)
def test_wrong_size_is_refused(scheme: Scheme) -> None:
    with pytest.raises(ArgumentError, match="expected"):
        decode(np.zeros(3, np.uint8), (16, 128), scheme)


def test_float_schemes_keep_vectors() -> None:
    x = gaussian(1, 77)[0]
    assert (decode(encode(x, Scheme("f32")), x.shape, Scheme("f32")) == x).all()


def to_bf16(x: np.ndarray) -> np.ndarray:
    return encode(x, Scheme("bf16")).view("<u2").reshape(x.shape)


def test_bf16_rounds_to_nearest_even() -> None:
    bits = np.array([0x3F800000, 0x3F807FFF, 0x3F808000, 0x3F808001, 0x3F818000], np.uint32)
    wanted = [0x3F80, 0x3F80, 0x3F80, 0x3F81, 0x3F82]
    assert to_bf16(bits.view(np.float32)).tolist() == wanted


def test_bf16_values_survive_unchanged() -> None:
    every = np.arange(65536, dtype=np.uint16)
    finite = every[(every & 0x7F80) != 0x7F80]
    assert (to_bf16(from_bf16(finite)) == finite).all()
    assert (to_bf16(finite) == finite).all()  # the bits themselves as the source
    assert (
        decode(encode(finite, Scheme("f32")), finite.shape, Scheme("f32")).view(np.uint32)
        == from_bf16(finite).view(np.uint32)
    ).all()


def test_every_finite_half_is_widened_exactly() -> None:
    halves = np.arange(65536, dtype=np.uint16).view(np.float16)
    finite = halves[np.isfinite(halves)]
    stored = encode(finite, Scheme("f32")).view(np.float32)
    assert (stored.view(np.uint32) == finite.astype(np.float32).view(np.uint32)).all()


def test_value_beyond_bf16_is_refused() -> None:
    with pytest.raises(ArgumentError, match="bfloat16"):
        to_bf16(np.array([3.4028235e38], np.float32))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", [np.float32, np.float16, np.uint16])
@pytest.mark.parametrize("scheme", ALL, ids=named)
def test_value_that_is_not_finite_is_named(scheme: Scheme, kind: type, value: float) -> None:
    x = gaussian(40, 256)
    x[35, 200] = value
    source = (x.view(np.uint32) >> 16).astype(np.uint16) if kind is np.uint16 else x.astype(kind)
    with pytest.raises(ArgumentError, match=r"(nan|inf) \(row 35, column 200\)"):
        encode(source, scheme)


def test_stats_of_chunks_equal_stats_of_the_whole() -> None:
    x, y = gaussian(32, 64), gaussian(32, 64) * np.float32(1.01)
    whole, parts = ErrorStats(), ErrorStats()
    whole.add(x, y)
    parts.add(x[:10], y[:10])
    parts.add(x[10:], y[10:])
    assert parts.sqnr_db == pytest.approx(whole.sqnr_db)
    assert whole.sqnr_db == pytest.approx(40, abs=0.01)
    assert parts.relative_error == whole.relative_error == pytest.approx(0.01, rel=1e-3)


def test_stats_of_exact_and_of_zero_tensors() -> None:
    zero = np.zeros((4, 4), np.float32)
    exact, lost = ErrorStats(), ErrorStats()
    exact.add(zero, zero)
    lost.add(zero, zero + 1)
    assert exact.sqnr_db is None and exact.relative_error == 0
    assert lost.sqnr_db == -math.inf and lost.relative_error == 1
