"""Recipes: which class of tensor gets which scheme.

The class says what a tensor is for. Routed experts, or the feed-forward where there are none, are
most of the bytes and tolerate 4 bits; other matrices are few and buy most of the quality at 8 bits;
small tensors that set routing, decay or softmax logits directly stay float32 in every recipe.
"""

from __future__ import annotations

from ..errors import ArgumentError

EXPERT = "expert"  # gate, up and down of routed experts
FFN = "ffn"  # gate, up and down of a model without experts
DENSE = "dense"  # attention, DeltaNet and shared-expert projections, dense layers beside experts
EMBED = "embed"
HEAD = "head"
FLOAT = "float"  # router, norms, biases, convolution taps, decay, preview tensors
CLASSES = (EXPERT, FFN, DENSE, EMBED, HEAD, FLOAT)


def _recipe(bulk: str, common: str) -> dict[str, str]:
    """``bulk`` for the matrices that are most of a model's bytes."""
    common_kinds = dict.fromkeys((DENSE, EMBED, HEAD), common)
    return {EXPERT: bulk, FFN: bulk, **common_kinds, FLOAT: "f32"}


RECIPES: dict[str, dict[str, str]] = {
    "int4": _recipe("int4", "int8"),
    "int4-all": _recipe("int4", "int4"),
    "int4-small": _recipe("int3", "int4"),
    "codebook4": _recipe("codebook4", "int8"),
    "codebook4-all": _recipe("codebook4", "codebook4"),
    "int8": _recipe("int8", "int8"),
    "bf16": _recipe("bf16", "bf16"),
    "f32": _recipe("f32", "f32"),
}


def recipe(name: str) -> dict[str, str]:
    """Scheme name of every tensor class; ArgumentError for a recipe that does not exist."""
    try:
        return RECIPES[name]
    except KeyError:
        known = ", ".join(RECIPES)
        raise ArgumentError(f"unknown recipe {name!r}; known: {known}") from None
