"""GGUF names and orders of the hybrids with DeltaNet layers: Qwen3-Next, Qwen3.5, Clover."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import CheckpointError
from ..fields import Fields
from .base import Floats, RowTensor
from .gguf_file import GgufFiles, GgufTensor
from .view import Order, View

_CLOVER = ("clover", "clover-moe", "clover_moe", "clovermoe")
_MODEL_TYPES = {
    "qwen35": "qwen3_5_text",
    "qwen35moe": "qwen3_5_moe_text",
    "qwen3next": "qwen3_next",
    **dict.fromkeys(_CLOVER, "clover_moe"),
}
HYBRID = tuple(_MODEL_TYPES)
_ATTENTION = {
    "attn_q.weight": "q_proj.weight",  # per head its query rows, then its gate rows, as they were
    "attn_k.weight": "k_proj.weight",
    "attn_v.weight": "v_proj.weight",
    "attn_output.weight": "o_proj.weight",
    "attn_q_norm.weight": "q_norm.weight",
    "attn_k_norm.weight": "k_norm.weight",
}
_PARTS = ("gate", "up", "down")


class Hybrid:
    """The configuration and the named tensors of such a file."""

    def __init__(self, arch: str, files: GgufFiles, fields: Fields, common: dict[str, Any]) -> None:
        self._files, self._fields, self._common = files, fields, common
        self._arch, self._used = arch, set[str]()
        f = fields
        self._k_heads, self._v_heads = f.integer("ssm.group_count"), f.integer("ssm.time_step_rank")
        self._k_dim = f.integer("ssm.state_size")
        value = f.integer("ssm.inner_size")
        if self._v_heads % self._k_heads or value % self._v_heads:
            reason = f"{self._v_heads} value heads do not fit {self._k_heads} key heads or {value}"
            raise f.refuse("ssm.time_step_rank", reason)
        self._v_dim = value // self._v_heads
        # qwen3next's converter leaves the value heads where they are
        tiled = np.arange(self._v_heads).reshape(-1, self._k_heads).T.reshape(-1)
        self._heads = np.arange(self._v_heads) if arch == "qwen3next" else tiled
        self.named: dict[str, RowTensor] = {}
        kinds = [self._layer(i) for i in range(common["num_hidden_layers"])]
        self._outer()
        self.config = self._configuration(kinds)

    def _configuration(self, kinds: list[str]) -> dict[str, Any]:
        f, head_dim = self._fields, self._common["head_dim"]
        rotary = f.integer("rope.dimension_count", head_dim)
        return {
            **self._common,
            "model_type": _MODEL_TYPES[self._arch],
            "preview": False,  # no converter keeps the preview tensors
            "layer_types": kinds,
            "attn_output_gate": True,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": f.number("rope.freq_base"),
                "partial_rotary_factor": rotary / head_dim,
            },
            "linear_conv_kernel_dim": f.integer("ssm.conv_kernel"),
            "linear_key_head_dim": self._k_dim,
            "linear_value_head_dim": self._v_dim,
            "linear_num_key_heads": self._k_heads,
            "linear_num_value_heads": self._v_heads,
            **(self._dense_sizes() if self._arch == "qwen35" else self._expert_sizes()),
        }

    def _dense_sizes(self) -> dict[str, Any]:
        return {"intermediate_size": self._fields.integer("feed_forward_length")}

    def _expert_sizes(self) -> dict[str, Any]:
        f, shared = self._fields, self._files.found.get("blk.0.ffn_up_shexp.weight")
        return {
            "num_experts": f.integer("expert_count"),
            "num_experts_per_tok": f.integer("expert_used_count"),
            "norm_topk_prob": True,
            "moe_intermediate_size": f.integer("expert_feed_forward_length"),
            "num_shared_experts": int(shared is not None),
            "shared_expert_intermediate_size": shared.info.shape[0] if shared else 0,
        }

    def _outer(self) -> None:
        self._name("model.embed_tokens.weight", "token_embd.weight")
        self._name("model.norm.weight", "output_norm.weight")
        if "output.weight" in self._files.found:
            self._name("lm_head.weight", "output.weight")
        layers = self._common["num_hidden_layers"]
        for name, tensor in self._files.found.items():
            if name in self._used or name == "rope_freqs.weight":
                continue
            number = name.split(".")[1] if name.startswith("blk.") else ""
            if not number.isdigit() or int(number) < layers:  # those behind predict further tokens
                reason = f"is not known to the {self._arch} architecture"
                raise CheckpointError(str(tensor.info.file), name, reason)

    def _layer(self, i: int) -> str:
        theirs, ours = f"blk.{i}.", f"model.layers.{i}."
        self._name(f"{ours}input_layernorm.weight", f"{theirs}attn_norm.weight")
        second = f"{theirs}post_attention_norm.weight"
        if second not in self._files.found:
            second = f"{theirs}ffn_norm.weight"
        self._name(f"{ours}post_attention_layernorm.weight", second)
        self._feed_forward(f"{ours}mlp.", theirs)
        if f"{theirs}attn_q.weight" in self._files.found:
            for name, hf in _ATTENTION.items():
                self._name(f"{ours}self_attn.{hf}", theirs + name)
            return "full_attention"
        self._delta(f"{ours}linear_attn.", theirs)
        return "linear_attention"

    def _take(self, name: str) -> GgufTensor:
        tensor = self._files.found.get(name)
        if tensor is None:
            raise CheckpointError(str(self._files.path), name, "is missing")
        self._used.add(name)
        return tensor

    def _name(self, hf: str, name: str, *shape: int, **options: Any) -> None:
        tensor, columns = self._take(name), options.get("columns")
        if columns is not None and len(columns) != tensor.info.width:
            reason = f"shape {list(tensor.info.shape)}: {len(columns)} columns expected"
            raise CheckpointError(str(tensor.info.file), name, reason)
        self.named[hf] = View(tensor, shape or tensor.info.shape, **options)

    def _rows(self, name: str, *sizes: int) -> None:
        """CheckpointError unless a tensor has as many rows (a vector: entries) as ``sizes`` say."""
        tensor = self._take(name)
        if tensor.info.shape[0] != sum(sizes):
            reason = f"shape {list(tensor.info.shape)}: {sum(sizes)} rows expected"
            raise CheckpointError(str(tensor.info.file), name, reason)

    def _value_order(self, width: int) -> Order:
        """Where each of the value heads' rows, ``width`` a head, lies in the file."""
        return (self._heads[:, None] * width + np.arange(width)).reshape(-1)

    def _delta(self, ours: str, theirs: str) -> None:
        keys, value = self._k_heads * self._k_dim, self._v_heads * self._v_dim
        values = self._value_order(self._v_dim)
        channels = np.concatenate([np.arange(2 * keys), 2 * keys + values])
        one = self._value_order(1)
        if f"{theirs}ssm_in.weight" in self._files.found:
            self._fused_input(ours, f"{theirs}ssm_in.weight")
        else:
            self._rows(f"{theirs}attn_qkv.weight", 2 * keys, value)
            self._rows(f"{theirs}attn_gate.weight", value)
            self._name(f"{ours}in_proj_qkv.weight", f"{theirs}attn_qkv.weight", order=channels)
            self._name(f"{ours}in_proj_z.weight", f"{theirs}attn_gate.weight", order=values)
        self._beta_alpha(ours, theirs, one)
        self._rows(f"{theirs}ssm_conv1d.weight", 2 * keys, value)
        taps = self._take(f"{theirs}ssm_conv1d.weight").info.width
        conv = (len(channels), 1, taps)
        self._name(f"{ours}conv1d.weight", f"{theirs}ssm_conv1d.weight", *conv, order=channels)
        a = f"{theirs}ssm_a"
        self._name(f"{ours}A_log", a, self._v_heads, columns=one, change=_a_log)
        self._name(f"{ours}dt_bias", f"{theirs}ssm_dt.bias", self._v_heads, columns=one)
        self._name(f"{ours}norm.weight", f"{theirs}ssm_norm.weight")
        self._name(f"{ours}out_proj.weight", f"{theirs}ssm_out.weight", columns=values)

    def _fused_input(self, ours: str, name: str) -> None:
        """Rows key head by key head: its q, k, values and gates."""
        ratio = self._v_heads // self._k_heads
        widths = [self._k_dim, self._k_dim, ratio * self._v_dim, ratio * self._v_dim]
        self._rows(name, self._k_heads * sum(widths))
        ends = np.cumsum(widths)
        rows = np.arange(self._k_heads * sum(widths)).reshape(self._k_heads, -1)
        q, k, v, z = (x.reshape(-1) for x in np.split(rows, ends[:-1], axis=1))
        width, qkv = self._take(name).info.width, np.concatenate([q, k, v])
        self._name(f"{ours}in_proj_qkv.weight", name, len(qkv), width, order=qkv)
        self._name(f"{ours}in_proj_z.weight", name, len(z), width, order=z)

    def _beta_alpha(self, ours: str, theirs: str, one: Order) -> None:
        both = f"{theirs}ssm_ba.weight"
        if both not in self._files.found:
            for hf, name in (("b", "beta"), ("a", "alpha")):
                self._rows(f"{theirs}ssm_{name}.weight", self._v_heads)
                source = f"{theirs}ssm_{name}.weight"
                self._name(f"{ours}in_proj_{hf}.weight", source, order=one)
            return
        self._rows(both, 2 * self._v_heads)
        width = self._take(both).info.width
        # [key head, b or a, value head]
        rows = np.arange(2 * self._v_heads).reshape(self._k_heads, 2, -1)
        for place, hf in enumerate("ba"):
            order = rows[:, place].reshape(-1)
            self._name(f"{ours}in_proj_{hf}.weight", both, self._v_heads, width, order=order)

    def _feed_forward(self, ours: str, theirs: str) -> None:
        if self._arch == "qwen35":
            for part in _PARTS:
                self._name(f"{ours}{part}_proj.weight", f"{theirs}ffn_{part}.weight")
            return
        self._name(f"{ours}gate.weight", f"{theirs}ffn_gate_inp.weight")
        if f"{theirs}ffn_up_shexp.weight" in self._files.found:
            for part in _PARTS:
                name = f"{theirs}ffn_{part}_shexp.weight"
                self._name(f"{ours}shared_expert.{part}_proj.weight", name)
            gate = f"{theirs}ffn_gate_inp_shexp.weight"
            self._name(f"{ours}shared_expert_gate.weight", gate, 1, self._common["hidden_size"])
        fused = f"{theirs}ffn_gate_up_exps.weight"
        if fused not in self._files.found:
            for part in _PARTS:
                self._stack(ours, f"{theirs}ffn_{part}_exps.weight", (part,))
            return
        self._stack(ours, fused, ("gate", "up"))
        self._stack(ours, f"{theirs}ffn_down_exps.weight", ("down",))

    def _stack(self, ours: str, name: str, parts: tuple[str, ...]) -> None:
        """Experts ``[E, parts * rows, columns]``, one name for each matrix."""
        shape = self._take(name).info.shape
        if len(shape) != 3 or shape[1] % len(parts):
            file = self._files.found[name].info.file
            raise CheckpointError(str(file), name, f"shape {list(shape)}: no stack of experts")
        rows = shape[1] // len(parts)
        for expert in range(shape[0]):
            for place, part in enumerate(parts):
                hf = f"{ours}experts.{expert}.{part}_proj.weight"
                first = expert * shape[1] + place * rows
                self._name(hf, name, rows, shape[2], first=first)


def _a_log(a: Floats) -> Floats:
    """From -exp(A_log); where there is no logarithm, NaN, which the reader refuses."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.log(-a.astype(np.float64)).astype(np.float32)
