"""A GGUF file in plain float: the class of `transformers` for it, on weights that the gguf package
names and dequantises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from .codes import Floats, needs

_CLASSES = {
    "llama": ("LlamaForCausalLM", "LlamaConfig"),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config"),
    "gemma3": ("Gemma3ForCausalLM", "Gemma3TextConfig"),
}


class PlainFloat:
    """The judge: float32 throughout, nothing cached. Raises Missing without the extras."""

    def __init__(self, path: Path) -> None:
        with needs("judge"):
            import torch
            import transformers
        with needs("gguf"):
            import gguf
        self._torch = torch
        reader = gguf.GGUFReader(path)
        tensors = {tensor.name: tensor for tensor in reader.tensors}
        arch = str(reader.fields["general.architecture"].contents())
        keys = _keys(reader, arch)
        kind, config = (getattr(transformers, name) for name in _CLASSES[arch])
        self._model = kind(config(**_config(keys, arch, tensors))).eval()
        known = {name: number for number, name in gguf.MODEL_ARCH_NAMES.items()}[arch]
        names = gguf.get_tensor_name_map(known, keys["block_count"])
        with torch.no_grad():
            for name, parameter in self._model.named_parameters():
                theirs = names.get_name(name, try_suffixes=(".weight", ".bias"))
                tensor = tensors.pop(theirs)
                values = gguf.dequantize(tensor.data, tensor.tensor_type)
                parameter.copy_(torch.from_numpy(_as_released(name, values, keys, arch)))
        if tensors:
            raise RuntimeError(f"{path}: {', '.join(tensors)}: used by no parameter")

    def logits(self, ids: list[int]) -> Floats:
        """[n, V] of one pass."""
        with self._torch.no_grad():
            rows = self._torch.tensor([ids])
            found: Floats = self._model(input_ids=rows, use_cache=False).logits[0].numpy()
        return found


def _keys(reader: Any, arch: str) -> dict[str, Any]:
    prefix = f"{arch}."
    own = (key for key in reader.fields if key.startswith(prefix))
    return {key.removeprefix(prefix): reader.fields[key].contents() for key in own}


def _config(keys: dict[str, Any], arch: str, tensors: dict[str, Any]) -> dict[str, Any]:
    heads, hidden = keys["attention.head_count"], keys["embedding_length"]
    rope = {"rope_type": "default", "rope_theta": keys["rope.freq_base"]}
    config = {
        "vocab_size": int(tensors["token_embd.weight"].shape[1]),
        "hidden_size": hidden,
        "intermediate_size": keys["feed_forward_length"],
        "num_hidden_layers": keys["block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": keys["attention.head_count_kv"],
        "head_dim": keys.get("attention.key_length", hidden // heads),
        "rms_norm_eps": keys["attention.layer_norm_rms_epsilon"],
        "tie_word_embeddings": "output.weight" not in tensors,
        "max_position_embeddings": keys["context_length"],
        "rope_parameters": rope,
    }
    if arch == "gemma3":  # the base of layers with a window is in no key
        local = {"rope_type": "default", "rope_theta": 10_000.0}
        config["sliding_window"] = keys["attention.sliding_window"]
        config["rope_parameters"] = {"full_attention": rope, "sliding_attention": local}
    return config


def _as_released(name: str, values: Floats, keys: dict[str, Any], arch: str) -> Floats:
    """Llama's query and key rows are pairs in the file, halves in the release; Gemma's norms
    multiply by 1 + w in the release."""
    if arch == "llama" and name.endswith(("q_proj.weight", "k_proj.weight")):
        heads = keys["attention.head_count" if "q_proj" in name else "attention.head_count_kv"]
        pairs = values.reshape(heads, -1, 2, values.shape[1])
        values = pairs.swapaxes(1, 2).reshape(values.shape)
    if arch == "gemma3" and name.endswith("norm.weight"):
        values = values - 1
    return np.array(values, np.float32, order="C")  # of its own: the file's is read-only
