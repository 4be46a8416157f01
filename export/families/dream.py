"""Dream, Dream-Coder and DiffuCoder: Qwen2's trunk with full attention and shifted logits.

Text and canvas see each other, and the row before a position decides it. The releases' own rules
(``alg``: origin, maskgit_plus, topk_margin, entropy) are options of the decoder; by default blocks
are denoised by threshold over the dual cache (Wu et al., 2025), which is what a device can afford.
"""

from __future__ import annotations

from dataclasses import replace

from ..checkpoint import Checkpoint
from ..vocabulary import generation_fields
from .base import Model
from .block_diffusion import FULL_ATTENTION
from .transformer import Trunk, read_trunk

_TRUNK = Trunk("dream", "DreamModel", in_bias=True, out_bias=False)
_BLOCKS = replace(FULL_ATTENTION, logit_shift=1, also_stop=("<|endoftext|>", "<|im_end|>"))
_RULES = {
    "origin": "random",
    "maskgit_plus": "probability",
    "topk_margin": "margin",
    "entropy": "entropy",
}


def read(checkpoint: Checkpoint) -> Model:
    """Spec, decode defaults and tensor table of a Dream checkpoint; no weight is read.

    ``alg`` and ``alg_temp`` of its generation configuration become ``confidence`` and
    ``confidence_temperature``; CheckpointError for an ``alg`` that is not known.
    """
    model = read_trunk(checkpoint, _TRUNK, _BLOCKS)
    fields = generation_fields(checkpoint)
    if (alg := fields.get("alg")) is not None:
        if alg not in _RULES:
            raise fields.refuse("alg", f"{alg!r} is none of {', '.join(_RULES)}")
        model.generation["confidence"] = _RULES[alg]
        if fields.get("alg_temp") is not None and alg != "origin":
            model.generation["confidence_temperature"] = fields.number("alg_temp", high=1e6)
    return model
