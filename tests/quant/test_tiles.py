"""Tile layout 1, byte by byte, and its inverse."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clover_edge.errors import ArgumentError
from clover_edge.quant import CODEBOOK, Scheme
from clover_edge.quant.tiles import pack, unpack

SCHEMES = [
    *(Scheme(name, group) for name in ("int4", "int8") for group in (32, 64, 128)),
    *(Scheme("codebook4", group, CODEBOOK) for group in (32, 64, 128)),
    Scheme("int3", 64),
]


def random_codes(scheme: Scheme, n: int, k: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    if scheme.name == "int8":
        codes = rng.integers(-127, 128, (n, k)).astype(np.int8)
    else:
        codes = rng.integers(0, 8 if scheme.name == "int3" else 16, (n, k)).astype(np.uint8)
    return codes, rng.standard_normal((n, k // scheme.group)).astype(np.float16)


@given(
    scheme=st.sampled_from(SCHEMES),
    n=st.integers(1, 50),
    groups=st.integers(1, 4),
    seed=st.integers(0, 99),
)
def test_unpack_returns_what_was_packed(scheme: Scheme, n: int, groups: int, seed: int) -> None:
    codes, scales = random_codes(scheme, n, groups * scheme.group, seed)
    data = pack(codes, scales, scheme)
    assert data.dtype == np.uint8 and data.size == scheme.nbytes(codes.shape)
    got_codes, got_scales = unpack(data, codes.shape, scheme)
    assert got_codes.dtype == codes.dtype and (got_codes == codes).all()
    assert got_scales.tobytes() == scales.tobytes()


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda s: f"{s.name}-g{s.group}")
def test_every_byte_is_where_the_contract_says(scheme: Scheme) -> None:
    """Reads single codes and scales by the formulas of the format, in plain loops."""
    n, k, g = 37, 2 * scheme.group, scheme.group
    codes, scales = random_codes(scheme, n, k)
    data = pack(codes, scales, scheme)
    group_bytes = 32 + {"int8": 16 * g, "int3": 384}.get(scheme.name, 8 * g)
    for row in range(n):
        tile, r = divmod(row, 16)
        for column in range(k):
            group, inside = divmod(column, g)
            start = (tile * (k // g) + group) * group_bytes
            scale = data[start + 2 * r : start + 2 * r + 2].view("<f2")[0]
            assert scale == scales[row, group]
            code = stored_code(data[start + 32 : start + group_bytes], scheme.name, r, inside)
            assert code == codes[row, column]


def stored_code(group: np.ndarray, scheme: str, r: int, column: int) -> int:
    """One code of a group's bytes behind the scales."""
    place, quad = 4 * r + column % 4, column // 4
    if scheme == "int8":
        return int(group[64 * quad + place].view(np.int8))
    if scheme == "int3":
        low = group[64 * (quad // 4) + place] >> 2 * (quad % 4)
        high = group[256 + 64 * (quad // 8) + place] >> quad % 8
        return int(low & 3) + 4 * int(high & 1)
    return int(group[64 * (quad // 2) + place] >> 4 * (quad % 2)) & 15


@pytest.mark.parametrize(
    ("scheme", "zero"),
    [
        (Scheme("int4", 64), [0x88] * 8),
        (Scheme("codebook4", 64, CODEBOOK), [0x88] * 8),
        (Scheme("int8", 64), [0] * 16),
        (Scheme("int3", 64), [0, 0, 0, 0, 0xFF, 0xFF]),  # code 4: only the high bit is set
    ],
    ids=["int4", "codebook4", "int8", "int3"],
)
def test_padded_rows_hold_the_code_of_zero(scheme: Scheme, zero: list[int]) -> None:
    codes, scales = random_codes(scheme, 3, 64)
    data = pack(codes, scales, scheme)
    assert (data[6:32] == 0).all()
    vectors = data[32:].reshape(-1, 16, 4)[:, 3:]
    assert (vectors == np.array(zero)[:, None, None]).all()


def test_wrong_size_is_refused() -> None:
    with pytest.raises(ArgumentError, match="288"):
        unpack(np.zeros(287, np.uint8), (16, 32), Scheme("int4", 32))
