"""Quantised layouts, matrix by matrix: values and kept codes against what the writers stored."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import quantised_layouts as layouts
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from quantised_layouts import Parts

from clover_edge.export.sources import Source, open_checkpoint
from clover_edge.quant import Scheme, decode
from clover_edge.quant.tiles import pack

GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32, "checkpoint_format": "gptq"}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm", "zero_point": True}
PACKED = {"quant_method": "compressed-tensors", "format": "pack-quantized"}
FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
N, K = 24, 128  # neither a multiple of the other, nor of a tile


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., Source]]:
    """Writes one matrix ``x`` and opens it as a checkpoint of these settings."""
    sources: list[Source] = []

    def make(parts: Parts, quantisation: dict[str, Any], key: str = "quantization_config") -> Any:
        layouts.write(tmp_path / "model.safetensors", parts)
        (tmp_path / "config.json").write_text(json.dumps({key: quantisation}))
        sources.append(open_checkpoint(tmp_path).source)
        return sources[-1]

    yield make
    for source in sources:
        source.close()


def floats(source: Source, name: str = "x.weight") -> np.ndarray:
    """All rows, read in uneven pieces."""
    shape = source.tensors[name].shape
    out = np.empty((int(np.prod(shape[:-1])), shape[-1]), np.float32)
    for start in range(0, len(out), 7):
        source.read_rows(name, start, out[start : start + 7])
    return out.reshape(shape)


def kept(source: Source, name: str = "x.weight") -> tuple[Scheme, np.ndarray] | None:
    """The scheme that keeps the codes, and the values that packed codes stand for."""
    stored = source.stored(name)
    if stored is None:
        return None
    shape = source.tensors[name].shape
    n, k = int(np.prod(shape[:-1])), shape[-1]
    pieces = [stored.read(start, min(start + 7, n)) for start in range(0, n, 7)]
    codes, scales = (np.concatenate(part) for part in zip(*pieces, strict=True))
    data = pack(codes, scales, stored.scheme)
    return stored.scheme, decode(data, (n, k), stored.scheme).reshape(shape)


class Draw:
    """Random codes, scales and zero points of a matrix."""

    def __init__(self, seed: int, group: int, bits: int = 4) -> None:
        rng = np.random.default_rng(seed)
        self.q = rng.integers(0, 1 << bits, (N, K))
        exponents = rng.uniform(-14, 2, (N, K // group))
        signs = rng.choice([-1, 1], (N, K // group))
        self.scales = (signs * np.exp2(exponents)).astype(np.float16)
        self.middle = np.full((N, K // group), 1 << (bits - 1))
        self.zeros = rng.integers(0, 1 << bits, (N, K // group))

    def values(self, zeros: np.ndarray) -> np.ndarray:
        return layouts.values(self.q, self.scales, zeros)


# A function-scoped folder is written anew by every example.
many = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
groups = st.sampled_from([32, 64, 128])
seeds = st.integers(0, 2**32 - 1)


@many
@given(seed=seeds, group=groups, version=st.sampled_from([1, 2]))
def test_gptq_symmetric_is_kept(opened: Any, seed: int, group: int, version: int) -> None:
    d = Draw(seed, group)
    parts = layouts.gptq("x", d.q, d.scales, d.middle, version=version)
    form = "gptq" if version == 1 else "gptq_v2"
    source = opened(parts, {**GPTQ, "group_size": group, "checkpoint_format": form})
    assert (floats(source) == d.values(d.middle)).all()
    scheme, values = kept(source)
    assert scheme == Scheme("int4", group)
    assert (values == d.values(d.middle)).all()


@many
@given(seed=seeds, group=groups, version=st.sampled_from([1, 2]))
def test_asymmetric_gptq_fits_int8(opened: Any, seed: int, group: int, version: int) -> None:
    d = Draw(seed, group)
    parts = layouts.gptq("x", d.q, d.scales, d.zeros, version=version)
    form = "gptq" if version == 1 else "gptq_v2"
    source = opened(parts, {**GPTQ, "group_size": group, "checkpoint_format": form})
    scheme, values = kept(source)
    assert scheme == Scheme("int8", group)
    assert (floats(source) == d.values(d.zeros)).all() and (values == d.values(d.zeros)).all()


@many
@given(seed=seeds, group=groups)
def test_gptq_of_8_bits_is_kept_unless_a_code_is_minus_128(
    opened: Any, seed: int, group: int
) -> None:
    d = Draw(seed, group, bits=8)
    config = {**GPTQ, "bits": 8, "group_size": group}
    d.q[N - 1, K - 1] = 0
    source = opened(layouts.gptq("x", d.q, d.scales, d.middle, bits=8), config)
    assert (floats(source) == d.values(d.middle)).all() and kept(source) is None
    d.q[d.q == 0] = 1
    source = opened(layouts.gptq("x", d.q, d.scales, d.middle, bits=8), config)
    scheme, values = kept(source)
    assert scheme == Scheme("int8", group) and (values == d.values(d.middle)).all()


@many
@given(seed=seeds, group=groups)
def test_gptq_in_activation_order_is_dequantised(opened: Any, seed: int, group: int) -> None:
    d = Draw(seed, group)
    order = np.random.default_rng(seed).permutation(np.arange(K) // group)
    parts = layouts.gptq("x", d.q, d.scales, d.middle, g_idx=order)
    source = opened(parts, {**GPTQ, "group_size": group, "desc_act": True})
    wanted = ((d.q - 8) * d.scales.astype(np.float64)[:, order]).astype(np.float32)
    assert (floats(source) == wanted).all()
    trivial = (order == np.arange(K) // group).all()
    assert (kept(source) is None) == (not trivial)


@many
@given(seed=seeds, group=groups, symmetric=st.booleans())
def test_awq(opened: Any, seed: int, group: int, symmetric: bool) -> None:
    d = Draw(seed, group)
    zeros = d.middle if symmetric else d.zeros
    source = opened(layouts.awq("x", d.q, d.scales, zeros), {**AWQ, "group_size": group})
    assert (floats(source) == d.values(zeros)).all()
    scheme, values = kept(source)
    assert scheme == Scheme("int4" if symmetric else "int8", group)
    assert (values == d.values(zeros)).all()


@pytest.mark.parametrize("packing", ["auto_round:auto_gptq", "auto_round:auto_awq"])
def test_auto_round_says_which_packing(opened: Any, packing: str) -> None:
    d = Draw(0, 32)
    layout = layouts.gptq if packing.endswith("gptq") else layouts.awq
    config = {**GPTQ, "quant_method": "auto-round", "packing_format": packing}
    source = opened(layout("x", d.q, d.scales, d.middle), config)
    assert (floats(source) == d.values(d.middle)).all() and kept(source)[0].name == "int4"


@many
@given(
    seed=seeds,
    group=groups,
    bits=st.sampled_from([4, 8]),
    symmetric=st.booleans(),
    dtype=st.sampled_from(["F16", "F32", "BF16"]),
)
def test_compressed_tensors_packed(
    opened: Any, seed: int, group: int, bits: int, symmetric: bool, dtype: str
) -> None:
    d = Draw(seed, group, bits)
    d.scales = np.exp2(np.rint(np.log2(np.abs(d.scales)))).astype(np.float16)  # bf16 has them
    d.q[d.q == 0] = 1
    zeros = None if symmetric else d.zeros
    parts = layouts.compressed("x", d.q, d.scales, zeros, bits=bits, scale_dtype=dtype)
    source = opened(parts, PACKED)
    wanted = d.values(d.middle if symmetric else d.zeros)
    assert (floats(source) == wanted).all()
    found = kept(source)
    if symmetric:
        assert found[0] == Scheme("int4" if bits == 4 else "int8", group)
    if bits == 4 or symmetric:
        assert (found[1] == wanted).all()
    else:
        assert found is None  # 8-bit codes less zero points take nine bits


def test_compressed_tensors_in_activation_order(opened: Any) -> None:
    d = Draw(1, 32)
    order = np.random.default_rng(1).permutation(np.arange(K) // 32)
    source = opened(layouts.compressed("x", d.q, d.scales, g_idx=order), PACKED)
    wanted = ((d.q - 8) * d.scales.astype(np.float64)[:, order]).astype(np.float32)
    assert (floats(source) == wanted).all() and kept(source) is None
    unused = layouts.compressed("x", d.q, d.scales, g_idx=np.full(K, -1))
    assert kept(opened(unused, PACKED))[0] == Scheme("int4", 32)


@pytest.mark.parametrize("shape", [(1,), (N, 1), (N, K // 32)])
def test_compressed_tensors_int8(opened: Any, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(2)
    q = rng.integers(-127, 128, (N, K)).astype(np.int8)
    scales = np.exp2(rng.integers(-8, 0, shape)).astype(np.float32)
    source = opened(layouts.int8_rows("x", q, scales), {**PACKED, "format": "int-quantized"})
    grouped = layouts.by_groups(np.broadcast_to(scales.reshape(-1, shape[-1]), (N, shape[-1])), K)
    scheme, values = kept(source)
    assert scheme == Scheme("int8", 32 if shape[-1] > 1 else 128)
    assert (values == q * grouped).all() and (floats(source) == q * grouped).all()


def test_scales_that_float16_does_not_have_are_not_kept(opened: Any) -> None:
    d = Draw(3, 32)
    for scale in (1e-9, 1e6, 1 + 2.0**-15):
        scales = d.scales.astype(np.float32)
        scales[5, 1] = scale
        source = opened(layouts.compressed("x", d.q, scales, scale_dtype="F32"), PACKED)
        wanted = (layouts.by_groups(scales, K) * (d.q - 8).astype(np.float32)).astype(np.float32)
        assert (floats(source) == wanted).all() and kept(source) is None


@pytest.mark.parametrize(
    ("config", "name", "scales"),
    [
        (FP8, "weight_scale_inv", (2, 3)),
        ({"quant_method": "fp8"}, "weight_scale", (1,)),
        ({**PACKED, "format": "float-quantized"}, "weight_scale", (1,)),
        ({**PACKED, "format": "float-quantized"}, "weight_scale", (200, 1)),
    ],
)
def test_float8(opened: Any, config: Any, name: str, scales: tuple[int, ...]) -> None:
    rng = np.random.default_rng(4)
    bits = rng.integers(0, 256, (200, 300)).astype(np.uint8)  # edge blocks are narrow
    bits[(bits & 127) == 127] = 0
    factors = np.exp2(rng.integers(-9, 3, scales)).astype(np.float32)
    source = opened(layouts.float8("x", bits, factors, name), config)
    wide = factors.reshape(-1, 1) if factors.ndim == 1 else factors
    height, width = -(-200 // 128) if name.endswith("inv") else 1, 128
    if height > 1:
        spread = np.repeat(np.repeat(wide, 128, axis=0), width, axis=1)[:200, :300]
    else:
        spread = wide
    assert (floats(source) == (layouts.float8_values(bits) * spread).astype(np.float32)).all()
    assert kept(source) is None


@many
@given(
    seed=seeds, group=groups, bits=st.sampled_from([4, 8]), dtype=st.sampled_from(["F16", "F32"])
)
def test_mlx(opened: Any, seed: int, group: int, bits: int, dtype: str) -> None:
    d = Draw(seed, group, bits)
    d.q[d.q == 0] = 1
    config = {"group_size": group, "bits": bits}
    biases = (-(1 << (bits - 1)) * d.scales.astype(np.float32)).astype(np.float16)
    source = opened(layouts.mlx("x", d.q, d.scales, biases, bits, dtype), config, "quantization")
    scheme, values = kept(source)
    assert scheme == Scheme("int4" if bits == 4 else "int8", group)
    assert (values == d.values(d.middle)).all() and (floats(source) == values).all()
    biases[3, 0] = np.nextafter(biases[3, 0], np.float16(0))
    source = opened(layouts.mlx("x", d.q, d.scales, biases, bits, dtype), config, "quantization")
    grouped = [layouts.by_groups(part.astype(np.float32), K) for part in (d.scales, biases)]
    assert (floats(source) == d.q.astype(np.float32) * grouped[0] + grouped[1]).all()
    assert kept(source) is None


def test_mlx_settings_of_one_module(opened: Any) -> None:
    d = Draw(5, 64, bits=8)
    d.q[d.q == 0] = 1
    biases = -128 * d.scales.astype(np.float32)
    config = {"group_size": 32, "bits": 4, "x": {"group_size": 64, "bits": 8}}
    source = opened(layouts.mlx("x", d.q, d.scales, biases, 8, "F32"), config, "quantization")
    assert (floats(source) == d.values(d.middle)).all()


def test_columns_that_no_group_divides_evenly(opened: Any) -> None:
    """Groups of 32 over 80 columns: the last is half as wide; nothing of ours holds that."""
    rng = np.random.default_rng(6)
    q, scales = rng.integers(0, 16, (N, 80)), np.full((N, 3), 0.5, np.float16)
    scales[:, 2] = 0.25
    order = np.arange(80) // 32
    parts = layouts.gptq("x", q, scales, np.full((N, 3), 8), g_idx=order)
    source = opened(parts, GPTQ)
    assert (floats(source) == (q - 8) * scales.astype(np.float32)[:, order]).all()
    assert kept(source) is None


def test_old_gptq_folders_keep_their_settings_beside_the_configuration(tmp_path: Path) -> None:
    d = Draw(7, 32)
    layouts.write(
        tmp_path / "gptq_model-4bit-32g.safetensors", layouts.gptq("x", d.q, d.scales, d.middle)
    )
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "quantize_config.json").write_text('{"bits": 4, "group_size": 32, "sym": true}')
    source = open_checkpoint(tmp_path).source
    assert (floats(source) == d.values(d.middle)).all()
    source.close()


@pytest.mark.parametrize(("layout", "config"), [(layouts.gptq, GPTQ), (layouts.awq, AWQ)])
@pytest.mark.parametrize("n", [64, 2304, 16896])
def test_rows_of_any_width_are_read(opened: Any, layout: Any, config: Any, n: int) -> None:
    """Columns of short stored rows are cut out of whole ones, those of long rows read singly."""
    rng = np.random.default_rng(n)
    q, zeros = rng.integers(0, 16, (n, 32)), rng.integers(0, 16, (n, 1))
    scales = np.exp2(rng.integers(-8, 0, (n, 1))).astype(np.float16)
    source = opened(layout("x", q, scales, zeros), config)
    wanted = layouts.values(q, scales, zeros)
    for start, stop in ((0, n), (5, 6), (n - 13, n), (8, 40)):
        out = np.empty((stop - start, 32), np.float32)
        source.read_rows("x.weight", start, out)
        assert (out == wanted[start:stop]).all()
