"""Reads a packed folder back into the checkpoint's own tensors, from the description of the format.

Independent of ``clover_edge.quant`` on purpose: it judges the writer, and gives the oracle the very
weights that the core computes with.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Bytes = NDArray[np.uint8]
TILE = 16  # rows of a packed tile
BITS = {"int8": 8, "int4": 4, "codebook4": 4, "int3": 3}


def read_packed(folder: Path) -> tuple[dict[str, Array], dict[str, Any]]:
    """(tensors by checkpoint name without prefix, parsed ``config.json``)."""
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    meta = config["clover_edge"]
    stored = _stored(folder)
    plain: dict[str, Array] = {}
    for name, entry in meta["tensors"].items():
        if entry["scheme"] == "experts":
            for part, spec in entry["parts"].items():
                bytes_ = stored[name][:, spec["offset"] : spec["offset"] + spec["bytes"]]
                plain[f"{name}.{part}"] = np.stack([decode(spec, record) for record in bytes_])
        else:
            plain[name] = decode(entry, stored[name].reshape(-1))
    names = _canvas_names if meta["spec"].get("noise") == "uniform" else _checkpoint_names
    return names(plain, meta["spec"]), config


def decode(entry: dict[str, Any], raw: Bytes) -> Array:
    """One matrix or vector from its bytes."""
    shape = entry["shape"]
    if entry["scheme"] == "f32":
        return raw.view("<f4").reshape(shape).copy()
    if entry["scheme"] == "bf16":
        return (raw.view("<u2").astype(np.uint32) << 16).view(np.float32).reshape(shape)
    n, k = shape
    group = entry["group"]
    tiles = -(-n // TILE)
    block = 32 + group * TILE * BITS[entry["scheme"]] // 8
    raw = raw[: tiles * (k // group) * block].reshape(tiles, k // group, block)
    scales = raw[..., :32].copy().view("<f2").astype(np.float32)  # [tile, group, 16 rows]
    levels = _levels(entry, raw[..., 32:].reshape(tiles, k // group, -1, TILE, 4))
    # [tile, group, 4 columns each, row, column] to [tile, group, row, column of the group]
    levels = levels.transpose(0, 1, 3, 2, 4).reshape(tiles, k // group, TILE, group)
    values = levels * scales[..., None]
    return values.transpose(0, 2, 1, 3).reshape(tiles * TILE, k)[:n]


def _levels(entry: dict[str, Any], vectors: Bytes) -> Array:
    """Values in units of the scale from the vectors [tile, group, vector, row, j] of all groups."""
    scheme = entry["scheme"]
    if scheme == "int8":
        return vectors.view(np.int8).astype(np.float32)  # byte 4r+j of vector c: column 4c+j
    fours = []
    if scheme == "int3":
        for quad in range(16):  # columns 4 quad .. 4 quad + 3
            low = vectors[:, :, quad // 4] >> 2 * (quad % 4) & 3
            high = vectors[:, :, 4 + quad // 8] >> quad % 8 & 1
            fours.append((low + 4 * high).astype(np.float32) - 4)
    else:
        book = np.array(entry.get("codebook", range(-8, 8)), np.float32)
        for c in range(vectors.shape[2]):  # columns 8c+j (low nibble) and 8c+4+j (high nibble)
            fours += [book[vectors[:, :, c] & 15], book[vectors[:, :, c] >> 4]]
    return np.stack(fours, axis=2)


def _stored(folder: Path) -> dict[str, Bytes]:
    index = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    out: dict[str, Bytes] = {}
    for file in sorted(set(index.values())):
        raw = np.fromfile(folder / file, dtype=np.uint8)
        start = 8 + int(raw[:8].view("<u8")[0])
        for name, entry in json.loads(raw[8:start].tobytes()).items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                data = raw[start + begin : start + end]
                out[name] = data.reshape(entry["shape"]) if entry["dtype"] == "U8" else data
    return out


def _checkpoint_names(plain: dict[str, Array], spec: dict[str, Any]) -> dict[str, Array]:
    out = {"norm.weight": plain["final_norm"]}
    if "drafts_for_layers" in spec:
        out |= {"fc.weight": plain["context.in"], "hidden_norm.weight": plain["context.norm"]}
    else:
        out["embed_tokens.weight"] = plain["embed"]
        out |= {} if spec["tie_embeddings"] else {"lm_head.weight": plain["head"]}
    for i, kind in enumerate(spec["layer_types"]):
        layer = f"layers.{i}."
        parts = {
            name.removeprefix(layer): value
            for name, value in plain.items()
            if name.startswith(layer)
        }
        mixer = _attention(parts, spec) if kind == "attention" else _delta(parts)
        named = {**_feed_forward(parts), **mixer}
        named["input_layernorm.weight"] = parts["norm1"]
        second = "post_attention_layernorm.weight"
        if "post_norm1" in parts:  # Gemma's four, where the second name is that of another norm
            named[second] = parts["post_norm1"]
            named["post_feedforward_layernorm.weight"] = parts["post_norm2"]
            second = "pre_feedforward_layernorm.weight"
        named[second] = parts["norm2"]
        out.update({layer + name: value for name, value in named.items()})
    return out


_NAMES = {  # of DiffusionGemma's layers
    "norm1": "input_layernorm.weight",
    "post_norm1": "post_attention_layernorm.weight",
    "norm2": "pre_feedforward_layernorm.weight",
    "dense_post_norm": "post_feedforward_layernorm_1.weight",
    "expert_norm": "pre_feedforward_layernorm_2.weight",
    "expert_post_norm": "post_feedforward_layernorm_2.weight",
    "post_norm2": "post_feedforward_layernorm.weight",
    "attn.q_norm": "self_attn.q_norm.weight",
    "attn.k_norm": "self_attn.k_norm.weight",
    "attn.out": "self_attn.o_proj.weight",
    "router": "router.proj.weight",
    "router_norm": "router.scale",
    "expert_scales": "router.per_expert_scale",
    "experts.down": "experts.down_proj",
    "dense.down": "mlp.down_proj.weight",
    "preview_scale": "layer_scalar",
}


def _canvas_names(plain: dict[str, Array], spec: dict[str, Any]) -> dict[str, Array]:
    """DiffusionGemma's, which are whole: they have no prefix in common."""
    out = {"embed_tokens.weight": plain["embed"], "norm.weight": plain["final_norm"]}
    out["self_conditioning.pre_norm.weight"] = plain["self_conditioning.norm"]
    out["self_conditioning.down_proj.weight"] = plain["self_conditioning.down"]
    both = {"self_conditioning.": plain["self_conditioning.gate_up"]}
    for i, width in enumerate(spec["head_dims"]):
        layer = f"layers.{i}."
        out |= {layer + theirs: plain[layer + ours] for ours, theirs in _NAMES.items()}
        both[layer + "mlp."] = plain[layer + "dense.gate_up"]
        experts = [plain[f"{layer}experts.{part}"] for part in ("gate", "up")]
        out[layer + "experts.gate_up_proj"] = np.concatenate(experts, axis=1)
        rows = np.cumsum([spec["num_heads"] * width, spec["kv_heads"][i] * width])
        for part, value in zip("qkv", np.split(plain[layer + "attn.in"], rows), strict=True):
            if len(value):
                out[f"{layer}self_attn.{part}_proj.weight"] = value
    for name, value in both.items():
        out[name + "gate_proj.weight"], out[name + "up_proj.weight"] = np.split(value, 2)
    whole = {"model.decoder." + name: value for name, value in out.items()}
    for i in range(spec["num_layers"]):
        name = f"model.encoder.language_model.layers.{i}.layer_scalar"
        whole[name] = plain[f"layers.{i}.commit_scale"]
    return whole


def _attention(parts: dict[str, Array], spec: dict[str, Any]) -> dict[str, Array]:
    rows = spec["num_heads"] * spec["head_dim"]
    kv = spec["num_kv_heads"] * spec["head_dim"]
    both = [rows, rows] if spec["attn_output_gate"] else [rows]
    named = {"o_proj.weight": parts["attn.out"]}
    for kind, whole in (("weight", parts["attn.in"]), ("bias", parts.get("attn.in_bias"))):
        if whole is None:
            continue
        *q, k, v = np.split(whole, np.cumsum([*both, kv]))
        # q heads and gate heads go back to [q of head 0, gate of head 0, q of head 1, ...]
        heads = [part.reshape(spec["num_heads"], spec["head_dim"], -1) for part in q]
        named["q_proj." + kind] = np.concatenate(heads, axis=1).reshape(-1, k.shape[1])
        named |= {"k_proj." + kind: k, "v_proj." + kind: v}
    optional = {"out_bias": "o_proj.bias", "q_norm": "q_norm.weight", "k_norm": "k_norm.weight"}
    for ours, theirs in optional.items():
        if f"attn.{ours}" in parts:
            named[theirs] = parts[f"attn.{ours}"]
    return {
        f"self_attn.{name}": value.reshape(-1) if name.endswith("bias") else value
        for name, value in named.items()
    }


def _delta(parts: dict[str, Array]) -> dict[str, Array]:
    channels = len(parts["delta.conv"])
    b, a = np.split(parts["delta.ba"], 2)
    named = {
        "in_proj_qkv.weight": parts["delta.in"][:channels],
        "in_proj_z.weight": parts["delta.in"][channels:],
        "in_proj_b.weight": b,
        "in_proj_a.weight": a,
        "conv1d.weight": parts["delta.conv"],
        "A_log": parts["delta.A_log"],
        "dt_bias": parts["delta.dt_bias"],
        "norm.weight": parts["delta.norm"],
        "out_proj.weight": parts["delta.out"],
    }
    if "delta.conv_right" in parts:  # absent of a model without previews
        named["conv_right_weight"] = parts["delta.conv_right"]
        for name in ("logit_scale", "history_bias", "history_c"):
            named[f"bd_softmax_{name}"] = parts[f"delta.{name}"]
    return {f"linear_attn.{name}": value for name, value in named.items()}


def _feed_forward(parts: dict[str, Array]) -> dict[str, Array]:
    if "dense.down" in parts:
        gate, up = np.split(parts["dense.gate_up"], 2)
        dense = {"gate_proj": gate, "up_proj": up, "down_proj": parts["dense.down"]}
        return {f"mlp.{name}.weight": value for name, value in dense.items()}
    named = {
        "gate.weight": parts["router"],
        "experts.gate_up_proj": np.concatenate([parts["experts.gate"], parts["experts.up"]], 1),
        "experts.down_proj": parts["experts.down"],
    }
    if "shared.down" in parts:
        gate, up = np.split(parts["shared.gate_up"], 2)
        named["shared_expert.gate_proj.weight"] = gate
        named["shared_expert.up_proj.weight"] = up
        named["shared_expert.down_proj.weight"] = parts["shared.down"]
    for ours, theirs in (
        ("shared_gate", "shared_expert_gate.weight"),
        ("router_bias", "gate.expert_bias"),
    ):
        if ours in parts:
            named[theirs] = parts[ours]
    return {f"mlp.{name}": value for name, value in named.items()}
