"""Number formats of stored tensors: bits, bytes, which shapes they take.

Sizes are exact: the exporter writes headers from them before it has read a weight, and the
loader refuses a file that disagrees.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ..errors import ArgumentError
from .codebook import CODEBOOK, Codebook, check_codebook

TILE_ROWS = 16
LAYOUT = 1
GROUPS = (32, 64, 128)
CODE_BITS = {"int8": 8, "int4": 4, "codebook4": 4, "int3": 3}
QUANTISED = tuple(CODE_BITS)
FLOAT_BYTES = {"f32": 4, "bf16": 2}
SCHEMES = (*FLOAT_BYTES, *QUANTISED)

INT3_GROUP = 64  # the only one: with it the low bits and the high bits both fill whole vectors

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Scheme:
    """How a tensor is stored; ``group`` columns share a scale (0 for floats).

    ``codebook`` holds the values of codebook4's codes and is empty for the others. ArgumentError
    for a scheme that does not exist, a group or a codebook that it does not take.
    """

    name: str
    group: int = 0
    codebook: Codebook = ()

    def __post_init__(self) -> None:
        if self.name not in SCHEMES:
            raise ArgumentError(f"unknown scheme {self.name!r}; known: {', '.join(SCHEMES)}")
        allowed = groups_of(self.name)
        if self.group not in allowed:
            raise ArgumentError(f"{self.name} takes a group size in {allowed}, not {self.group}")
        if self.name == "codebook4":
            check_codebook(self.codebook)
        elif self.codebook != ():
            raise ArgumentError(f"{self.name} takes no codebook")

    @property
    def quantised(self) -> bool:
        return self.name in QUANTISED

    @property
    def group_bytes(self) -> int:
        """Bytes of one group of one tile: 16 float16 scales and the codes (quantised only)."""
        return 2 * TILE_ROWS + TILE_ROWS * self.group * CODE_BITS[self.name] // 8

    def check(self, shape: Shape) -> None:
        """Raise ArgumentError unless a tensor of this shape can be stored this way."""
        if not shape or any(n <= 0 for n in shape):
            raise ArgumentError(f"shape {shape} is empty")
        if self.quantised and len(shape) != 2:
            raise ArgumentError(f"{self.name} stores matrices, not shape {shape}")
        if self.quantised and shape[1] % self.group:
            raise ArgumentError(f"{shape[1]} columns are no multiple of the group of {self.group}")

    def nbytes(self, shape: Shape) -> int:
        """Stored bytes of a tensor of this shape, padded tile rows included."""
        self.check(shape)
        if not self.quantised:
            return prod(shape) * FLOAT_BYTES[self.name]
        n, k = shape
        return -(-n // TILE_ROWS) * (k // self.group) * self.group_bytes


def groups_of(name: str) -> tuple[int, ...]:
    """The group sizes that a scheme takes; (0,) for floats."""
    if name not in QUANTISED:
        return (0,)
    return (INT3_GROUP,) if name == "int3" else GROUPS


def fit_group(columns: int, asked: int) -> int | None:
    """The largest group that is no larger than ``asked`` and divides the columns; None if none."""
    if asked not in GROUPS:
        raise ArgumentError(f"group size must be one of {GROUPS}, not {asked}")
    fitting = [g for g in GROUPS if g <= asked and columns % g == 0]
    return max(fitting, default=None)


def scheme_for(name: str, shape: Shape, group: int) -> Scheme:
    """The scheme ``name`` with the group that fits this shape.

    int3 has its own group, whatever is asked for; where that does not divide the columns, int4
    takes its place. Where 32 does not divide them either, the matrix stays bf16.
    """
    if name not in QUANTISED:
        return Scheme(name)
    if name == "int3":
        if len(shape) == 2 and shape[1] % INT3_GROUP == 0:
            return Scheme(name, INT3_GROUP)
        name = "int4"
    fitting = fit_group(shape[-1], group) if len(shape) == 2 else None
    if fitting is None:
        return Scheme("bf16")
    return Scheme(name, fitting, CODEBOOK if name == "codebook4" else ())
