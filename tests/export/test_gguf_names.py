"""GGUF files give the tensors of the Hugging Face checkpoint that they were converted from: every
permutation and change of the converters is undone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_gguf
from tiny_clover import draw

from clover_edge.export import Checkpoint

pytest.importorskip("gguf", reason="GGUF files need the extra: gguf")


def read(checkpoint: Checkpoint, name: str) -> np.ndarray:
    shape = checkpoint.tensors[name].shape
    out = np.empty((int(np.prod(shape[:-1])), shape[-1]), np.float32)
    for start in range(0, len(out), 13):
        checkpoint.read_rows(name, start, out[start : start + 13])
    return out.reshape(shape)


def separate(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Expert stacks cut into the names of each expert's matrices; no preview tensors."""
    out: dict[str, np.ndarray] = {}
    for name, value in tensors.items():
        stem, _, last = name.rpartition(".")
        if last == "gate_up_proj":
            for e, (gate, up) in enumerate(zip(*np.split(value, 2, axis=1), strict=True)):
                out[f"{stem}.{e}.gate_proj.weight"] = gate
                out[f"{stem}.{e}.up_proj.weight"] = up
        elif last == "down_proj":
            out |= {f"{stem}.{e}.down_proj.weight": down for e, down in enumerate(value)}
        elif not name.endswith(tiny_gguf.PREVIEW):
            out[name] = value
    return out


def assert_same(path: Path, tensors: dict[str, np.ndarray]) -> dict[str, Any]:
    wanted = separate(tensors)
    with Checkpoint(path) as checkpoint:
        assert {n.removeprefix("model.") for n in checkpoint.tensors} == set(wanted)
        for name, value in wanted.items():
            full = name if name.startswith("lm_head") else f"model.{name}"
            got = read(checkpoint, full)
            assert got.shape == value.shape, name
            if name.endswith("A_log"):
                assert got == pytest.approx(value, rel=1e-6, abs=1e-6), name
            elif name.endswith("norm.weight") and "linear_attn" not in name:
                assert (got == value + np.float32(1)).all(), name  # plain instead of zero-centred
            else:
                assert (got == value).all(), name
        return checkpoint.config


@pytest.mark.parametrize("arch", ["qwen35moe", "clover-moe"])
@pytest.mark.parametrize("fused", [False, True])
def test_tiled_value_heads(tiny: Any, tmp_path: Path, arch: str, fused: bool) -> None:
    source = tiny(hidden=128, overrides={"linear_num_value_heads": 6, "linear_num_key_heads": 2})
    tensors = tiny_gguf.hybrid(source.tensors, source.config, fused_experts=fused)
    keys = tiny_gguf.hybrid_keys(source.config)
    tiny_gguf.write_gguf(tmp_path / "x.gguf", arch, keys, tensors)
    config = assert_same(tmp_path / "x.gguf", source.tensors)
    same = set(source.config) & set(config) - {"architectures", "model_type", "rope_parameters"}
    assert {key: config[key] for key in same} == {key: source.config[key] for key in same}
    rope, theirs = config["rope_parameters"], source.config["rope_parameters"]
    assert rope == {**theirs, "rope_theta": 1e7}
    assert config["preview"] is False


@pytest.mark.parametrize("fused", [False, True])
def test_qwen3next_keeps_beta_and_alpha_together(tiny: Any, tmp_path: Path, fused: bool) -> None:
    source = tiny(hidden=128, overrides={"linear_num_value_heads": 6, "linear_num_key_heads": 2})
    tensors = tiny_gguf.next_hybrid(source.tensors, source.config, fused_input=fused)
    keys = tiny_gguf.hybrid_keys(source.config)
    tiny_gguf.write_gguf(tmp_path / "x.gguf", "qwen3next", keys, tensors)
    assert_same(tmp_path / "x.gguf", source.tensors)


def test_blocks_behind_the_last_layer_are_ignored(tiny: Any, tmp_path: Path) -> None:
    source = tiny()
    tensors = tiny_gguf.hybrid(source.tensors, source.config)
    tensors |= {"blk.4.nextn.eh_proj.weight": np.ones((64, 128), np.float32)}
    keys = {**tiny_gguf.hybrid_keys(source.config), "block_count": 5, "nextn_predict_layers": 1}
    tiny_gguf.write_gguf(tmp_path / "x.gguf", "qwen35moe", keys, tensors)
    assert assert_same(tmp_path / "x.gguf", source.tensors)["num_hidden_layers"] == 4


def dense_tensors(arch: str, *, tied: bool) -> dict[str, np.ndarray]:
    hidden, inner, head_dim, heads, kv_heads = 64, 96, 32, 4, 2
    shapes: dict[str, tuple[int, ...]] = {"embed_tokens.weight": (320, hidden)}
    for i in range(2):
        attention = {"q": heads * head_dim, "k": kv_heads * head_dim, "v": kv_heads * head_dim}
        layer: dict[str, tuple[int, ...]] = {
            f"self_attn.{part}_proj.weight": (rows, hidden) for part, rows in attention.items()
        }
        if arch == "qwen2":
            layer |= {f"self_attn.{part}_proj.bias": (rows,) for part, rows in attention.items()}
        if arch == "qwen3":
            layer |= {f"self_attn.{part}_norm.weight": (head_dim,) for part in "qk"}
        layer |= {
            "self_attn.o_proj.weight": (hidden, heads * head_dim),
            "mlp.gate_proj.weight": (inner, hidden),
            "mlp.up_proj.weight": (inner, hidden),
            "mlp.down_proj.weight": (hidden, inner),
            "input_layernorm.weight": (hidden,),
            "post_attention_layernorm.weight": (hidden,),
        }
        shapes |= {f"layers.{i}.{name}": shape for name, shape in layer.items()}
    shapes["norm.weight"] = (hidden,)
    if not tied:
        shapes["lm_head.weight"] = (320, hidden)
    rng = np.random.default_rng(0)
    return {name: draw(name, shape, rng, "plain") for name, shape in shapes.items()}


DENSE_KEYS = {
    "block_count": 2,
    "embedding_length": 64,
    "feed_forward_length": 96,
    "context_length": 512,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.key_length": 32,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "rope.freq_base": 1e5,
}


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("arch", ["llama", "qwen2", "qwen3"])
def test_dense_trunks(tmp_path: Path, arch: str, tied: bool) -> None:
    tensors = dense_tensors(arch, tied=tied)
    theirs = tiny_gguf.dense(tensors, arch, 4, 2)
    assert (theirs["blk.0.attn_q.weight"] == tensors["layers.0.self_attn.q_proj.weight"]).all() == (
        arch != "llama"
    )
    tiny_gguf.write_gguf(tmp_path / "x.gguf", arch, DENSE_KEYS, theirs)
    with Checkpoint(tmp_path) as checkpoint:  # the folder that holds it
        for name, value in tensors.items():
            full = name if name.startswith("lm_head") else f"model.{name}"
            assert (read(checkpoint, full).reshape(value.shape) == value).all(), name
        assert len(checkpoint.tensors) == len(tensors)
        config = checkpoint.config
    assert config == {
        "model_type": arch,
        "architectures": [f"{arch.capitalize()}ForCausalLM"],
        "vocab_size": 320,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "intermediate_size": 96,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1e5,
        "max_position_embeddings": 512,
        "tie_word_embeddings": tied,
        "attention_bias": arch == "qwen2",
        "mask_token_id": None,
        "hidden_act": "silu",
    }


def test_split_files(tmp_path: Path) -> None:
    tensors = dense_tensors("qwen3", tied=True)
    theirs = tiny_gguf.dense(tensors, "qwen3", 4, 2)
    names = list(theirs)
    for part, chosen in enumerate((names[:9], names[9:])):
        keys = {"split.no": part, "split.count": 2, "split.tensors.count": len(names)}
        tiny_gguf.write_gguf(
            tmp_path / f"x-{part + 1:05d}-of-00002.gguf",
            "qwen3",
            DENSE_KEYS if part == 0 else {},
            {name: theirs[name] for name in chosen},
            other_keys=keys,
        )
    for path in (tmp_path, tmp_path / "x-00002-of-00002.gguf"):
        with Checkpoint(path) as checkpoint:
            for name, value in tensors.items():
                assert (read(checkpoint, f"model.{name}").reshape(value.shape) == value).all()
