"""Quantised folders whose settings or tensors do not fit each other: refused by name, nothing
left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import quantised_layouts as layouts
from quantised_layouts import Parts

from clover_edge.errors import CheckpointError, CloverError, UnsupportedModelError

GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm"}
PACKED = {"quant_method": "compressed-tensors", "format": "pack-quantized"}
FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
MLX = {"group_size": 32, "bits": 4}
BASE = "model.layers.3.self_attn.o_proj"  # [64, 128]


@pytest.fixture
def refused(spoiled: Any) -> Callable[..., None]:
    """Puts quantised parts in the place of a matrix of a good checkpoint, and exports it."""

    def check(
        parts: Parts,
        config: dict[str, Any],
        error: type[CloverError],
        *words: str,
        key: str = "quantization_config",
    ) -> None:
        tensors: Parts = {name: ("BF16", value) for name, value in spoiled.tensors.items()}
        del tensors[f"{BASE}.weight"]
        layouts.write(spoiled.weights, {**tensors, **parts})
        spoiled.set(key, config)
        spoiled.refused(error, *words)

    return check


def drawn(bits: int = 4) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    q, scales = rng.integers(1, 1 << bits, (64, 128)), np.full((64, 4), 0.125, np.float16)
    return q, scales, np.full((64, 4), 1 << (bits - 1))


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, ("quant_method", "bitsandbytes")),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, ("quant_method", "modelopt")),
        ({"quant_method": ["gptq"]}, ("quant_method", "gptq")),
        ({}, ("quant_method", "None")),
        ({**GPTQ, "bits": 3}, ("bits: 3", "4, 8")),
        ({**GPTQ, "bits": "4"}, ("bits: '4'",)),
        ({**GPTQ, "checkpoint_format": "marlin"}, ("checkpoint_format: 'marlin'", "gptq_v2")),
        ({**GPTQ, "dynamic": {"-:.*": {}}}, ("dynamic",)),
        ({**AWQ, "version": "gemv"}, ("version: 'gemv'", "gemm")),
        ({**AWQ, "bits": 8}, ("bits: 8",)),
        ({**GPTQ, "quant_method": "auto-round", "packing_format": "x"}, ("packing_format: 'x'",)),
        ({**PACKED, "format": "nvfp4-pack-quantized"}, ("format: 'nvfp4", "pack-quantized")),
        (
            {**PACKED, "config_groups": {"group_0": {"format": "mxfp4-pack-quantized"}}},
            ("format: 'mxfp4",),
        ),
        ({**FP8, "fmt": "e5m2"}, ("fmt: 'e5m2'",)),
        ({**MLX, "mode": "mxfp4"}, ("mode: 'mxfp4'", "affine")),
        ({**MLX, "bits": 3}, ("bits: 3",)),
    ],
)
def test_settings_that_are_not_read(
    refused: Any, config: dict[str, Any], words: tuple[str, ...]
) -> None:
    parts = layouts.gptq(BASE, *drawn())
    if config.get("mode") or (config.get("bits") == 3 and "quant_method" not in config):
        q, scales, _ = drawn()
        parts = layouts.mlx(BASE, q, scales, -8 * scales, 4)
    refused(parts, config, UnsupportedModelError, "config.json", *words)


def test_bits_of_compressed_tensors_that_are_not_read(refused: Any) -> None:
    q, scales, _ = drawn()
    parts = layouts.compressed(BASE, q % 4, scales, bits=2)
    groups = {"group_0": {"weights": {"num_bits": 2}}}
    refused(
        parts, {**PACKED, "config_groups": groups}, UnsupportedModelError, "num_bits: 2", "4, 8"
    )


@pytest.mark.parametrize("missing", ["qzeros", "scales"])
@pytest.mark.parametrize(("layout", "config"), [(layouts.gptq, GPTQ), (layouts.awq, AWQ)])
def test_int32_tensor_without_its_companion(
    refused: Any, layout: Any, config: dict[str, Any], missing: str
) -> None:
    parts = layout(BASE, *drawn())
    del parts[f"{BASE}.{missing}"]
    refused(parts, config, CheckpointError, f"{BASE}.{missing}", f"missing beside {BASE}.qweight")


@pytest.mark.parametrize("missing", ["weight_scale", "weight_shape"])
def test_packed_tensor_without_its_companion(refused: Any, missing: str) -> None:
    parts = layouts.compressed(BASE, *drawn()[:2])
    del parts[f"{BASE}.{missing}"]
    refused(parts, PACKED, CheckpointError, f"{BASE}.{missing}", "is missing beside")


def test_float8_without_scales(refused: Any) -> None:
    bits = np.zeros((64, 128), np.uint8)
    parts = layouts.float8(BASE, bits, np.ones((1, 1), np.float32), "weight_scale_inv")
    del parts[f"{BASE}.weight_scale_inv"]
    refused(parts, FP8, CheckpointError, f"{BASE}.weight_scale_inv", "is missing beside")


@pytest.mark.parametrize("missing", ["scales", "biases"])
def test_mlx_tensor_without_its_companion(refused: Any, missing: str) -> None:
    q, scales, _ = drawn()
    parts = layouts.mlx(BASE, q, scales, -8 * scales, 4)
    del parts[f"{BASE}.{missing}"]
    words = (f"{BASE}.{missing}", "is missing beside")
    refused(parts, MLX, CheckpointError, *words, key="quantization")


def test_scales_without_a_matrix(refused: Any) -> None:
    parts = layouts.gptq(BASE, *drawn())
    del parts[f"{BASE}.qweight"]
    other = layouts.gptq("extra", *drawn())
    refused(parts, GPTQ, CheckpointError, "quant_method", "no tensor is quantised so")
    refused({**parts, **other}, GPTQ, CheckpointError, f"{BASE}.weight")


def test_companions_of_other_shapes(refused: Any) -> None:
    for name, shape, word in (
        ("scales", (4, 63), "[4, 64] expected"),
        ("scales", (3, 64), "has 3 rows"),
        ("qzeros", (4, 7), "[4, 8] expected"),
    ):
        parts = layouts.gptq(BASE, *drawn())
        parts[f"{BASE}.{name}"] = (parts[f"{BASE}.{name}"][0], np.ones(shape))
        refused(parts, GPTQ, CheckpointError, f"{BASE}.{name}", word)
    parts = layouts.compressed(BASE, *drawn()[:2])
    parts[f"{BASE}.weight_scale"] = ("F16", np.ones((64, 5)))
    refused(parts, PACKED, CheckpointError, f"{BASE}.weight_scale", "[64, 5] does not fit")
    parts = layouts.compressed(BASE, *drawn()[:2])
    parts[f"{BASE}.weight_shape"] = ("I64", np.array([64, 120]))
    refused(parts, PACKED, CheckpointError, f"{BASE}.weight_shape", "[64, 120]")
    parts = layouts.float8(BASE, np.zeros((64, 128), np.uint8), np.ones((2, 1)), "weight_scale_inv")
    refused(parts, FP8, CheckpointError, f"{BASE}.weight_scale_inv", "[2, 1]", "[1, 1]")


def test_mlx_companion_of_another_shape(refused: Any) -> None:
    q, scales, _ = drawn()
    parts = layouts.mlx(BASE, q, scales, scales[:, :3], 4)
    refused(parts, MLX, CheckpointError, f"{BASE}.biases", "[64, 3]", key="quantization")


def test_zero_points_of_another_shape(refused: Any) -> None:
    q, scales, zeros = drawn()
    parts = layouts.compressed(BASE, q, scales, zeros)
    parts[f"{BASE}.weight_zero_point"] = ("I32", np.ones((8, 3)))
    refused(parts, PACKED, CheckpointError, f"{BASE}.weight_zero_point", "[8, 4] expected")


def test_group_size_that_contradicts_the_scales(refused: Any) -> None:
    parts = layouts.gptq(BASE, *drawn())
    config = {**GPTQ, "group_size": 64}
    refused(parts, config, CheckpointError, f"{BASE}.scales", "has 4 rows", "groups of 64")


def test_groups_that_do_not_exist(refused: Any) -> None:
    order = np.full(128, 4)
    parts = layouts.gptq(BASE, *drawn(), g_idx=order)
    refused(parts, GPTQ, CheckpointError, f"{BASE}.g_idx", "outside 0 .. 3")
    parts = layouts.compressed(BASE, *drawn()[:2], g_idx=order)
    refused(parts, PACKED, CheckpointError, f"{BASE}.weight_g_idx", "groups below 4")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_scale_that_is_not_finite(refused: Any, value: float) -> None:
    q, scales, zeros = drawn()
    scales[17, 2] = value
    words = (f"{BASE}.weight", str(value))
    refused(layouts.gptq(BASE, q, scales, zeros), GPTQ, CheckpointError, *words)
    refused(layouts.awq(BASE, q, scales, zeros), AWQ, CheckpointError, *words)
    refused(layouts.compressed(BASE, q, scales), PACKED, CheckpointError, *words)


def test_float8_that_is_no_number(refused: Any) -> None:
    bits = np.zeros((64, 128), np.uint8)
    bits[3, 4] = 0x7F
    parts = layouts.float8(BASE, bits, np.ones((1, 1)), "weight_scale_inv")
    refused(parts, FP8, CheckpointError, f"{BASE}.weight", "nan (row 3, column 4)")


@pytest.mark.parametrize(
    ("part", "dtype"), [("qweight", "I8"), ("qzeros", "F32"), ("scales", "I32")]
)
def test_companion_of_another_type(refused: Any, part: str, dtype: str) -> None:
    parts = layouts.gptq(BASE, *drawn())
    parts[f"{BASE}.{part}"] = (dtype, parts[f"{BASE}.{part}"][1])
    refused(parts, GPTQ, CheckpointError, f"{BASE}.{part}", f"dtype {dtype}")


def test_quantised_tensors_that_the_configuration_does_not_mention(spoiled: Any) -> None:
    tensors: Parts = {name: ("BF16", value) for name, value in spoiled.tensors.items()}
    del tensors[f"{BASE}.weight"]
    layouts.write(spoiled.weights, {**tensors, **layouts.gptq(BASE, *drawn())})
    spoiled.refused(CheckpointError, f"{BASE}.qweight", "no quantization_config")


@pytest.mark.parametrize("config", [GPTQ, AWQ, PACKED, FP8, MLX])
def test_settings_of_a_folder_that_is_not_quantised(spoiled: Any, config: dict[str, Any]) -> None:
    spoiled.set("quantization" if config is MLX else "quantization_config", config)
    spoiled.refused(CheckpointError, "config.json", "no tensor is quantised so")


def test_settings_that_are_no_object(spoiled: Any) -> None:
    spoiled.set("quantization_config", "gptq")
    spoiled.refused(CheckpointError, "quantization_config", "is not an object")


def test_one_shard_of_several_without_an_index(spoiled: Any) -> None:
    spoiled.weights.rename(spoiled.folder / "model-00001-of-00002.safetensors")
    spoiled.refused(CheckpointError, "model-00001-of-00002.safetensors", "one of 2 shards")
