"""Recipes: which class of tensor gets which scheme.

The class says what a tensor is for. Routed experts, or the feed-forward where there are none, are
most of the bytes and tolerate 4 bits; other matrices are few and buy most of the quality at 8 bits;
small tensors that set routing, decay or softmax logits directly stay float32 in every recipe.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import ArgumentError
from .schemes import QUANTISED, SCHEMES, groups_of

EXPERT = "expert"  # gate, up and down of routed experts
FFN = "ffn"  # gate, up and down of a model without experts
DENSE = "dense"  # attention, DeltaNet and shared-expert projections, dense layers beside experts
EMBED = "embed"
HEAD = "head"
FLOAT = "float"  # router, norms, biases, convolution taps, decay, preview tensors
CLASSES = (EXPERT, FFN, DENSE, EMBED, HEAD, FLOAT)


@dataclass(frozen=True)
class Rule:
    """Matrices whose names match a pattern take this scheme instead of their class's.

    ``match`` as in ``fnmatch`` (``*`` matches dots, too); ``group`` None: the default one.
    """

    match: str
    scheme: str
    group: int | None = None

    def __post_init__(self) -> None:
        """ArgumentError for a scheme that does not exist or a group that it does not take."""
        if self.scheme not in SCHEMES:
            raise ArgumentError(f"unknown scheme {self.scheme!r}; known: {', '.join(SCHEMES)}")
        if self.group is not None and self.group not in groups_of(self.scheme):
            allowed = groups_of(self.scheme) if self.scheme in QUANTISED else "none"
            raise ArgumentError(f"group {self.group}: {self.scheme} takes {allowed}")


@dataclass(frozen=True)
class Recipe:
    """A scheme for every class, and rules for single matrices: the last that matches holds."""

    name: str
    classes: Mapping[str, str]
    rules: tuple[Rule, ...] = ()


def _classes(bulk: str, common: str) -> dict[str, str]:
    """``bulk`` for the matrices that are most of a model's bytes."""
    common_kinds = dict.fromkeys((DENSE, EMBED, HEAD), common)
    return {EXPERT: bulk, FFN: bulk, **common_kinds, FLOAT: "f32"}


RECIPES: dict[str, Recipe] = {
    name: Recipe(name, _classes(experts, common))
    for name, experts, common in (
        ("int4", "int4", "int8"),
        ("int4-all", "int4", "int4"),
        ("int4-small", "int3", "int4"),
        ("codebook4", "codebook4", "int8"),
        ("codebook4-all", "codebook4", "codebook4"),
        ("int8", "int8", "int8"),
        ("bf16", "bf16", "bf16"),
        ("f32", "f32", "f32"),
    )
}


def recipe(name: str) -> Recipe:
    """The built-in recipe of this name; ArgumentError when there is none."""
    try:
        return RECIPES[name]
    except KeyError:
        known = ", ".join(RECIPES)
        raise ArgumentError(f"unknown recipe {name!r}; known: {known}") from None
