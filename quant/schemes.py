"""Number formats of stored tensors: bits, bytes, which shapes they take.

Sizes are exact: the exporter writes headers from them before it has read a weight, and the
loader refuses a file that disagrees.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ..errors import ArgumentError

TILE_ROWS = 16
LAYOUT = 1
GROUPS = (32, 64, 128)
QUANTISED = ("int8", "int4")
FLOAT_BYTES = {"f32": 4, "bf16": 2}
SCHEMES = (*FLOAT_BYTES, *QUANTISED)

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Scheme:
    """How a tensor is stored; ``group`` columns share a scale (0 for floats)."""

    name: str
    group: int = 0

    def __post_init__(self) -> None:
        if self.name not in SCHEMES:
            raise ArgumentError(f"unknown scheme {self.name!r}; known: {', '.join(SCHEMES)}")
        allowed = GROUPS if self.quantised else (0,)
        if self.group not in allowed:
            raise ArgumentError(f"{self.name} takes a group size in {allowed}, not {self.group}")

    @property
    def quantised(self) -> bool:
        return self.name in QUANTISED

    @property
    def group_bytes(self) -> int:
        """Bytes of one group of one tile: 16 float16 scales and the codes (quantised only)."""
        codes = TILE_ROWS * self.group
        return 2 * TILE_ROWS + (codes // 2 if self.name == "int4" else codes)

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


def fit_group(columns: int, asked: int) -> int | None:
    """The largest group that is no larger than ``asked`` and divides the columns; None if none."""
    if asked not in GROUPS:
        raise ArgumentError(f"group size must be one of {GROUPS}, not {asked}")
    fitting = [g for g in GROUPS if g <= asked and columns % g == 0]
    return max(fitting, default=None)


def scheme_for(name: str, shape: Shape, group: int) -> Scheme:
    """The scheme ``name`` with the group that fits this shape; bf16 when 32 does not divide it."""
    if name not in QUANTISED:
        return Scheme(name)
    fitting = fit_group(shape[-1], group) if len(shape) == 2 else None
    return Scheme(name, fitting) if fitting else Scheme("bf16")
