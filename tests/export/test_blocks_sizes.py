"""Sizes of real shapes: a plan reads no weight, so files of nothing but a header will do."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tiny_blocks import blocks_config, blocks_shapes, llada2_name
from tiny_canvas import FULL, SLIDING, canvas_config, canvas_shapes, release_config

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


CANVAS = {
    "vocab_size": 262144,
    "hidden_size": 2816,
    "intermediate_size": 2112,
    "num_hidden_layers": 30,
    "layer_types": [FULL if (i + 1) % 6 == 0 else SLIDING for i in range(30)],
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 256,
    "global_head_dim": 512,
    "num_global_key_value_heads": 2,
    "sliding_window": 1024,
    "num_experts": 128,
    "top_k_experts": 8,
    "moe_intermediate_size": 704,
    "canvas_length": 256,
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
    folder: Path, config: dict[str, Any], tensors: Iterable[tuple[str, tuple[int, ...]]]
) -> None:
    header: dict[str, Any] = {}
    end = 0
    for name, shape in tensors:
        begin, size = end, 2
        for n in shape:
            size *= n
        end += size
        full = name if name.startswith(("lm_head", "model.")) else "model." + name
        header[full] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [begin, end]}
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
    write_headers(tmp_path, config, stored(family, config))
    with Checkpoint(tmp_path) as checkpoint:
        plan = plan_export(checkpoint, recipe="int4-all")
    assert plan.parameters == pytest.approx(parameters, rel=0.02)
    assert plan.tensor_bytes == pytest.approx(nbytes, rel=0.02)


def test_plan_of_diffusion_gemma(tmp_path: Path) -> None:
    """Its text part; and the keys and values of a token, by layers of either shape."""
    config = canvas_config(**CANVAS)
    write_headers(tmp_path, release_config(config), canvas_shapes(config).items())
    with Checkpoint(tmp_path) as checkpoint:
        plan = plan_export(checkpoint, recipe="int4-all")
        mixed = plan_export(checkpoint, recipe="int4")
    assert plan.parameters == pytest.approx(25.25e9, rel=0.02)
    assert plan.tensor_bytes == pytest.approx(14.2e9, rel=0.02)
    embedding = 262144 * 2816
    head = next(tensor.blob.nbytes for tensor in mixed.tensors if tensor.name == "embed")
    assert plan.tensor_bytes + head - embedding * 4.5 / 8 == pytest.approx(14.6e9, rel=0.02)
    spec = plan.model.spec
    kept = [2 * 2 * w * n for w, n in zip(spec["head_dims"], spec["kv_heads"], strict=True)]
    full = sum(size for size, window in zip(kept, spec["windows"], strict=True) if not window)
    assert (full, sum(kept) - full) == (20 * 1024, 200 * 1024)
