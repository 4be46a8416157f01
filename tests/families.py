"""Every model type that is read: a tiny checkpoint of it, the modes it decodes in, its judge.

``FAMILIES`` is the one table behind ``tests/model/test_every_family.py`` and the families set of
``benches/must_hold.py``; both fall short for a model type of the registry that has no row here. A
new family is a row; one that decodes by a rule of its own brings a judge with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from judges import (
    Autoregressive,
    Blocks,
    Canvases,
    Clover,
    FullAttention,
    Hybrid,
    Judge,
    Nemotron,
)

from clover_edge import load
from clover_edge.errors import CloverError
from clover_edge.export import export_checkpoint
from clover_edge.export.families import _ARCHITECTURES, _MODEL_TYPES
from clover_edge.generation import MODES, NO_MASK

RECIPES = ("f32", "int8", "int4")
NEW_TOKENS = 12


@dataclass(frozen=True)
class Family:
    """A row: the model types that share a judge, and the modes that they decode in."""

    judge: Judge
    model_types: tuple[str, ...]
    modes: tuple[str, ...]


def _causal(maker: str, case: str, *model_types: str, start: int = 0) -> Family:
    return Family(Autoregressive(maker, case, start), model_types or (case,), ("ar",))


def _blocks(family: str, model_type: str, seed: int = 1, **options: Any) -> Family:
    return Family(Blocks(family, seed, options), (model_type,), ("diffusion",))


FAMILIES: dict[str, Family] = {
    "Clover": Family(Clover(), ("clover_moe",), MODES),
    "Qwen3.5": _causal("autoregressive", "qwen3_5", "qwen3_5", "qwen3_5_text"),
    "Qwen3.5-MoE": _causal("autoregressive", "qwen3_5_moe", "qwen3_5_moe", "qwen3_5_moe_text"),
    "Qwen3-Next": _causal("autoregressive", "qwen3_next"),
    "LLaDA2": _blocks("llada2", "llada2_moe", threshold=0.6),
    "SDAR": _blocks("sdar", "sdar", threshold=0.6),
    "SDAR-MoE": _blocks("sdar_moe", "sdar_moe", threshold=0.3),
    "Fast-dLLM v2": _blocks("fast_dllm", "Fast_dLLM_Qwen", threshold=0.4, sub_block=4),
    "A2D, Llama": _blocks("a2d_llama", "a2d-llama", threshold=0.6, absolute=False),
    "A2D, Qwen2": _blocks("a2d_qwen2", "a2d-qwen2", threshold=0.6, absolute=False),
    "A2D, Qwen3": _blocks("a2d", "a2d-qwen3", 2, threshold=1.0, absolute=False),
    "A2D, Qwen3.5": Family(Hybrid("a2d_qwen3_5"), ("a2d-qwen3_5",), ("diffusion",)),
    "A2D, Qwen3.5-MoE": Family(Hybrid("a2d_qwen3_5_moe"), ("a2d-qwen3_5_moe",), ("diffusion",)),
    "Nemotron-Labs": Family(Nemotron("stretched"), ("nemotron_labs_diffusion",), MODES),
    "DiffusionGemma": Family(Canvases("plain"), ("diffusion_gemma",), ("diffusion",)),
    "Stable-DiffCoder": _blocks("diffcoder", "StableDiffcoderForCausalLM", 6, threshold=0.5),
    "Dream": Family(FullAttention("dream, threshold"), ("Dream",), ("diffusion",)),
    "LLaDA": Family(FullAttention("llada, threshold"), ("llada",), ("diffusion",)),
    "LLaDA-MoE": Family(
        FullAttention("llada_moe, threshold"), ("LLaDAMoEModelLM",), ("diffusion",)
    ),
    "Llama": _causal("transformers", "llama"),
    "Qwen2": _causal("transformers", "qwen2", start=24),
    "Qwen3": _causal("transformers", "qwen3"),
    "Qwen3-MoE": _causal("transformers", "qwen3_moe"),
    "Gemma 3": _causal("autoregressive", "gemma3", "gemma3", "gemma3_text"),
}
BY_TYPE = {kind: family for family in FAMILIES.values() for kind in family.model_types}
# Model types, and classes that decide where the model type alone would not.
REGISTERED = (
    *_MODEL_TYPES,
    *(name for name, read in _ARCHITECTURES.items() if read not in _MODEL_TYPES.values()),
)


def write(folder: Path, model_type: str) -> Judge:
    """A tiny checkpoint of a registered model type in float32; its judge. Raises KeyError for one
    that has no row."""
    judge = BY_TYPE[model_type].judge
    judge.write(folder, model_type)
    return judge


def run_modes(source: Path, packed: Path, recipe: str, modes: tuple[str, ...]) -> Iterator[str]:
    """Exports and generates in each mode; what is wrong with each, "" where nothing is.

    A mode of the runtime that the family does not have must be refused.
    """
    export_checkpoint(source, packed, recipe=recipe)
    with load(packed, threads=1) as model:
        prompt = model.tokenize("the other")
        for mode in MODES:
            options: dict[str, Any] = {"max_new_tokens": NEW_TOKENS, "temperature": 0, "mode": mode}
            try:
                found = model.generate(prompt, **options)
            except CloverError as error:
                if mode in modes:
                    yield f"{mode}: {error}"
                continue
            ids, mask = found.token_ids, model.spec.get("mask_token_id", NO_MASK)
            if mode not in modes:
                yield f"{mode}: is not refused"
            elif not ids or mask in ids or max(ids) >= model.spec["valid_vocab"]:
                yield f"{mode}: wrote {ids}"
            elif (found.counters.denoise_steps > 0) != (mode != "ar"):
                yield f"{mode}: {found.counters.denoise_steps} denoising steps"
            else:
                yield ""
