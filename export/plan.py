"""The plan: every tensor's scheme, shape, bytes and place, before a weight is read."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from ..errors import ArgumentError
from ..quant.recipes import EXPERT, Recipe
from ..quant.schemes import LAYOUT, Scheme, Shape
from .assignment import Assignment
from .families import ExpertStack, Model, Part, Tensor
from .kept import ORIGINS, Choose, from_float
from .packed_file import ALIGNMENT, PAGE, Blob, FileLayout, lay_out

SHARD_BYTES = 4_000_000_000
_LARGE_MODEL = 1_000_000_000  # above this, expert records start on pages: one madvise each
_DTYPES = {"f32": "F32", "bf16": "BF16"}


@dataclass(frozen=True)
class PlannedTensor:
    """A vector or matrix and the scheme it will be stored in."""

    source: Tensor
    scheme: Scheme
    origin: str

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def kind(self) -> str:
        return self.source.kind

    @property
    def parameters(self) -> int:
        return prod(self.source.shape)

    @property
    def blob(self) -> Blob:
        nbytes = self.scheme.nbytes(self.source.shape)
        if self.scheme.quantised:
            return Blob(self.name, "U8", (nbytes,), nbytes)
        return Blob(self.name, _DTYPES[self.scheme.name], self.source.shape, nbytes)

    @property
    def entry(self) -> dict[str, Any]:
        """The tensor's entry in ``config.json``."""
        return {**_scheme_entry(self.scheme, self.source.shape), "layout": LAYOUT}


@dataclass(frozen=True)
class PlannedPart:
    """One matrix of an expert record; ``offset`` counts from the record's start."""

    source: Part
    scheme: Scheme
    offset: int
    origin: str

    @property
    def nbytes(self) -> int:
        return self.scheme.nbytes(self.source.shape)


@dataclass(frozen=True)
class PlannedExperts:
    """All experts of a layer: records of equal size, one after the other."""

    source: ExpertStack
    parts: dict[str, PlannedPart]
    record_bytes: int
    alignment: int
    kind: str = EXPERT

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def parameters(self) -> int:
        return self.source.experts * sum(prod(part.source.shape) for part in self.parts.values())

    @property
    def blob(self) -> Blob:
        shape = (self.source.experts, self.record_bytes)
        return Blob(self.name, "U8", shape, prod(shape), self.alignment)

    @property
    def entry(self) -> dict[str, Any]:
        parts = {
            name: {
                **_scheme_entry(part.scheme, part.source.shape),
                "offset": part.offset,
                "bytes": part.nbytes,
            }
            for name, part in self.parts.items()
        }
        return {
            "scheme": "experts",
            "layout": LAYOUT,
            "shape": [self.source.experts],
            "record_bytes": self.record_bytes,
            "parts": parts,
        }


Planned = PlannedTensor | PlannedExperts


@dataclass(frozen=True)
class ClassTotal:
    """One row of the plan table."""

    kind: str
    tensors: int
    parameters: int
    nbytes: int
    schemes: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """What an export will write."""

    model: Model
    recipe: str
    group_size: int
    tensors: tuple[Planned, ...]
    files: tuple[FileLayout, ...]
    source_bytes: int
    warnings: tuple[str, ...]

    @property
    def parameters(self) -> int:
        return sum(tensor.parameters for tensor in self.tensors)

    @property
    def tensor_bytes(self) -> int:
        return sum(tensor.blob.nbytes for tensor in self.tensors)

    @property
    def file_bytes(self) -> int:
        """Size of the weight files, headers and padding included."""
        return sum(layout.nbytes for layout in self.files)

    @property
    def origins(self) -> dict[str, int]:
        """How many matrices and vectors have their values from where (export/kept.py)."""
        found = [part.origin for tensor in self.tensors for _, part in _matrices(tensor)]
        return {origin: found.count(origin) for origin in ORIGINS if origin in found}

    @property
    def classes(self) -> list[ClassTotal]:
        rows = []
        for kind in dict.fromkeys(tensor.kind for tensor in self.tensors):
            members = [tensor for tensor in self.tensors if tensor.kind == kind]
            names = dict.fromkeys(name for member in members for name in _scheme_names(member))
            rows.append(
                ClassTotal(
                    kind,
                    len(members),
                    sum(member.parameters for member in members),
                    sum(member.blob.nbytes for member in members),
                    tuple(names),
                )
            )
        return rows


def make_plan(
    model: Model,
    recipe: Recipe,
    group_size: int | None,
    source_bytes: int,
    shard_bytes: int,
    choose: Choose = from_float,
) -> Plan:
    """Assign schemes and places; ``group_size`` None: 32 where it fits. ``choose`` decides where
    values come from (export/kept.py). Reads nothing itself.

    ArgumentError for a group or shard size that does not exist, and naming the tensor for one that
    cannot be stored as the recipe or the group size asks for.
    """
    if shard_bytes < PAGE:
        raise ArgumentError(f"shard size must be at least {PAGE} bytes, not {shard_bytes}")

    tensors: list[Planned] = []
    for large in (False, True):
        assignment = Assignment(recipe, group_size)
        tensors = [
            _plan_experts(item, assignment, choose, large)
            if isinstance(item, ExpertStack)
            else _plan_tensor(item, assignment, choose)
            for item in model.tensors
        ]
        if sum(tensor.blob.nbytes for tensor in tensors) <= _LARGE_MODEL:
            break
    assignment.finish()
    files = lay_out((tensor.blob for tensor in tensors), shard_bytes)
    return Plan(
        model,
        recipe.name,
        assignment.group_size,
        tuple(tensors),
        tuple(files),
        source_bytes,
        (*model.warnings, *assignment.fallbacks),
    )


def _plan_tensor(item: Tensor, assignment: Assignment, choose: Choose) -> PlannedTensor:
    wanted = assignment.scheme(item.name, item.kind, item.shape)
    return PlannedTensor(item, *choose(item.pieces, wanted))


def _plan_experts(
    stack: ExpertStack, assignment: Assignment, choose: Choose, large: bool
) -> PlannedExperts:
    parts, offset = {}, 0
    for name, part in stack.parts.items():
        wanted = assignment.scheme(f"{stack.name}.{name}", EXPERT, part.shape)
        scheme, origin = choose(part.pieces, wanted)
        planned = PlannedPart(part, scheme, offset, origin)
        parts[name] = planned
        offset = _up(offset + planned.nbytes, ALIGNMENT)
    alignment = PAGE if large else ALIGNMENT
    return PlannedExperts(stack, parts, _up(offset, alignment), alignment)


def _matrices(tensor: Planned) -> list[tuple[str, PlannedTensor | PlannedPart]]:
    if isinstance(tensor, PlannedTensor):
        return [(tensor.name, tensor)]
    return [(f"{tensor.name}.{name}", part) for name, part in tensor.parts.items()]


def _scheme_names(tensor: Planned) -> list[str]:
    return [
        f"{part.scheme.name} g{part.scheme.group}" if part.scheme.quantised else part.scheme.name
        for _, part in _matrices(tensor)
    ]


def _scheme_entry(scheme: Scheme, shape: Shape) -> dict[str, Any]:
    entry: dict[str, Any] = {"scheme": scheme.name, "shape": list(shape)}
    if scheme.quantised:
        entry["group"] = scheme.group
    if scheme.codebook:
        entry["codebook"] = list(scheme.codebook)
    return entry


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
