"""Model families: one module each turns a checkpoint's configuration and names into ours."""

from __future__ import annotations

from collections.abc import Callable

from ...errors import UnsupportedModelError
from ..checkpoint import Checkpoint
from . import (
    a2d,
    clover,
    dflash,
    diffcoder,
    diffusion_gemma,
    dream,
    fast_dllm,
    gemma3,
    llada,
    llada2,
    llama,
    nemotron,
    qwen2,
    qwen3,
    qwen3_5,
    qwen3_next,
    sdar,
)
from .base import ExpertStack, Model, Part, Piece, Tensor

__all__ = ["ExpertStack", "Model", "Part", "Piece", "Tensor", "read_model"]

Reader = Callable[[Checkpoint], Model]

_MODEL_TYPES: dict[str, Reader] = {
    "Dream": dream.read,
    "Fast_dLLM_Qwen": fast_dllm.read,
    "a2d-llama": a2d.read_llama,
    "a2d-qwen2": a2d.read_qwen2,
    "a2d-qwen3": a2d.read_qwen3,
    "a2d-qwen3_5": a2d.read_qwen3_5,
    "a2d-qwen3_5_moe": a2d.read_qwen3_5_moe,
    "clover_moe": clover.read,
    "diffusion_gemma": diffusion_gemma.read,
    "gemma3": gemma3.read,
    "gemma3_text": gemma3.read,
    "llada": llada.read,
    "llada2_moe": llada2.read,
    "llama": llama.read,
    "nemotron_labs_diffusion": nemotron.read,
    "qwen2": qwen2.read,
    "qwen3": qwen3.read,
    "qwen3_moe": qwen3.read_moe,
    "qwen3_5": qwen3_5.read,
    "qwen3_5_text": qwen3_5.read,
    "qwen3_5_moe": qwen3_5.read_moe,
    "qwen3_5_moe_text": qwen3_5.read_moe,
    "qwen3_next": qwen3_next.read,
    "sdar": sdar.read,
    "sdar_moe": sdar.read_moe,
}
_ARCHITECTURES: dict[str, Reader] = {
    "A2DLlamaLMHeadModel": a2d.read_llama,
    "A2DQwen2LMHeadModel": a2d.read_qwen2,
    "A2DQwen3LMHeadModel": a2d.read_qwen3,
    "A2DQwen3_5ForCausalLM": a2d.read_qwen3_5,
    "A2DQwen3_5LMHeadModel": a2d.read_qwen3_5,
    "A2DQwen3_5MoeLMHeadModel": a2d.read_qwen3_5_moe,
    "CloverMoeModelLM": clover.read,
    "DiffusionGemmaForBlockDiffusion": diffusion_gemma.read,
    "DreamModel": dream.read,
    "Gemma3ForCausalLM": gemma3.read,
    "Gemma3ForConditionalGeneration": gemma3.read,
    "Fast_dLLM_QwenForCausalLM": fast_dllm.read,
    "LLaDA2MoeModelLM": llada2.read,
    "LLaDAModelLM": llada.read,
    "LLaDAMoEModelLM": llada.read_moe,
    "LlamaForCausalLM": llama.read,
    "NemotronLabsDiffusionModel": nemotron.read,
    "Qwen2ForCausalLM": qwen2.read,
    "Qwen3ForCausalLM": qwen3.read,
    "Qwen3MoeForCausalLM": qwen3.read_moe,
    "Qwen3_5ForCausalLM": qwen3_5.read,
    "Qwen3_5ForConditionalGeneration": qwen3_5.read,
    "Qwen3_5MoeForCausalLM": qwen3_5.read_moe,
    "Qwen3_5MoeForConditionalGeneration": qwen3_5.read_moe,
    "Qwen3NextForCausalLM": qwen3_next.read,
    "SDARForCausalLM": sdar.read,
    "SDARMoeForCausalLM": sdar.read_moe,
    "StableDiffcoderForCausalLM": diffcoder.read,
}
# Models that draft for another one, under that one's model type.
_DRAFTERS: dict[str, Reader] = {"DFlashDraftModel": dflash.read}


def read_model(checkpoint: Checkpoint) -> Model:
    """The family's view of a checkpoint: that of its class, where it is known, else of its type.

    Raises UnsupportedModelError for an unknown family, CheckpointError for a checkpoint whose
    configuration and tensors do not make a whole model.
    """
    kind, names = checkpoint.config.get("model_type"), checkpoint.config.get("architectures")
    known = {**_ARCHITECTURES, **_DRAFTERS}
    for name in names if isinstance(names, list) else []:
        if isinstance(name, str) and name in known:
            return known[name](checkpoint)
    if isinstance(kind, str) and kind in _MODEL_TYPES:
        return _MODEL_TYPES[kind](checkpoint)
    raise UnsupportedModelError(
        f"{checkpoint.config_path}: model_type {kind!r}, architectures {names!r}: "
        f"unknown family; known model types: {', '.join(_MODEL_TYPES)}; "
        f"known architectures: {', '.join(known)}"
    )
