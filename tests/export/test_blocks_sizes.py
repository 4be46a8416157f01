"""Sizes of real shapes: a plan reads no weight, so files of nothing but a header will do."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tiny_blocks import blocks_config, blocks_shapes, llada2_name
from tiny_full_attention import full_attention_config, full_attention_shapes, trunk_config

from clover_edge.export import Checkpoint, plan_export

# Published: parameters, and bytes at 4.5 bits a weight.
REAL: dict[str, tuple[str, dict[str, Any], float, float]] = {
    "LLaDA2.x-mini": (
        "llada2",
        {
            "vocab_size": 157184,
            "hidden_size": 2048,
            "num_hidden_layers": 20,
            "num_attention_heads": 16,
            "num_key_value_heads": 4,
            "head_dim": 128,
            "intermediate_size": 5120,
            "moe_intermediate_size": 512,
            "num_experts": 256,
            "num_experts_per_tok": 8,
            "n_group": 8,
            "topk_group": 4,
        },
        16.26e9,
        9.14e9,
    ),
    "SDAR-30B-A3B": (
        "sdar_moe",
        {
            "vocab_size": 151936,
            "hidden_size": 2048,
            "num_hidden_layers": 48,
            "num_attention_heads": 32,
            "num_key_value_heads": 4,
            "head_dim": 128,
            "moe_intermediate_size": 768,
            "num_experts": 128,
            "num_experts_per_tok": 8,
        },
        30.53e9,
        17.2e9,
    ),
}
# With full attention; keys in the trunk's words.
CANVAS: dict[str, tuple[str, dict[str, Any], float, float]] = {
    "LLaDA-8B": (
        "llada",
        {
            "vocab_size": 126464,
            "hidden_size": 4096,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
            "intermediate_size": 12288,
        },
        8.02e9,
        4.51e9,
    ),
    "LLaDA-MoE-7B-A1B": (
        "llada_moe",
        {
            "vocab_size": 157184,
            "hidden_size": 2048,
            "num_hidden_layers": 16,
            "num_attention_heads": 16,
            "num_key_value_heads": 16,
            "head_dim": 128,
            "moe_intermediate_size": 1024,
            "num_experts": 64,
            "num_experts_per_tok": 8,
        },
        7.36e9,
        4.14e9,
    ),
    "Dream 7B": (
        "dream",
        {
            "vocab_size": 152064,
            "hidden_size": 3584,
            "num_hidden_layers": 28,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
            "intermediate_size": 18944,
        },
        7.62e9,
        4.28e9,
    ),
}


def stored(family: str, config: dict[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes in the release's layout: every expert has tensors of its own."""
    hd = config["head_dim"]
    qkv = (config["num_attention_heads"] + 2 * config["num_key_value_heads"]) * hd
    for name, shape in blocks_shapes(config).items():
        if name.endswith("experts.gate_up_proj"):
            for e in range(shape[0]):
                for part in ("gate", "up"):
                    yield (
                        name.replace("gate_up_proj", f"{e}.{part}_proj.weight"),
                        (
                            shape[1] // 2,
                            shape[2],
                        ),
                    )
        elif name.endswith("experts.down_proj"):
            for e in range(shape[0]):
                yield name.replace("down_proj", f"{e}.down_proj.weight"), shape[1:]
        elif family == "llada2" and "self_attn.q_proj" in name:
            stem = name.removesuffix("self_attn.q_proj.weight")
            yield stem + "attention.query_key_value.weight", (qkv, shape[1])
        elif not name.endswith(("self_attn.k_proj.weight", "self_attn.v_proj.weight")):
            yield llada2_name(name) if family == "llada2" else name, shape
        elif family != "llada2":
            yield name, shape


def write_headers(
    folder: Path, tensors: Iterable[tuple[str, tuple[int, ...]]], config: dict[str, Any]
) -> None:
    header: dict[str, Any] = {}
    end = 0
    for name, shape in tensors:
        begin, size = end, 2
        for n in shape:
            size *= n
        end += size
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)  # a hole, which takes no room
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("name", REAL)
def test_plan(tmp_path: Path, name: str) -> None:
    family, keys, parameters, nbytes = REAL[name]
    config = blocks_config(family, **keys)
    named = (
        (name if name.startswith("lm_head") else "model." + name, shape)
        for name, shape in stored(family, config)
    )
    write_headers(tmp_path, named, config)
    check_plan(tmp_path, parameters, nbytes)


@pytest.mark.parametrize("name", CANVAS)
def test_plan_with_full_attention(tmp_path: Path, name: str) -> None:
    family, keys, parameters, nbytes = CANVAS[name]
    trunk = trunk_config(family, **keys)
    config = {**full_attention_config(family, trunk), "mask_token_id": 7}
    write_headers(tmp_path, full_attention_shapes(family, trunk).items(), config)
    check_plan(tmp_path, parameters, nbytes)


def check_plan(folder: Path, parameters: float, nbytes: float) -> None:
    with Checkpoint(folder) as checkpoint:
        plan = plan_export(checkpoint, recipe="int4-all")
    assert plan.parameters == pytest.approx(parameters, rel=0.02)
    assert plan.tensor_bytes == pytest.approx(nbytes, rel=0.02)
