"""Tile layout 1, byte by byte, and its inverse."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clover_edge.errors import ArgumentError
from clover_edge.quant import Scheme
from clover_edge.quant.tiles import pack, unpack

SCHEMES = [Scheme(name, group) for name in ("int4", "int8") for group in (32, 64, 128)]


def random_codes(scheme: Scheme, n: int, k: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    if scheme.name == "int4":
        codes = rng.integers(0, 16, (n, k)).astype(np.uint8)
    else:
        codes = rng.integers(-127, 128, (n, k)).astype(np.int8)
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
    group_bytes = 32 + (8 * g if scheme.name == "int4" else 16 * g)
    for row in range(n):
        tile, r = divmod(row, 16)
        for column in range(k):
            group, inside = divmod(column, g)
            start = (tile * (k // g) + group) * group_bytes
            scale = data[start + 2 * r : start + 2 * r + 2].view("<f2")[0]
            assert scale == scales[row, group]
            if scheme.name == "int4":
                chunk, within = divmod(inside, 8)
                byte = data[start + 32 + 64 * chunk + 4 * r + within % 4]
                assert (byte >> 4 if within >= 4 else byte & 15) == codes[row, column]
            else:
                chunk, j = divmod(inside, 4)
                byte = data[start + 32 + 64 * chunk + 4 * r + j]
                assert byte.view(np.int8) == codes[row, column]


@pytest.mark.parametrize(("name", "zero"), [("int4", 0x88), ("int8", 0)])
def test_padded_rows_hold_zero(name: str, zero: int) -> None:
    scheme = Scheme(name, 32)
    codes, scales = random_codes(scheme, 3, 32)
    data = pack(codes, scales, scheme)
    assert (data[6:32] == 0).all()
    assert (data[32:].reshape(-1, 16, 4)[:, 3:] == zero).all()


def test_wrong_size_is_refused() -> None:
    with pytest.raises(ArgumentError, match="288"):
        unpack(np.zeros(287, np.uint8), (16, 32), Scheme("int4", 32))
