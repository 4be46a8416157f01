"""What graphs need to know of a model: the spec's fields with their defaults (docs/format.md), and
which models graphs are not written of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from ...errors import UnsupportedModelError


@dataclass(frozen=True)
class Spec:
    """Fields of a packed folder's spec that shape its graphs, by the names of the format."""

    layer_types: list[str]
    hidden_size: int
    vocab_size: int
    rms_eps: float
    norm_offset: float = 0.0
    ffn_types: list[str] = field(default_factory=list)
    num_heads: int = 0
    num_kv_heads: int = 0
    head_dim: int = 0
    rotary_dim: int = 0
    rope_theta: float = 0.0
    rope_inv_freq: list[float] = field(default_factory=list)
    rope_attention_factor: float = 1.0
    rope_local_theta: float = 0.0
    rope_local_dim: int = 0
    attn_output_gate: bool = True
    qk_norm: bool = True
    attn_in_bias: bool = False
    attn_out_bias: bool = False
    attn_scale: float = 1.0
    query_scale_beta: float = 0.0
    query_scale_positions: int = 1
    windows: list[int] = field(default_factory=list)
    delta_k_heads: int = 0
    delta_v_heads: int = 0
    delta_k_dim: int = 0
    delta_v_dim: int = 0
    conv_taps: int = 0
    delta_preview: str = "operator"
    history_q_scale: bool = True
    preview_value_beta: bool = False
    history_ref_rows: int = 32
    dense_intermediate: int = 0
    activation: str = "silu"
    num_experts: int = 0
    top_k: int = 0
    expert_intermediate: int = 0
    shared_intermediate: int = 0
    shared_gate: bool = True
    router: str = "softmax"
    router_bias: bool = False
    norm_topk: bool = True
    n_group: int = 1
    topk_group: int = 1
    routed_scaling_factor: float = 1.0
    tie_embeddings: bool = False
    embed_scale: float = 1.0
    post_norms: bool = False
    logit_softcap: float = 0.0
    mask: str = "causal"
    preview: bool = True

    @property
    def layers(self) -> range:
        return range(len(self.layer_types))

    @property
    def key_width(self) -> int:
        return self.delta_k_heads * self.delta_k_dim

    @property
    def value_width(self) -> int:
        return self.delta_v_heads * self.delta_v_dim

    @property
    def conv_channels(self) -> int:
        return 2 * self.key_width + self.value_width

    def attends(self, layer: int) -> bool:
        return self.layer_types[layer] == "attention"

    def dense(self, layer: int) -> bool:
        return bool(self.ffn_types) and self.ffn_types[layer] == "dense"

    def window(self, layer: int) -> int:
        return self.windows[layer] if self.windows else 0

    def delta_operator(self) -> bool:
        """Previews have DeltaNet layers that mix the block and its history by a softmax."""
        return "deltanet" in self.layer_types and self.delta_preview == "operator"

    def rope(self, layer: int) -> tuple[tuple[float, ...], float]:
        """Radians a position of each rotated pair, and the factor on cosines and sines."""
        if self.window(layer) and self.rope_local_theta:
            return _frequencies(self.rope_local_theta, self.rope_local_dim or self.rotary_dim), 1.0
        listed = tuple(self.rope_inv_freq)
        return listed or _frequencies(self.rope_theta, self.rotary_dim), self.rope_attention_factor


def _frequencies(theta: float, dim: int) -> tuple[float, ...]:
    return tuple(theta ** (-2.0 * i / dim) for i in range(dim // 2))


# Fields that say nothing about what a pass computes.
_BESIDE = {
    "num_layers",
    "valid_vocab",
    "max_positions",
    "mask_token_id",
    "block_size",
    "block_origin",
    "logit_shift",
    "block_seed",
}

# What graphs do not compute, by field and the value with which it is not there. The coreset of a
# block is kept from one preview to the next, which is no state of a graph.
_ABSENT: dict[str, Any] = {
    "noise": "mask",
    "self_conditioning_intermediate": 0,
    "drafts_for_layers": [],
    "delete_token_id": -1,
    "split_token_id": -1,
    "coreset_size": 0,
    "preview_decay": False,
    "layer_scales": False,
    "head_dims": [],
    "kv_heads": [],
    "values_from_keys": [],
    "v_norm": False,
    "router_norm": False,
    "router_logit_scale": 1,
    "expert_scales": False,
}


def read_spec(spec: Mapping[str, Any]) -> Spec:
    """Raises UnsupportedModelError naming the field that graphs are not written for."""
    known = {f.name for f in fields(Spec)}
    for name, absent in _ABSENT.items():
        if spec.get(name, absent) != absent:
            _refuse(name, spec[name])
    for name in sorted(spec.keys() - known - _BESIDE - _ABSENT.keys()):
        _refuse(name, spec[name])
    ours = Spec(**{name: value for name, value in spec.items() if name in known})
    if "dense_and_experts" in ours.ffn_types:
        _refuse("ffn_types", "dense_and_experts")
    if any(ours.windows) and ours.mask != "causal":
        _refuse("windows", f"with mask {ours.mask}")
    has_experts = not all(ours.dense(i) for i in ours.layers)
    if has_experts and ours.activation != "silu":
        _refuse("activation", f"{ours.activation} of experts")
    return ours


def _refuse(name: str, value: Any) -> None:
    raise UnsupportedModelError(f"spec: {name} {value!r} is not supported by --format onnx")
