"""GGUF files that are truncated, lie, or hold what is not read: refused by name, nothing left."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_gguf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clover_edge.errors import CheckpointError, CloverError, ExportError, UnsupportedModelError
from clover_edge.export import Checkpoint, export_checkpoint, plan_export

gguf = pytest.importorskip("gguf", reason="GGUF files need the extra: gguf")

Arrays = dict[str, np.ndarray]


@pytest.fixture
def good(tiny: Any) -> tuple[dict[str, Any], Arrays]:
    source = tiny()
    tensors = tiny_gguf.hybrid(source.tensors, source.config)
    copies = {name: value.copy() for name, value in tensors.items()}  # tests spoil them
    return tiny_gguf.hybrid_keys(source.config), copies


@pytest.fixture
def refused(tmp_path: Path) -> Callable[..., None]:
    """Exports a file; the error must be of this type and say all words; nothing may be left."""

    def check(error: type[CloverError], *words: str, path: Path = tmp_path / "x.gguf") -> None:
        before = sorted(tmp_path.iterdir())
        with pytest.raises(error) as caught:
            export_checkpoint(path, tmp_path / "out")
        for word in (path.name if path.suffix else "", *words):
            assert word in str(caught.value)
        assert sorted(tmp_path.iterdir()) == before

    return check


def write(tmp_path: Path, good: tuple[dict[str, Any], Arrays], arch: str = "qwen35moe") -> Path:
    tiny_gguf.write_gguf(tmp_path / "x.gguf", arch, *good)
    return tmp_path / "x.gguf"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "git lfs pull"),
        (b"<!DOCTYPE html><html>", "web page|HTML"),
        (b"", "is empty"),
        (b"GGML" + bytes(64), "does not begin with GGUF"),
        (b"GGUF" + struct.pack("<IQQ", 9, 0, 0), "version 9"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0), "truncated"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**60), "truncated"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**62), "truncated"),
        (b"GGUF" + struct.pack("<I", 3), "truncated"),
    ],
)
def test_what_is_no_gguf_file(tmp_path: Path, refused: Any, content: bytes, words: str) -> None:
    (tmp_path / "x.gguf").write_bytes(content)
    refused(CheckpointError, words.split("|")[-1])


def key(name: str, kind: int, value: bytes) -> bytes:
    return struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", kind) + value


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (key("k", 99, b""), "k: type 99 is unknown"),
        (key("k", 9, struct.pack("<IQ", 9, 1)), "k: an array of type 9"),
        (key("k", 9, struct.pack("<IQ", 8, 2**40)), "k: 1099511627776 entries"),
        (key("k", 9, struct.pack("<IQ", 0, 2**50)), "k: 1125899906842624 entries"),
        (key("k", 8, struct.pack("<Q", 2) + b"\xff\xfe"), "is not UTF-8"),
        (key("general.alignment", 4, struct.pack("<I", 48)), "48 is no power of two"),
    ],
)
def test_keys_that_lie(tmp_path: Path, refused: Any, value: bytes, words: str) -> None:
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, 1)
    (tmp_path / "x.gguf").write_bytes(head + value + bytes(64))
    refused(CheckpointError, words)


def test_truncated_anywhere(tmp_path: Path, good: Any, refused: Any) -> None:
    path = write(tmp_path, good)
    whole = path.read_bytes()
    for size in (30, 300, 2000, 6000, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        refused(CheckpointError, "truncated")


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 2**32 - 1))
def test_any_damage_to_the_header_is_a_typed_error_or_harmless(
    tmp_path: Path, good: Any, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    path = write(tmp_path, good)
    data = bytearray(path.read_bytes())
    for place in rng.integers(0, 7000, 3):
        data[place] = rng.integers(0, 256)
    path.write_bytes(data)
    with suppress(CloverError), Checkpoint(path) as checkpoint:
        plan_export(checkpoint)


def test_architecture_that_is_not_read(tmp_path: Path, good: Any, refused: Any) -> None:
    write(tmp_path, good, "mamba")
    refused(UnsupportedModelError, "'mamba' is not read", "llama", "qwen35moe")


def test_missing_tensor(tmp_path: Path, good: Any, refused: Any) -> None:
    del good[1]["blk.2.ssm_norm.weight"]
    write(tmp_path, good)
    refused(CheckpointError, "blk.2.ssm_norm.weight", "is missing")


def test_missing_expert_stack(tmp_path: Path, good: Any, refused: Any) -> None:
    del good[1]["blk.1.ffn_up_exps.weight"]
    write(tmp_path, good)
    refused(CheckpointError, "blk.1.ffn_up_exps.weight", "is missing")


def test_surplus_tensor(tmp_path: Path, good: Any, refused: Any) -> None:
    good[1]["blk.1.ffn_extra.weight"] = np.ones((4, 4), np.float32)
    write(tmp_path, good)
    refused(CheckpointError, "blk.1.ffn_extra.weight", "not known to the qwen35moe")


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("blk.0.attn_qkv.weight", (120, 64)),
        ("blk.0.ssm_beta.weight", (3, 64)),
        ("blk.1.ffn_gate_exps.weight", (15, 32, 64)),
        ("blk.1.ffn_down_exps.weight", (64, 32)),
        ("output_norm.weight", (63,)),
        ("blk.0.ssm_out.weight", (64, 32)),
        ("blk.0.ssm_a", (3,)),
    ],
)
def test_shape_that_contradicts_the_keys(
    tmp_path: Path, good: Any, refused: Any, name: str, shape: tuple[int, ...]
) -> None:
    good[1][name] = np.ones(shape, np.float32)
    write(tmp_path, good)
    refused(CheckpointError)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weight_that_is_not_finite(tmp_path: Path, good: Any, refused: Any, value: float) -> None:
    good[1]["blk.1.ffn_down_exps.weight"][2, 3, 4] = value
    write(tmp_path, good)
    refused(CheckpointError, "model.layers.1.mlp.experts.2.down_proj.weight", str(value))


def test_kept_scale_that_is_not_finite(tmp_path: Path, good: Any, refused: Any) -> None:
    tensor = good[1]["blk.1.ffn_down_exps.weight"]
    kinds = {"blk.1.ffn_down_exps.weight": "Q4_0"}
    path = tmp_path / "x.gguf"
    tiny_gguf.write_gguf(path, "qwen35moe", *good, kinds=kinds)
    data = path.read_bytes()
    block = gguf.quants.quantize(tensor[5], gguf.GGMLQuantizationType.Q4_0).tobytes()
    start = data.index(block)
    path.write_bytes(data[:start] + b"\x00\x7e" + data[start + 2 :])
    refused(CheckpointError, "model.layers.1.mlp.experts.5.down_proj.weight", "scale of nan")


def test_decay_that_no_logarithm_leads_to(tmp_path: Path, good: Any, refused: Any) -> None:
    good[1]["blk.1.ssm_a"][2] = 0.5
    write(tmp_path, good)
    refused(CheckpointError, "model.layers.1.linear_attn.A_log", "nan")


LLAMA = {
    "block_count": 1,
    "embedding_length": 64,
    "feed_forward_length": 96,
    "context_length": 512,
    "attention.head_count": 8,
    "attention.layer_norm_rms_epsilon": 1e-5,
}


@pytest.mark.parametrize(
    ("factors", "keys", "error", "words"),
    [
        ([1, 2, 8], {}, CheckpointError, ("factors", "list of 4 numbers")),
        ([1, 1, 2, np.nan], {}, CheckpointError, ("factors", "list of 4 numbers")),
        ([1, 1, 2, 0], {}, CheckpointError, ("factors", "list of 4 numbers")),
        (
            [1, 1, 2, 8],
            {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0},
            UnsupportedModelError,
            ("rope_freqs.weight", "'yarn'"),
        ),
    ],
)
def test_frequencies_of_llama_3(
    tmp_path: Path, refused: Any, factors: Any, keys: Any, error: Any, words: Any
) -> None:
    tensors = {
        "token_embd.weight": np.ones((32, 64), np.float32),
        "rope_freqs.weight": np.array(factors, np.float32),
    }
    tiny_gguf.write_gguf(tmp_path / "x.gguf", "llama", {**LLAMA, **keys}, tensors)
    refused(error, *words)


def test_key_that_is_missing(tmp_path: Path, good: Any, refused: Any) -> None:
    del good[0]["ssm.group_count"]
    write(tmp_path, good)
    refused(CheckpointError, "ssm.group_count", "is missing")


def test_part_of_a_split_model_that_is_missing(tmp_path: Path, good: Any, refused: Any) -> None:
    path = write(tmp_path, good).rename(tmp_path / "x-00001-of-00003.gguf")
    refused(CheckpointError, "x-00002-of-00003.gguf: file: is missing", path=tmp_path / ".")
    with pytest.raises(CheckpointError, match="x-00002-of-00003"):
        export_checkpoint(path, tmp_path / "out")


def test_two_models_in_a_folder(tmp_path: Path, good: Any) -> None:
    path = write(tmp_path, good)
    (tmp_path / "y.gguf").write_bytes(path.read_bytes())
    with pytest.raises(CheckpointError, match=r"x\.gguf, y\.gguf: name the file"):
        export_checkpoint(tmp_path, tmp_path / "out")


def test_parts_that_do_not_add_up(tmp_path: Path, good: Any, refused: Any) -> None:
    keys = {"split.tensors.count": 99}
    tiny_gguf.write_gguf(tmp_path / "x.gguf", "qwen35moe", *good, other_keys=keys)
    refused(CheckpointError, "split.tensors.count")


def test_without_the_package_the_error_names_the_extra(
    tmp_path: Path, good: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, good)
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ExportError, match=r"clover-edge\[gguf\]"):
        export_checkpoint(path, tmp_path / "out")
