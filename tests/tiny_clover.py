"""Maker of tiny seeded Clover checkpoints in the real layout.

A Hugging Face folder: ``config.json`` (``clover_moe``, keys of Qwen3.5-MoE's text configuration and
the preview fields), ``generation_config.json``, sharded safetensors with an index, a byte-level BPE
tokenizer and a chat template. The same seed gives the same bytes on every machine.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Shapes = dict[str, tuple[int, ...]]

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|mask|>")
WORDS = ("the", " the", " and", "ing", " to", " in", " of", "tion", " that", " is", "er", " for")
PADDING_ROWS = 32  # vocabulary rows behind the tokenizer's last id, as the real model has
# Widths of Clover-35B-A3B that do not follow from its hidden size.
RELEASE_WIDTHS: dict[str, Any] = {
    "head_dim": 256,
    "num_attention_heads": 16,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
}
CHAT_TEMPLATE = (
    "{%- for message in messages %}"
    "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{%- endfor %}{%- if add_generation_prompt %}<|im_start|>assistant\n{%- endif %}"
)


def tiny_config(
    *,
    hidden: int = 64,
    layers: int = 4,
    experts: int = 16,
    top_k: int = 2,
    vocab: int = 320,
    overrides: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The flat text configuration; ``overrides`` replaces keys before they shape any weight."""
    config: dict[str, Any] = {
        "architectures": ["CloverMoeModelLM"],
        "model_type": "clover_moe",
        "dtype": "bfloat16",
        "vocab_size": vocab,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
        "full_attention_interval": 4,
        "layer_types": [
            "full_attention" if (i + 1) % 4 == 0 else "linear_attention" for i in range(layers)
        ],
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": hidden // 2,
        "attention_bias": False,
        "attn_output_gate": True,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10_000_000,
            "partial_rotary_factor": 0.25,
        },
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": hidden // 4,
        "linear_value_head_dim": hidden // 4,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "num_experts": experts,
        "num_experts_per_tok": top_k,
        "norm_topk_prob": True,
        "moe_intermediate_size": hidden // 2,
        "shared_expert_intermediate_size": hidden // 2,
        "num_shared_experts": 1,
        "block_size": 32,
        "coreset_size": 0,
    }
    config.update(overrides or {})
    config.setdefault("mask_token_id", special_ids(config["vocab_size"])["<|mask|>"])
    return config


def special_ids(vocab: int) -> dict[str, int]:
    """Special tokens take the last ids in front of the padded rows."""
    first = vocab - PADDING_ROWS - len(SPECIAL_TOKENS)
    return {token: first + n for n, token in enumerate(SPECIAL_TOKENS)}


def tensor_shapes(config: dict[str, Any], *, fused_experts: bool = True) -> Shapes:
    """Checkpoint names without their prefix, in file order, and their shapes."""
    hidden, vocab = config["hidden_size"], config["vocab_size"]
    shapes: Shapes = {"embed_tokens.weight": (vocab, hidden)}
    for i, kind in enumerate(config["layer_types"]):
        layer = {
            "input_layernorm.weight": (hidden,),
            "post_attention_layernorm.weight": (hidden,),
            **(_attention(config) if kind == "full_attention" else _delta(config)),
            **_feed_forward(config, fused_experts),
        }
        shapes.update({f"layers.{i}.{name}": shape for name, shape in layer.items()})
    shapes["norm.weight"] = (hidden,)
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (vocab, hidden)
    return shapes


def _attention(config: dict[str, Any]) -> Shapes:
    hidden, head_dim = config["hidden_size"], config["head_dim"]
    q = config["num_attention_heads"] * head_dim
    kv = config["num_key_value_heads"] * head_dim
    return {
        "self_attn.q_proj.weight": (2 * q if config["attn_output_gate"] else q, hidden),
        "self_attn.k_proj.weight": (kv, hidden),
        "self_attn.v_proj.weight": (kv, hidden),
        "self_attn.o_proj.weight": (hidden, q),
        "self_attn.q_norm.weight": (head_dim,),
        "self_attn.k_norm.weight": (head_dim,),
    }


def _delta(config: dict[str, Any]) -> Shapes:
    hidden, taps = config["hidden_size"], config["linear_conv_kernel_dim"]
    heads, width = config["linear_num_value_heads"], config["linear_value_head_dim"]
    value = heads * width
    channels = 2 * config["linear_num_key_heads"] * config["linear_key_head_dim"] + value
    return {
        "linear_attn.in_proj_qkv.weight": (channels, hidden),
        "linear_attn.in_proj_z.weight": (value, hidden),
        "linear_attn.in_proj_b.weight": (heads, hidden),
        "linear_attn.in_proj_a.weight": (heads, hidden),
        "linear_attn.conv1d.weight": (channels, 1, taps),
        "linear_attn.conv_right_weight": (channels, taps - 1),
        "linear_attn.A_log": (heads,),
        "linear_attn.dt_bias": (heads,),
        "linear_attn.norm.weight": (width,),
        "linear_attn.out_proj.weight": (hidden, value),
        "linear_attn.bd_softmax_logit_scale": (heads,),
        "linear_attn.bd_softmax_history_bias": (heads,),
        "linear_attn.bd_softmax_history_c": (heads,),
    }


def _feed_forward(config: dict[str, Any], fused: bool) -> Shapes:
    hidden, experts = config["hidden_size"], config["num_experts"]
    inner, shared = config["moe_intermediate_size"], config["shared_expert_intermediate_size"]
    shapes: Shapes = {"mlp.gate.weight": (experts, hidden)}
    if fused:
        shapes["mlp.experts.gate_up_proj"] = (experts, 2 * inner, hidden)
        shapes["mlp.experts.down_proj"] = (experts, hidden, inner)
    else:
        for e in range(experts):
            shapes[f"mlp.experts.{e}.gate_proj.weight"] = (inner, hidden)
            shapes[f"mlp.experts.{e}.up_proj.weight"] = (inner, hidden)
            shapes[f"mlp.experts.{e}.down_proj.weight"] = (hidden, inner)
    if shared:
        shapes["mlp.shared_expert.gate_proj.weight"] = (shared, hidden)
        shapes["mlp.shared_expert.up_proj.weight"] = (shared, hidden)
        shapes["mlp.shared_expert.down_proj.weight"] = (hidden, shared)
        shapes["mlp.shared_expert_gate.weight"] = (1, hidden)
    return shapes


def draw(name: str, shape: tuple[int, ...], rng: np.random.Generator, norm: str = "zero") -> Array:
    """Seeded values of one tensor, scaled so that a random model has lively logits."""
    if name.endswith("norm.weight"):
        plain = norm == "plain" or name.endswith("linear_attn.norm.weight")
        value = (1.0 if plain else 0.0) + 0.1 * rng.standard_normal(shape)
    elif name.endswith("A_log"):
        value = np.log(rng.uniform(1, 16, shape))
    elif name.endswith("dt_bias"):
        value = rng.uniform(-4, 0, shape)
    elif "conv" in name:
        value = 0.3 * rng.standard_normal(shape)
    elif name.endswith("logit_scale"):
        value = rng.uniform(2, 8, shape)
    elif name.endswith(("history_bias", "history_c")):
        value = rng.standard_normal(shape)
    else:
        gain = {"embed_tokens.weight": math.sqrt(shape[-1]), "lm_head.weight": 2.5}.get(name, 1.0)
        value = rng.standard_normal(shape) * (gain / math.sqrt(shape[-1]))
    return value.astype(np.float32)


def make_checkpoint(
    folder: str | Path,
    *,
    seed: int = 0,
    hidden: int = 64,
    layers: int = 4,
    experts: int = 16,
    top_k: int = 2,
    shards: int = 2,
    prefix: str = "model.",
    dtype: str = "bf16",
    norm: str = "zero",
    vocab: int = 320,
    fused_experts: bool = True,
    nested: bool = False,
    overrides: dict[str, Any] | None = None,
) -> dict[str, Array]:
    """Write a checkpoint and return its tensors, keyed by the names *without* the prefix.

    The returned values are float32 and exactly what the file holds (rounded to ``dtype``). Experts
    are returned fused (``gate_up_proj [E, 2I, H]``) whichever way they are stored. ``overrides``
    replaces configuration keys before weights are shaped; ``norm`` is "zero" (x * (1 + w)) or
    "plain" (x * w); ``nested`` puts the text configuration under ``text_config``.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = tiny_config(
        hidden=hidden, layers=layers, experts=experts, top_k=top_k, vocab=vocab, overrides=overrides
    )
    rng = np.random.default_rng(seed)
    tensors = {
        name: rounded(draw(name, shape, rng, norm), dtype)
        for name, shape in tensor_shapes(config).items()
    }
    stored = tensors if fused_experts else dict(separate_experts(tensors))
    named = {
        name if name.startswith("lm_head") else prefix + name: value
        for name, value in stored.items()
    }
    write_checkpoint_files(folder, named, shards=shards, dtype=dtype)
    write_side_files(folder, config, nested=nested)
    return tensors


def separate_experts(tensors: dict[str, Array]) -> Iterator[tuple[str, Array]]:
    for name, value in tensors.items():
        if name.endswith("experts.gate_up_proj"):
            stem, inner = name.removesuffix("gate_up_proj"), value.shape[1] // 2
            for e, expert in enumerate(value):
                yield f"{stem}{e}.gate_proj.weight", expert[:inner]
                yield f"{stem}{e}.up_proj.weight", expert[inner:]
        elif name.endswith("experts.down_proj"):
            stem = name.removesuffix("down_proj")
            for e, expert in enumerate(value):
                yield f"{stem}{e}.down_proj.weight", expert
        else:
            yield name, value


def to_bf16(value: Array) -> NDArray[np.uint16]:
    """Bits of the nearest bfloat16, ties to even (finite input)."""
    bits = np.ascontiguousarray(value, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def rounded(value: Array, dtype: str) -> Array:
    if dtype == "bf16":
        return (to_bf16(value).astype(np.uint32) << 16).view(np.float32)
    return value.astype(np.float16).astype(np.float32) if dtype == "f16" else value


def write_checkpoint_files(
    folder: Path, tensors: dict[str, Array], *, shards: int = 1, dtype: str = "bf16"
) -> None:
    """``model.safetensors`` for one shard, else numbered shards and their index."""
    names = list(tensors)
    if shards == 1:
        write_safetensors(folder / "model.safetensors", tensors, dtype)
        return
    weight_map: dict[str, str] = {}
    for s in range(shards):
        part = names[s * len(names) // shards : (s + 1) * len(names) // shards]
        file = f"model-{s + 1:05d}-of-{shards:05d}.safetensors"
        write_safetensors(folder / file, {name: tensors[name] for name in part}, dtype)
        weight_map.update(dict.fromkeys(part, file))
    total = sum(value.size for value in tensors.values()) * (4 if dtype == "f32" else 2)
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    _write_json(folder / "model.safetensors.index.json", index)


def write_safetensors(path: Path, tensors: dict[str, Array], dtype: str = "bf16") -> None:
    """A plain safetensors file, written without the library so that bf16 needs no extra package."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset, size = 0, 4 if dtype == "f32" else 2
    for name, value in tensors.items():
        end = offset + value.size * size
        header[name] = {
            "dtype": {"bf16": "BF16", "f16": "F16", "f32": "F32"}[dtype],
            "shape": list(value.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for value in tensors.values():
            file.write(_encoded(value, dtype))


def _encoded(value: Array, dtype: str) -> bytes:
    if dtype == "bf16":
        return to_bf16(value).tobytes()
    return value.astype(np.float16 if dtype == "f16" else np.float32).tobytes()


def write_side_files(folder: Path, config: dict[str, Any], *, nested: bool = False) -> None:
    """Configuration, generation defaults, tokenizer and chat template."""
    top = config
    if nested:
        outer = ("architectures", "model_type", "dtype", "tie_word_embeddings", "mask_token_id")
        text = {k: v for k, v in config.items() if k not in ("architectures", "mask_token_id")}
        top = {key: config[key] for key in outer if key in config}
        top["text_config"] = {**text, "model_type": "clover_moe_text"}
    _write_json(folder / "config.json", top)
    ids = special_ids(config["vocab_size"])
    _write_json(
        folder / "generation_config.json",
        {
            "eos_token_id": [ids["<|im_end|>"], ids["<|endoftext|>"]],
            "pad_token_id": ids["<|endoftext|>"],
            "threshold": 0.9,
            "temperature": 0.0,
        },
    )
    write_tokenizer(folder, min(ids.values()), SPECIAL_TOKENS)
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "mask_token": "<|mask|>",
            "model_max_length": config["max_position_embeddings"],
        },
    )
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)


def byte_alphabet() -> list[str]:
    """The 256 printable stand-ins of byte-level BPE, in byte order."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(b if b in printable else next(others)) for b in range(256)]


def write_tokenizer(folder: Path, size: int, special: Sequence[str]) -> None:
    """Byte-level BPE with exactly ``size`` ordinary ids (>= 256), then the special tokens."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    alphabet = byte_alphabet()
    vocab = {char: i for i, char in enumerate(alphabet)}
    if size < len(vocab):
        raise ValueError(f"vocabulary leaves {size} ordinary ids; byte-level BPE needs 256")
    merges: list[tuple[str, str]] = []
    for pair in _merge_candidates(alphabet):
        if len(vocab) == size:
            break
        if "".join(pair) not in vocab:
            merges.append(pair)
            vocab["".join(pair)] = len(vocab)
    if len(vocab) < size:
        raise ValueError(f"only {len(vocab)} ordinary ids can be made, {size} asked for")
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in special])
    tokenizer.save(str(folder / "tokenizer.json"))


def _merge_candidates(alphabet: list[str]) -> Iterator[tuple[str, str]]:
    for word in WORDS:
        chars = [alphabet[byte] for byte in word.encode()]
        for i in range(1, len(chars)):
            yield "".join(chars[:i]), chars[i]
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    pairs = [(first, second) for first in letters for second in letters]
    yield from pairs
    for first, second in pairs:
        for third in letters:
            yield first + second, third


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")
