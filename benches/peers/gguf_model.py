"""Writes a GGUF of a synthetic model's shape (architecture qwen35moe) with random weights.

The trunk is the same: what Clover adds, four small tensors a layer, has no place there. Every
matrix has one type; norms, router and the like are float32. Memory: one tensor.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .codes import needs

EXTRA = "peers"
TYPES = ("Q4_0", "Q4_K")
_BLOCK_BYTES = 8 << 20
# Bytes of a block, its columns, and the standard deviation of its values where every scale is 1.
_BLOCKS = {"Q4_0": (18, 32, 4.61), "Q4_K": (144, 256, 245.0)}

Shape = tuple[int, ...]


class _Writer:
    """Tensors are announced first, then written in the same order."""

    def __init__(self, path: Path, shape: Any, kind: str, common: float, seed: int) -> None:
        with needs(EXTRA):
            import gguf
        self._gguf, self._shape, self._kind, self._common = gguf, shape, kind, common
        self._rng = np.random.default_rng(seed)
        self._blocks: dict[float, NDArray[np.uint8]] = {}
        self._out = gguf.GGUFWriter(path, "qwen35moe")

    def write(self) -> None:
        self._keys()
        tensors = list(_tensors(self._shape))
        for name, shape, deviation in tensors:
            dtype, kind = np.dtype(np.float32), None
            nbytes, stored = 4 * math.prod(shape), shape
            if deviation is not None:
                kind = self._gguf.GGMLQuantizationType[self._type(name)]
                columns, size = self._gguf.GGML_QUANT_SIZES[kind]
                stored = (*shape[:-1], shape[-1] // columns * size)
                nbytes, dtype = math.prod(stored), np.dtype(np.uint8)
            self._out.add_tensor_info(name, stored, dtype, nbytes, raw_dtype=kind)
        self._out.write_header_to_file()
        self._out.write_kv_data_to_file()
        self._out.write_ti_data_to_file()
        for name, shape, deviation in tensors:
            self._out.write_tensor_data(self._data(name, shape, deviation))
        self._out.close()

    def _type(self, name: str) -> str:
        return "Q8_0" if self._common and name == "token_embd.weight" else self._kind

    def _keys(self) -> None:
        out, s = self._out, self._shape
        out.add_vocab_size(s.vocab)
        out.add_tokenizer_model("no_vocab")
        out.add_context_length(262_144)
        out.add_embedding_length(s.hidden)
        out.add_block_count(s.layers)
        out.add_head_count(s.heads)
        out.add_head_count_kv(s.kv_heads)
        out.add_key_length(s.head_dim)
        out.add_value_length(s.head_dim)
        out.add_layer_norm_rms_eps(1e-6)
        out.add_rope_freq_base(1e7)
        out.add_rope_dimension_count(s.head_dim // 4)
        out.add_rope_dimension_sections([11, 11, 10, 0])
        out.add_expert_count(s.experts)
        out.add_expert_used_count(s.top_k)
        out.add_expert_feed_forward_length(s.inner)
        out.add_expert_shared_feed_forward_length(s.shared)
        out.add_ssm_conv_kernel(4)
        out.add_ssm_inner_size(s.delta_v_heads * s.delta_dim)
        out.add_ssm_state_size(s.delta_dim)
        out.add_ssm_time_step_rank(s.delta_v_heads)
        out.add_ssm_group_count(s.delta_k_heads)
        out.add_full_attention_interval(4)

    def _data(self, name: str, shape: Shape, deviation: float | None) -> NDArray[Any]:
        if deviation is None:
            return _floats(name, shape, self._rng)
        if self._type(name) == "Q8_0":
            rows = self._rng.standard_normal((1024, shape[-1]), np.float32)
            rows *= math.sqrt(1 - self._common)
            rows += math.sqrt(self._common) * self._rng.standard_normal(shape[-1], np.float32)
            kind = self._gguf.GGMLQuantizationType.Q8_0
            stored = self._gguf.quants.quantize(rows, kind)
            return np.resize(stored, (shape[0], stored.shape[1]))
        size, columns, _ = _BLOCKS[self._kind]
        nbytes = math.prod(shape) // columns * size
        block = self._random(deviation)
        start = size * int(self._rng.integers(len(block) // size))
        return np.resize(np.roll(block, -start), nbytes)

    def _random(self, deviation: float) -> NDArray[np.uint8]:
        """Whole blocks of random codes whose values have this standard deviation."""
        if deviation not in self._blocks:
            size, _, spread = _BLOCKS[self._kind]
            count = _BLOCK_BYTES // size
            blocks = np.frombuffer(bytearray(self._rng.bytes(count * size)), np.uint8)
            blocks = blocks.reshape(count, size)
            scales = np.full((count, 1), deviation / spread, "<f2")
            if self._kind == "Q4_0":
                scales *= self._rng.choice(np.array([-1, 1], "<f2"), scales.shape)
            else:  # a scale, and one for the minima, which stand for seven and a half steps
                scales = np.concatenate([scales, scales * np.float16(7.5)], 1)
            blocks[:, : scales.nbytes // count] = scales.view(np.uint8)
            self._blocks[deviation] = blocks.reshape(-1)
        return self._blocks[deviation]


def _tensors(s: Any) -> Iterator[tuple[str, Shape, float | None]]:
    """Names, shapes and standard deviations of weights (None: float32)."""
    hidden, inner = s.hidden, s.inner
    wide = hidden**-0.5
    yield "token_embd.weight", (s.vocab, hidden), 1.0
    for i in range(s.layers):
        for name, shape, deviation in (
            *(_attention(s) if (i + 1) % 4 == 0 else _delta(s)),
            ("attn_norm.weight", (hidden,), None),
            ("post_attention_norm.weight", (hidden,), None),
            ("ffn_gate_inp.weight", (s.experts, hidden), None),
            ("ffn_gate_exps.weight", (s.experts, inner, hidden), wide),
            ("ffn_up_exps.weight", (s.experts, inner, hidden), wide),
            ("ffn_down_exps.weight", (s.experts, hidden, inner), 0.5 * inner**-0.5),
            ("ffn_gate_inp_shexp.weight", (hidden,), None),
            ("ffn_gate_shexp.weight", (s.shared, hidden), wide),
            ("ffn_up_shexp.weight", (s.shared, hidden), wide),
            ("ffn_down_shexp.weight", (hidden, s.shared), 0.5 * s.shared**-0.5),
        ):
            yield f"blk.{i}.{name}", shape, deviation
    yield "output_norm.weight", (hidden,), None
    yield "output.weight", (s.vocab, hidden), 2.5 * wide


def _attention(s: Any) -> tuple[tuple[str, Shape, float | None], ...]:
    rows, wide = s.heads * s.head_dim, s.hidden**-0.5
    keys = s.kv_heads * s.head_dim
    return (
        ("attn_q.weight", (2 * rows, s.hidden), wide),
        ("attn_k.weight", (keys, s.hidden), wide),
        ("attn_v.weight", (keys, s.hidden), wide),
        ("attn_output.weight", (s.hidden, rows), 0.5 * rows**-0.5),
        ("attn_q_norm.weight", (s.head_dim,), None),
        ("attn_k_norm.weight", (s.head_dim,), None),
    )


def _delta(s: Any) -> tuple[tuple[str, Shape, float | None], ...]:
    value, wide = s.delta_v_heads * s.delta_dim, s.hidden**-0.5
    channels = 2 * s.delta_k_heads * s.delta_dim + value
    return (
        ("attn_qkv.weight", (channels, s.hidden), wide),
        ("attn_gate.weight", (value, s.hidden), wide),
        ("ssm_conv1d.weight", (channels, 4), None),
        ("ssm_dt.bias", (s.delta_v_heads,), None),
        ("ssm_a", (s.delta_v_heads,), None),
        ("ssm_beta.weight", (s.delta_v_heads, s.hidden), wide),
        ("ssm_alpha.weight", (s.delta_v_heads, s.hidden), wide),
        ("ssm_norm.weight", (s.delta_dim,), None),
        ("ssm_out.weight", (s.hidden, value), 0.5 * value**-0.5),
    )


def _floats(name: str, shape: Shape, rng: np.random.Generator) -> NDArray[np.float32]:
    """Values like those of a synthetic model; norms hold what they multiply by."""
    if "norm" in name:
        value = 1.0 + 0.1 * rng.standard_normal(shape)
    elif name.endswith("ssm_a"):
        value = -rng.uniform(1, 16, shape)
    elif name.endswith("ssm_dt.bias"):
        value = rng.uniform(-4, 0, shape)
    elif "conv" in name:
        value = 0.3 * rng.standard_normal(shape)
    else:
        value = rng.standard_normal(shape) * shape[-1] ** -0.5
    return value.astype(np.float32)


def write(path: str | Path, shape: Any, kind: str, *, common: float = 0.0, seed: int = 0) -> None:
    """`shape`: a synthetic.Shape; `kind`: one of TYPES; `common`: as in synthetic.COMMON. Raises
    Missing."""
    _Writer(Path(path), shape, kind, common, seed).write()
