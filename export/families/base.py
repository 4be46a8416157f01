"""What a family hands to the exporter: a spec, and where each of our tensors comes from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...quant.schemes import Shape


@dataclass(frozen=True)
class Piece:
    """Rows ``start .. stop`` of a checkpoint tensor seen as rows of the target's width.

    Leading axes are flattened into rows; a vector is one row.
    """

    source: str
    start: int
    stop: int


@dataclass(frozen=True)
class Tensor:
    """One of our tensors: its pieces, top to bottom. ``kind`` is a class of quant/recipes.py."""

    name: str
    kind: str
    shape: Shape
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class Part:
    """One matrix of every expert: its shape, and a piece for each expert."""

    shape: Shape
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class ExpertStack:
    """All routed experts of a layer; a record holds the parts of one expert, in this order."""

    name: str
    experts: int
    parts: dict[str, Part]


@dataclass
class Model:
    """A checkpoint as the exporter sees it, before any weight has been read.

    A spec without ``norm_offset`` leaves the norms' convention to the weights.
    """

    family: str
    spec: dict[str, Any]
    generation: dict[str, Any]
    tensors: list[Tensor | ExpertStack]
    norm_probes: tuple[str, ...] = ()  # checkpoint names whose means tell the norm convention
    decay_probes: tuple[str, ...] = ()  # A_log of every DeltaNet layer
    warnings: list[str] = field(default_factory=list)
