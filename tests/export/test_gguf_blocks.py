"""Block types of GGUF: values against the gguf package, kept codes against those values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_gguf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clover_edge.errors import UnsupportedModelError
from clover_edge.export.sources.gguf_file import GgufFiles
from clover_edge.export.sources.view import View
from clover_edge.quant import Scheme, decode
from clover_edge.quant.tiles import pack

gguf = pytest.importorskip("gguf", reason="GGUF files need the extra: gguf")

DECODED = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL", "MXFP4", "Q4_K", "Q5_K", "Q6_K")
DECODED += ("F16", "BF16", "F32", "Q2_K", "Q3_K", "IQ4_XS")
KEPT = {"Q4_0": "int4", "Q5_0": "int8", "Q8_0": "int8", "IQ4_NL": "codebook4", "MXFP4": "codebook4"}
N, K = 21, 256


def random_blocks(kind: str, rng: np.random.Generator) -> np.ndarray:
    """Rows of blocks whose codes are random bytes and whose scales are finite."""
    block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    raw = rng.integers(0, 256, (N, K // block, size), dtype=np.uint8)
    scales = rng.choice([-1, 1], (N, K // block)) * np.exp2(rng.uniform(-20, 3, (N, K // block)))
    half = scales.astype(np.float16).reshape(N, -1, 1).view(np.uint8)
    if kind == "Q8_0":
        raw[raw == 128] = 129  # -128 is no code of int8
    places = {"Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}
    if kind == "MXFP4":
        raw[..., 0] = rng.integers(104, 144, raw.shape[:2])
    elif kind in ("F16", "BF16", "F32"):
        values = rng.standard_normal((N, K)).astype(np.float32)
        return gguf.quants.quantize(values, gguf.GGMLQuantizationType[kind]).view(np.uint8)
    else:
        second = (2,) if kind in ("Q4_1", "Q5_1") else ()
        for place in places.get(kind, (0, *second)):
            raw[..., place : place + 2] = half
    return raw.reshape(N, -1)


def write(path: Path, raw: np.ndarray, kind: str) -> np.ndarray:
    """One tensor ``x`` of these bytes; what the package decodes from them."""
    quantised = gguf.GGMLQuantizationType[kind]
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_tensor("x", raw, raw_shape=raw.shape, raw_dtype=quantised)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return np.asarray(gguf.quants.dequantize(raw, quantised), np.float32).reshape(N, K)


def kept(tensor: Any) -> tuple[Scheme, np.ndarray] | None:
    stored = tensor.stored()
    if stored is None:
        return None
    pieces = [stored.read(start, min(start + 8, N)) for start in range(0, N, 8)]
    codes, scales = (np.concatenate(part) for part in zip(*pieces, strict=True))
    return stored.scheme, decode(pack(codes, scales, stored.scheme), (N, K), stored.scheme)


@pytest.mark.parametrize("kind", DECODED)
def test_values_are_the_packages(tmp_path: Path, kind: str) -> None:
    wanted = write(tmp_path / "x.gguf", random_blocks(kind, np.random.default_rng(0)), kind)
    files = GgufFiles([tmp_path / "x.gguf"])
    tensor = files.found["x"]
    tensor.check_readable()
    assert np.isfinite(wanted).all()
    assert (np.concatenate([tensor.rows(i, i + 3) for i in range(0, N, 3)]) == wanted).all()
    assert (tensor.stored() is not None) == (kind in KEPT)
    files.close()


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 2**32 - 1))
@pytest.mark.parametrize("kind", KEPT)
def test_kept_codes_mean_the_same_values(tmp_path: Path, kind: str, seed: int) -> None:
    raw = random_blocks(kind, np.random.default_rng(seed))
    wanted = write(tmp_path / "x.gguf", raw, kind)
    files = GgufFiles([tmp_path / "x.gguf"])
    scheme, values = kept(files.found["x"])
    files.close()
    assert (scheme.name, scheme.group) == (KEPT[kind], 32)
    assert (values == wanted).all()


def test_minus_128_is_no_code_of_int8(tmp_path: Path) -> None:
    raw = random_blocks("Q8_0", np.random.default_rng(1))
    raw.reshape(N, -1, 34)[20, 7, 33] = 128
    write(tmp_path / "x.gguf", raw, "Q8_0")
    files = GgufFiles([tmp_path / "x.gguf"])
    assert kept(files.found["x"]) is None
    files.close()


@pytest.mark.parametrize(
    ("exponent", "fits"), [(103, False), (104, True), (143, True), (144, False)]
)
def test_mxfp4_exponents_that_float16_has(tmp_path: Path, exponent: int, fits: bool) -> None:
    raw = random_blocks("MXFP4", np.random.default_rng(2))
    raw.reshape(N, -1, 17)[3, 2, 0] = exponent
    wanted = write(tmp_path / "x.gguf", raw, "MXFP4")
    files = GgufFiles([tmp_path / "x.gguf"])
    found = kept(files.found["x"])
    files.close()
    assert (found is not None) == fits
    assert found is None or (found[1] == wanted).all()


def test_mxfp4_blocks_of_zeros_have_any_exponent(tmp_path: Path) -> None:
    raw = random_blocks("MXFP4", np.random.default_rng(3))
    raw.reshape(N, -1, 17)[3, 2] = [0, *[0x80, 0x08] * 8]  # zeros of both signs
    wanted = write(tmp_path / "x.gguf", raw, "MXFP4")
    files = GgufFiles([tmp_path / "x.gguf"])
    assert (kept(files.found["x"])[1] == wanted).all()
    files.close()


@pytest.mark.parametrize("width", [16, 32, 64, 128])
@pytest.mark.parametrize("kind", KEPT)
def test_columns_move_with_their_scales(tmp_path: Path, kind: str, width: int) -> None:
    """Blocks of columns in another order, as DeltaNet's output projection has them."""
    raw = random_blocks(kind, np.random.default_rng(4))
    wanted = write(tmp_path / "x.gguf", raw, kind)
    blocks = np.random.default_rng(width).permutation(K // width)
    while (blocks == np.arange(len(blocks))).all():
        blocks = blocks[::-1]
    columns = (blocks[:, None] * width + np.arange(width)).reshape(-1)
    rows = np.random.default_rng(5).permutation(N)
    files = GgufFiles([tmp_path / "x.gguf"])
    view = View(files.found["x"], (N, K), order=rows, columns=columns)
    assert (view.rows(2, 19) == wanted[rows[2:19]][:, columns]).all()
    found = kept(view)
    files.close()
    assert (found is None) == (width == 16)  # half a group cannot move without the other half
    assert found is None or (found[1] == wanted[rows][:, columns]).all()


def test_type_that_the_package_cannot_decode(tmp_path: Path) -> None:
    kind = gguf.GGMLQuantizationType.Q8_1
    block, size = gguf.GGML_QUANT_SIZES[kind]
    raw = np.zeros((N, K // block * size), np.uint8)
    writer = gguf.GGUFWriter(str(tmp_path / "x.gguf"), "llama")
    writer.add_tensor("x", raw, raw_shape=raw.shape, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(UnsupportedModelError, match=r"x\.gguf: x: type Q8_1 is not read"):
        GgufFiles([tmp_path / "x.gguf"]).found["x"].check_readable()


def test_the_packages_own_quantisation_is_read(tmp_path: Path) -> None:
    """Real blocks, not random ones: Q4_0 and Q8_0 as the package rounds them."""
    x = np.random.default_rng(6).standard_normal((N, K)).astype(np.float32)
    wanted = tiny_gguf.write_gguf(
        tmp_path / "x.gguf", "llama", {}, {"a": x, "b": x}, kinds={"a": "Q4_0", "b": "Q8_0"}
    )
    files = GgufFiles([tmp_path / "x.gguf"])
    for name in "ab":
        assert (kept(files.found[name])[1] == wanted[name]).all()
    files.close()
