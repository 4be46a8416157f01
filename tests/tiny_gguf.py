"""Writers of tiny GGUF files: what the converters do to a Hugging Face checkpoint, head by head.

Needs the gguf package; tests that use it skip without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]
_LAYER = {
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "post_attention_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.q_proj.bias": "attn_q.bias",
    "self_attn.k_proj.bias": "attn_k.bias",
    "self_attn.v_proj.bias": "attn_v.bias",
    "self_attn.o_proj.weight": "attn_output.weight",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
    "linear_attn.in_proj_qkv.weight": "attn_qkv.weight",
    "linear_attn.in_proj_z.weight": "attn_gate.weight",
    "linear_attn.in_proj_b.weight": "ssm_beta.weight",
    "linear_attn.in_proj_a.weight": "ssm_alpha.weight",
    "linear_attn.conv1d.weight": "ssm_conv1d.weight",
    "linear_attn.A_log": "ssm_a",
    "linear_attn.dt_bias": "ssm_dt.bias",
    "linear_attn.norm.weight": "ssm_norm.weight",
    "linear_attn.out_proj.weight": "ssm_out.weight",
    "mlp.gate.weight": "ffn_gate_inp.weight",
    "mlp.experts.down_proj": "ffn_down_exps.weight",
    "mlp.shared_expert.gate_proj.weight": "ffn_gate_shexp.weight",
    "mlp.shared_expert.up_proj.weight": "ffn_up_shexp.weight",
    "mlp.shared_expert.down_proj.weight": "ffn_down_shexp.weight",
    "mlp.shared_expert_gate.weight": "ffn_gate_inp_shexp.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
}
_OUTER = {
    "embed_tokens.weight": "token_embd.weight",
    "norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
PREVIEW = ("conv_right_weight", "logit_scale", "history_bias", "history_c")


def gguf_name(name: str) -> str:
    if name in _OUTER:
        return _OUTER[name]
    _, number, rest = name.split(".", 2)
    return f"blk.{number}.{_LAYER[rest]}"


def tile_heads(value: np.ndarray, k_heads: int, v_heads: int, first: int = 0) -> np.ndarray:
    """Rows behind ``first``: value heads from [K0v0, K0v1, K1v0, …] to [K0v0, K1v0, …, K0v1, …]."""
    out = value.copy()
    width, ratio = (len(value) - first) // v_heads, v_heads // k_heads
    for k in range(k_heads):
        for v in range(ratio):
            grouped, tiled = k * ratio + v, v * k_heads + k
            rows = value[first + grouped * width : first + (grouped + 1) * width]
            out[first + tiled * width : first + (tiled + 1) * width] = rows
    return out


def hybrid(
    tensors: Arrays,
    config: Mapping[str, Any],
    *,
    fused_experts: bool = False,
    tiled: bool = True,
) -> Arrays:
    """qwen35moe's tensors of a tiny Clover (fused experts, names without prefix)."""
    k_heads, v_heads = config["linear_num_key_heads"], config["linear_num_value_heads"]
    keys = 2 * k_heads * config["linear_key_head_dim"]
    if not tiled:
        k_heads = v_heads  # with a key head for each value head, nothing moves
    out: Arrays = {}
    for name, value in tensors.items():
        if name.endswith(PREVIEW):
            continue  # as the upstream converter does
        if name.endswith("experts.gate_up_proj"):
            layer = f"blk.{name.split('.')[1]}."
            half = value.shape[1] // 2
            if fused_experts:
                out[f"{layer}ffn_gate_up_exps.weight"] = value
            else:
                out[f"{layer}ffn_gate_exps.weight"] = value[:, :half]
                out[f"{layer}ffn_up_exps.weight"] = value[:, half:]
            continue
        if name.endswith("norm.weight") and "linear_attn" not in name:
            value = value + np.float32(1)
        elif name.endswith(("in_proj_qkv.weight", "conv1d.weight")):
            value = tile_heads(value.reshape(len(value), -1), k_heads, v_heads, keys)
        elif name.endswith(("in_proj_z.weight", "in_proj_b.weight", "in_proj_a.weight", "dt_bias")):
            value = tile_heads(value, k_heads, v_heads)
        elif name.endswith("A_log"):
            value = tile_heads(-np.exp(value), k_heads, v_heads)
        elif name.endswith("out_proj.weight"):
            value = tile_heads(value.T, k_heads, v_heads).T
        elif name.endswith("shared_expert_gate.weight"):
            value = value.reshape(-1)
        out[gguf_name(name)] = value
    return out


def next_hybrid(tensors: Arrays, config: Mapping[str, Any], *, fused_input: bool = False) -> Arrays:
    """qwen3next's: value heads as they are, beta and alpha together, key head by key head, and in
    old files also q, k, v and z."""
    k_heads, v_heads = config["linear_num_key_heads"], config["linear_num_value_heads"]
    ratio, k_dim = v_heads // k_heads, config["linear_key_head_dim"]
    v_width = ratio * config["linear_value_head_dim"]
    out = hybrid(tensors, config, tiled=False)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"blk.{layer}."
        if f"{prefix}ssm_beta.weight" not in out:
            continue
        beta, alpha = out.pop(f"{prefix}ssm_beta.weight"), out.pop(f"{prefix}ssm_alpha.weight")
        rows = []
        for k in range(k_heads):
            rows += [*beta[k * ratio : (k + 1) * ratio], *alpha[k * ratio : (k + 1) * ratio]]
        out[f"{prefix}ssm_ba.weight"] = np.stack(rows)
        if fused_input:
            qkv, z = out.pop(f"{prefix}attn_qkv.weight"), out.pop(f"{prefix}attn_gate.weight")
            q, key, v = np.split(qkv, [k_heads * k_dim, 2 * k_heads * k_dim])
            rows = []
            for k in range(k_heads):
                for part, width in ((q, k_dim), (key, k_dim), (v, v_width), (z, v_width)):
                    rows.append(part[k * width : (k + 1) * width])
            out[f"{prefix}ssm_in.weight"] = np.concatenate(rows)
    return out


def hybrid_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    rope = config["rope_parameters"]
    value = config["linear_num_value_heads"] * config["linear_value_head_dim"]
    return {
        "block_count": config["num_hidden_layers"],
        "embedding_length": config["hidden_size"],
        "context_length": config["max_position_embeddings"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.key_length": config["head_dim"],
        "attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        "rope.freq_base": float(rope["rope_theta"]),
        "rope.dimension_count": int(config["head_dim"] * rope["partial_rotary_factor"]),
        "expert_count": config["num_experts"],
        "expert_used_count": config["num_experts_per_tok"],
        "expert_feed_forward_length": config["moe_intermediate_size"],
        "ssm.conv_kernel": config["linear_conv_kernel_dim"],
        "ssm.state_size": config["linear_key_head_dim"],
        "ssm.group_count": config["linear_num_key_heads"],
        "ssm.time_step_rank": config["linear_num_value_heads"],
        "ssm.inner_size": value,
    }


def pair_rows(value: np.ndarray, heads: int) -> np.ndarray:
    """llama's query and key rows: the halves of each head interleaved."""
    width = len(value) // heads
    out = np.empty_like(value)
    for head in range(heads):
        for i in range(width // 2):
            out[head * width + 2 * i] = value[head * width + i]
            out[head * width + 2 * i + 1] = value[head * width + width // 2 + i]
    return out


def dense(tensors: Arrays, arch: str, heads: int, kv_heads: int) -> Arrays:
    """A llama, qwen2, qwen3, dream or llada of Hugging Face names without prefix."""
    out: Arrays = {}
    for name, value in tensors.items():
        paired = arch in ("llama", "llada")
        if paired and name.endswith("q_proj.weight"):
            value = pair_rows(value, heads)
        elif paired and name.endswith("k_proj.weight"):
            value = pair_rows(value, kv_heads)
        theirs = gguf_name(name).replace("post_attention_norm", "ffn_norm")
        out[theirs] = value
    return out


def dense_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Those of such a model, by its Hugging Face configuration."""
    return {
        "block_count": config["num_hidden_layers"],
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "context_length": config["max_position_embeddings"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        "rope.freq_base": config["rope_theta"],
    }


def write_gguf(
    path: Path,
    arch: str,
    keys: Mapping[str, Any],
    tensors: Arrays,
    *,
    kinds: Mapping[str, str] | None = None,
    other_keys: Mapping[str, Any] | None = None,
) -> Arrays:
    """Writes the file; ``kinds``: ending of a name to block type. Returns the values that the gguf
    package decodes from what was written."""
    import gguf

    writer = gguf.GGUFWriter(str(path), arch)
    for key, value in {**{f"{arch}.{k}": v for k, v in keys.items()}, **(other_keys or {})}.items():
        _add(writer, key, value)
    stored: Arrays = {}
    for name, value in tensors.items():
        kind = next((k for end, k in (kinds or {}).items() if name.endswith(end)), "F32")
        stored[name] = _add_tensor(writer, name, value, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return stored


def _add_tensor(writer: Any, name: str, value: np.ndarray, kind: str) -> np.ndarray:
    import gguf

    value = np.ascontiguousarray(value, np.float32)
    if kind == "F32":
        writer.add_tensor(name, value)
        return value
    quantised = gguf.GGMLQuantizationType[kind]
    data = gguf.quants.quantize(value, quantised) if value.dtype != np.uint8 else value
    writer.add_tensor(name, data, raw_dtype=quantised)
    return np.asarray(gguf.quants.dequantize(data, quantised), np.float32).reshape(value.shape)


def _add(writer: Any, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)
