"""The core against the plain reference, and every method against what it promises."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quant_reference import quantise

from clover_edge import _core
from clover_edge.errors import ArgumentError
from clover_edge.quant import (
    CODEBOOK,
    DATA_FREE,
    METHODS,
    Calibration,
    ErrorStats,
    Scheme,
    decode,
    encode,
    settle,
)
from clover_edge.quant.encode import from_bf16
from clover_edge.quant.methods import encoder
from clover_edge.quant.tiles import pack

PACKED = [
    *(Scheme(name, group) for name in ("int8", "int4") for group in (32, 64, 128)),
    *(Scheme("codebook4", group, CODEBOOK) for group in (32, 64, 128)),
    Scheme("int3", 64),
]
SEARCHED = [scheme for scheme in PACKED if scheme.name != "int8"]


def named(scheme: Scheme) -> str:
    return f"{scheme.name}-g{scheme.group}"


def draw(n: int, k: int, seed: int) -> np.ndarray:
    """Heavy-tailed weights, some groups all zero, some huge, some far below float16."""
    rng = np.random.default_rng(seed)
    x = rng.standard_t(3, (n, k)) * 0.05
    sizes = rng.choice([1, 1, 1, 1, 0, 1e4, 1e-6, 1e-35, 1e-42], (n, k // 32))
    return (x * np.repeat(sizes, 32, axis=1)).astype(np.float32)


def activations(k: int, seed: int = 0) -> np.ndarray:
    """Samples [4k, k], correlated, of spreads from 1 to some 30."""
    rng = np.random.default_rng(seed)
    latent = rng.standard_normal((4 * k, k // 4)) @ rng.standard_normal((k // 4, k))
    return (latent + rng.standard_normal((4 * k, k))) * np.exp(1.5 * rng.standard_normal(k))


def second_moments(k: int, seed: int = 0) -> np.ndarray:
    x = activations(k, seed)
    return np.asarray(x.T @ x / len(x))


@settings(max_examples=60, deadline=None)
@given(
    scheme=st.sampled_from(PACKED),
    method=st.sampled_from([*DATA_FREE, "weighted"]),
    n=st.integers(1, 50),
    groups=st.integers(1, 3),
    seed=st.integers(0, 999),
)
def test_bytes_equal_the_reference(
    scheme: Scheme, method: str, n: int, groups: int, seed: int
) -> None:
    x = draw(n, groups * scheme.group, seed)
    moments = np.random.default_rng(seed).random(x.shape[1]).astype(np.float32) ** 4
    calibration = Calibration(moments) if method == "weighted" else None
    stats = ErrorStats()
    got = encode(x, scheme, stats, method=method, calibration=calibration)
    with np.errstate(under="ignore"):
        wanted = pack(*quantise(x, scheme, method, moments), scheme)
    assert got.tobytes() == wanted.tobytes()
    plain = ErrorStats()
    plain.add(x, decode(got, x.shape, scheme))
    assert stats.signal == pytest.approx(plain.signal, rel=1e-5, abs=1e-300)
    assert stats.noise == pytest.approx(plain.noise, rel=1e-4, abs=1e-300)
    assert (stats.largest, stats.worst) == pytest.approx((plain.largest, plain.worst), rel=1e-6)


@pytest.mark.parametrize("scheme", PACKED, ids=named)
def test_error_feedback_equals_the_reference(scheme: Scheme) -> None:
    """All but the few codes on which another Cholesky's last bit decides."""
    k = 256 if scheme.group == 128 else 192
    x, hessian = draw(21, k, 1), second_moments(k)
    got = encode(x, scheme, method="gptq", calibration=Calibration(hessian))
    with np.errstate(under="ignore"):
        wanted = pack(*quantise(x, scheme, "gptq", hessian), scheme)
    assert (got != wanted).mean() < 0.01


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("scheme", PACKED, ids=named)
def test_neither_threads_nor_instruction_set_change_a_byte(scheme: Scheme, method: str) -> None:
    x, hessian = draw(100, 256, 2), second_moments(256)
    weights = np.ascontiguousarray(np.diagonal(hessian), np.float32)
    made = []
    for threads, isa in [(1, None), (3, None), *((2, isa) for isa in _core.available_isas())]:
        core = _core.quant.Encoder(threads, isa)
        out = np.empty(scheme.nbytes(x.shape), np.uint8)
        loss = core.encode(
            x,
            out,
            scheme=scheme.name,
            group=scheme.group,
            codebook=scheme.codebook,
            method=method,
            weights=weights,
            factor=core.factor(hessian, 0.01),
        )
        made.append((out.tobytes(), loss))
    assert made == [made[0]] * len(made)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("scheme", PACKED, ids=named)
def test_joined_chunks_equal_the_whole(scheme: Scheme, method: str) -> None:
    x, calibration = draw(60, 256, 3), Calibration(second_moments(256))
    options = {"method": method, "calibration": calibration}
    parts = [encode(x[a:b], scheme, **options) for a, b in ((0, 16), (16, 48), (48, 60))]
    assert np.concatenate(parts).tobytes() == encode(x, scheme, **options).tobytes()


@pytest.mark.parametrize("scheme", [Scheme("f32"), Scheme("bf16"), *PACKED], ids=named)
def test_sixteen_bit_sources_equal_their_floats(scheme: Scheme) -> None:
    bits = (draw(40, 128, 4).view(np.uint32) >> 16).astype(np.uint16)
    halves = draw(40, 128, 5).astype(np.float16)
    for source, floats in ((bits, from_bf16(bits)), (halves, halves.astype(np.float32))):
        assert encode(source, scheme).tobytes() == encode(floats, scheme).tobytes()


def errors(scheme: Scheme, method: str, hessian: np.ndarray) -> dict[str, float]:
    """What each method is after: sums over a matrix of Student-t weights."""
    x = np.random.default_rng(6).standard_t(5, (48, len(hessian))).astype(np.float32)
    stored = encode(x, scheme, method=method, calibration=Calibration(hessian))
    d = decode(stored, x.shape, scheme).astype(np.float64) - x
    return {
        "squares": float((d**2).sum()),
        "small powers": float((np.abs(d) ** 0.75).sum()),
        "weighted": float((d**2 @ np.diagonal(hessian)).sum()),
        "outputs": float(((d @ hessian) * d).sum()),
    }


@pytest.mark.parametrize("scheme", SEARCHED, ids=named)
def test_each_method_is_best_at_what_it_is_after(scheme: Scheme) -> None:
    hessian = second_moments(256)
    of = {method: errors(scheme, method, hessian) for method in METHODS}
    assert of["rtn"]["squares"] < 0.8 * of["absmax"]["squares"]
    assert of["hqq"]["small powers"] < of["rtn"]["small powers"]
    assert of["weighted"]["weighted"] < 0.97 * of["rtn"]["weighted"]
    assert of["gptq"]["outputs"] < 0.5 * of["weighted"]["outputs"]


def test_error_feedback_helps_int8() -> None:
    hessian = second_moments(256)
    scheme = Scheme("int8", 32)
    plain, fed = (errors(scheme, method, hessian)["outputs"] for method in ("rtn", "gptq"))
    assert fed < 0.5 * plain


def test_columns_that_never_saw_an_activation_still_get_codes() -> None:
    hessian = second_moments(128)
    hessian[:, 40:80] = hessian[40:80] = 0
    hessian[96:, :] = hessian[:, 96:] = 0
    x = draw(16, 128, 7) * 0 + np.random.default_rng(7).standard_normal((16, 128), np.float32)
    for method in ("weighted", "gptq"):
        stats = ErrorStats()
        encode(x, Scheme("int4", 32), stats, method=method, calibration=Calibration(hessian))
        assert stats.sqnr_db is not None and stats.sqnr_db > 10


def test_method_settles_for_what_calibration_allows() -> None:
    hessian = second_moments(64)
    whole, squares = Calibration(hessian), Calibration(np.diagonal(hessian))
    broken = hessian.copy()
    broken[3, 4] = broken[4, 3] = 1e9
    cases = [
        ("gptq", whole, "gptq"),
        ("gptq", squares, "weighted"),
        ("gptq", Calibration(broken), "weighted"),
        ("gptq", Calibration(np.zeros((64, 64))), "rtn"),
        ("gptq", None, "rtn"),
        ("weighted", whole, "weighted"),
        ("weighted", Calibration(np.zeros(64)), "rtn"),
        ("weighted", None, "rtn"),
        ("hqq", None, "hqq"),
        ("hqq", whole, "hqq"),
    ]
    for method, calibration, wanted in cases:
        assert settle(method, calibration) == wanted


def test_factor_is_made_once_for_all_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    calibration, made = Calibration(second_moments(64)), []
    real = encoder

    class Counting:
        def factor(self, *arguments: object, **named: object) -> object:
            made.append(arguments)
            return real(0).factor(*arguments, **named)  # type: ignore[arg-type]

        def encode(self, *arguments: object, **named: object) -> object:
            return real(0).encode(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr("clover_edge.quant.methods.encoder", lambda threads: Counting())
    for seed in range(3):
        encode(draw(16, 64, seed), Scheme("int4", 32), method="gptq", calibration=calibration)
    assert len(made) == 1


@pytest.mark.parametrize(
    "moments",
    [
        np.ones((3, 4)),
        np.ones((2, 2, 2)),
        np.ones(0),
        np.array([1.0, np.nan]),
        np.array([1.0, -1e-9]),
        np.diag([1.0, np.inf]),
    ],
)
def test_calibration_that_is_none_is_refused(moments: np.ndarray) -> None:
    with pytest.raises(ArgumentError, match="calibration"):
        Calibration(moments)


def test_calibration_of_another_width_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"64 columns for a matrix of 128"):
        encode(
            draw(16, 128, 0),
            Scheme("int4", 32),
            method="gptq",
            calibration=Calibration(second_moments(64)),
        )


def test_unknown_method_is_refused() -> None:
    with pytest.raises(ArgumentError, match="awq"):
        encode(draw(16, 128, 0), Scheme("int4", 32), method="awq")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"out": np.empty(7, np.uint8)}, "7 bytes"),
        ({"scheme": "int5"}, "int5"),
        ({"group": 48}, "48"),
        ({"group": 128}, "128"),
        ({"scheme": "codebook4"}, "codebook"),
        ({"codebook": CODEBOOK}, "codebook"),
        ({"method": "awq"}, "awq"),
        ({"method": "weighted"}, "weights"),
        ({"method": "weighted", "weights": np.ones(63, np.float32)}, "weights"),
        ({"method": "gptq"}, "factor"),
        ({"rows": np.zeros((16, 64))}, "float32"),
        ({"rows": np.zeros((16, 64), np.int16)}, "float32"),
        ({"rows": np.zeros((16, 128), np.float32)[:, ::2]}, "contiguous"),
        ({"rows": np.zeros((2, 16, 64), np.float32)}, "matrix"),
    ],
)
def test_core_checks_what_it_is_handed(change: dict[str, object], said: str) -> None:
    scheme = Scheme("int4", 32)
    given = {
        "rows": np.zeros((16, 64), np.float32),
        "out": np.empty(scheme.nbytes((16, 64)), np.uint8),
        "scheme": "int4",
        "group": 32,
        "codebook": (),
        "method": "rtn",
    }
    with pytest.raises(ArgumentError, match=said):
        _core.quant.Encoder(1).encode(**{**given, **change})  # type: ignore[arg-type]


@pytest.mark.parametrize("hessian", [np.ones((3, 4)), np.ones(3), np.ones((3, 3), np.int64)])
def test_factor_of_what_is_no_hessian_is_refused(hessian: np.ndarray) -> None:
    with pytest.raises(ArgumentError, match="hessian"):
        _core.quant.Encoder(1).factor(hessian, 0.01)
