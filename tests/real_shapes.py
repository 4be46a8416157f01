"""Published shapes, as checkpoints of nothing but a header: enough for a plan, which reads no
weight; and copies of them small enough to run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tiny_blocks import blocks_config, blocks_shapes, llada2_name, make_blocks
from tiny_canvas import (
    FULL,
    SLIDING,
    canvas_config,
    canvas_shapes,
    make_canvas,
    release_config,
)
from tiny_full_attention import (
    full_attention_config,
    full_attention_shapes,
    make_full_attention,
    trunk_config,
)

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
    "DiffusionGemma 26B-A4B": (  # its text part
        "diffusion_gemma",
        {
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
        },
        25.25e9,
        14.2e9,
    ),
    "LLaDA-8B": (  # keys of these three in the words of their trunks
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
_FULL_ATTENTION = ("llada", "llada_moe", "dream")

_DIVISORS = {
    "hidden_size": 16,
    "num_hidden_layers": 10,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 4,
    "global_head_dim": 4,
    "num_global_key_value_heads": 2,
    "canvas_length": 8,
    "intermediate_size": 16,
    "moe_intermediate_size": 8,
    "num_experts": 8,
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


def make_small(folder: Path, name: str) -> None:
    """A copy of random weights, with as many heads a key head, groups and experts a token."""
    family, keys, _, _ = REAL[name]
    small = {key: keys[key] // divisor for key, divisor in _DIVISORS.items() if key in keys}
    keys = {**keys, **small, "vocab_size": 512}
    if family == "diffusion_gemma":
        keys["layer_types"] = keys["layer_types"][-keys["num_hidden_layers"] :]
        make_canvas(folder, **keys)
    elif family in _FULL_ATTENTION:
        make_full_attention(folder, family, seed=1, **keys)  # of which none ends its text
    else:
        make_blocks(folder, family, **keys)


def write_headers(folder: Path, name: str) -> None:
    """The checkpoint of a published shape; its weights are a hole in the file."""
    family, keys, _, _ = REAL[name]
    tensors: Iterable[tuple[str, tuple[int, ...]]]
    if family == "diffusion_gemma":
        config = canvas_config(**keys)
        config, tensors = release_config(config), canvas_shapes(config).items()
    elif family in _FULL_ATTENTION:
        trunk = trunk_config(family, **keys)
        config = {**full_attention_config(family, trunk), "mask_token_id": 7}
        tensors = full_attention_shapes(family, trunk).items()
    else:
        config = blocks_config(family, **keys)
        tensors = stored(family, config)
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
