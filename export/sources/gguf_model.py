"""A GGUF file as a Hugging Face model: configuration, names and order of the tensors.

What converters of GGUF change, and what is undone here: llama's and llada's query and key rows are
interleaved in pairs; DeltaNet's value heads of the qwen35 converters (Clover's among them) are in
tiled order, head j belonging to key head j mod Hk instead of j div (Hv / Hk); ``ssm_a`` is
-exp(A_log); the convolution's middle axis is gone; qwen3next keeps beta and alpha in one tensor,
key head by key head. Norms hold 1 + w of a zero-centred norm: they stay so, and are plain norms,
but for Gemma's, which are zero-centred again.
"""

from __future__ import annotations

from typing import Any

from ...errors import CheckpointError, UnsupportedModelError
from ..fields import Fields
from .base import RowSource, RowTensor, Source
from .gguf_file import GgufFiles
from .gguf_hybrid import HYBRID, Hybrid
from .view import View, paired_rows

DENSE = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "gemma3": "Gemma3ForCausalLM",
    "dream": "DreamModel",
    "llada": "LLaDAModelLM",
}
_MODEL_TYPES = {"dream": "Dream"}  # where it is not the architecture's name
_OUTER = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER = {
    "attn_norm.weight": "input_layernorm.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "attn_q_norm.weight": "self_attn.q_norm.weight",
    "attn_k_norm.weight": "self_attn.k_norm.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "attn_output.bias": "self_attn.o_proj.bias",
    **{f"attn_{x}.{y}": f"self_attn.{x}_proj.{y}" for x in "qkv" for y in ("weight", "bias")},
    **{f"ffn_{x}.weight": f"mlp.{x}_proj.weight" for x in ("gate", "up", "down")},
}
_GEMMA_NORMS = {
    "post_attention_norm.weight": "post_attention_layernorm.weight",
    "ffn_norm.weight": "pre_feedforward_layernorm.weight",
    "post_ffw_norm.weight": "post_feedforward_layernorm.weight",
}
_FACTORS = "rope_freqs.weight"
_PAIRED = {"attn_q.weight": "num_attention_heads", "attn_k.weight": "num_key_value_heads"}


class GgufModel:
    """Configuration and tensors of a GGUF file, under Hugging Face names."""

    def __init__(self, files: GgufFiles) -> None:
        self._files, self.path = files, files.path
        self.metadata = Fields(files.path, files.values)
        self.arch = str(self.metadata.required("general.architecture"))
        if self.arch not in (*DENSE, *HYBRID):
            known = ", ".join((*DENSE, *HYBRID))
            raise UnsupportedModelError(
                f"{files.path}: general.architecture: {self.arch!r} is not read; known: {known}"
            )
        prefix = f"{self.arch}."
        own = {k.removeprefix(prefix): v for k, v in files.values.items() if k.startswith(prefix)}
        self._fields = Fields(files.path, own)
        for tensor in files.found.values():
            tensor.check_readable()
        self.config = self._dense() if self.arch in DENSE else self._hybrid()
        if self.arch == "gemma3":
            self.config |= self._gemma()

    def source(self) -> Source:
        return RowSource(self._named, self._files, {})

    def _common(self) -> dict[str, Any]:
        embed = self._files.found.get("token_embd.weight")
        if embed is None:
            raise CheckpointError(str(self.path), "token_embd.weight", "is missing")
        f, heads = self._fields, self._fields.integer("attention.head_count")
        hidden, kv_heads = f.integer("embedding_length"), f.get("attention.head_count_kv", heads)
        if isinstance(kv_heads, list):  # one for each layer, 0 where a layer has no keys
            kv_heads = max(kv_heads, default=0)
        return {
            "vocab_size": embed.info.shape[0],
            "hidden_size": hidden,
            "num_hidden_layers": f.integer("block_count")
            - f.integer("nextn_predict_layers", 0, low=0),
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "head_dim": f.integer("attention.key_length", hidden // heads or None),
            "rms_norm_eps": f.number("attention.layer_norm_rms_epsilon"),
            "max_position_embeddings": f.integer("context_length"),
            "tie_word_embeddings": "output.weight" not in self._files.found,
            "hidden_act": "silu",
        }

    def _dense(self) -> dict[str, Any]:
        common = self._common()
        self._named = self._name_dense(common)
        return {
            **common,
            "model_type": _MODEL_TYPES.get(self.arch, self.arch),
            "architectures": [DENSE[self.arch]],
            "intermediate_size": self._fields.integer("feed_forward_length"),
            **self._rope(),
            "attention_bias": "model.layers.0.self_attn.q_proj.bias" in self._named,
            "mask_token_id": self.metadata.get("tokenizer.ggml.mask_token_id"),
        }

    def _gemma(self) -> dict[str, Any]:
        f, layers = self._fields, self.config["num_hidden_layers"]
        every = f.get("attention.sliding_window_pattern", 6)
        if isinstance(every, list):  # by layer, whether it has a window
            kinds = ["sliding_attention" if local else "full_attention" for local in every]
        else:
            every = f.integer("attention.sliding_window_pattern", 6)
            names = ("sliding_attention", "full_attention")
            kinds = [names[(i + 1) % every == 0] for i in range(layers)]
        heads, head_dim = self.config["num_attention_heads"], self.config["head_dim"]
        # no key says it: the one release whose queries are not scaled by head_dim has 62 layers
        scalar = self.config["hidden_size"] // heads if layers == 62 else head_dim
        return {
            "model_type": "gemma3_text",
            "hidden_act": None,
            "hidden_activation": "gelu_pytorch_tanh",
            "layer_types": kinds,
            "sliding_window": f.integer("attention.sliding_window"),
            "query_pre_attn_scalar": scalar,
            "rope_theta": f.number("rope.freq_base", 1e6),
            "rope_local_base_freq": f.number("rope.freq_base_swa", 1e4),
            "final_logit_softcapping": f.get("final_logit_softcapping"),
        }

    def _hybrid(self) -> dict[str, Any]:
        hybrid = Hybrid(self.arch, self._files, self._fields, self._common())
        self._named = hybrid.named
        return hybrid.config

    def _rope(self) -> dict[str, Any]:
        base = {"rope_theta": self._fields.number("rope.freq_base", 10000.0)}
        kind, factor = self._fields.get("rope.scaling.type", "none"), 1.0
        if kind != "none":
            factor = self._fields.number("rope.scaling.factor", 1.0)
        if (factors := self._factors()) is not None:
            if factor != 1.0:
                raise UnsupportedModelError(
                    f"{self.path}: {_FACTORS}: beside rope.scaling.type {kind!r} is not supported"
                )
            return {**base, "rope_scaling": {"rope_type": "factors", "factors": factors}}
        if factor == 1.0:
            return base
        scaling = {"rope_type": kind, "factor": factor}  # the family refuses what is not served
        original = self._fields.get("rope.scaling.original_context_length")
        if original is not None:
            scaling["original_max_position_embeddings"] = original
        return {**base, "rope_scaling": scaling}

    def _factors(self) -> list[float] | None:
        """What llama3's rotary frequencies are divided by: a tensor, whose parameters are in no
        key. None where it changes nothing."""
        tensor = self._files.found.get(_FACTORS)
        if tensor is None:
            return None
        factors: list[float] = tensor.rows(0, 1).reshape(-1).tolist()
        return None if all(factor == 1.0 for factor in factors) else factors

    def _name_dense(self, common: dict[str, Any]) -> dict[str, RowTensor]:
        named: dict[str, RowTensor] = {}
        gemma = self.arch == "gemma3"
        layer = {**_LAYER, **(_GEMMA_NORMS if gemma else {})}
        for name, tensor in self._files.found.items():
            if name == _FACTORS:
                continue
            seen: RowTensor = tensor
            if gemma and name.endswith("norm.weight"):
                seen = View(tensor, tensor.info.shape, change=lambda w: w - 1)
            if name in _OUTER:
                named[_OUTER[name]] = seen
                continue
            number, _, part = name.removeprefix("blk.").partition(".")
            if part not in layer:
                raise CheckpointError(
                    str(tensor.info.file), name, f"is not known to the {self.arch} architecture"
                )
            if self.arch in ("llama", "llada") and part in _PAIRED:
                heads = common[_PAIRED[part]]
                order = paired_rows(heads, common["head_dim"])
                if tensor.info.shape[0] != len(order):
                    reason = f"{tensor.info.shape[0]} rows, {len(order)} expected"
                    raise CheckpointError(str(tensor.info.file), name, reason)
                seen = View(tensor, tensor.info.shape, order=order)
            named[f"model.layers.{number}.{layer[part]}"] = seen
        return named
