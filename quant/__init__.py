"""Number formats and quantisation: arrays in, arrays out; opens no file."""

from .codebook import CODEBOOK
from .encode import decode, encode
from .metrics import ErrorStats, relative_error
from .recipes import RECIPES, recipe
from .schemes import GROUPS, LAYOUT, SCHEMES, TILE_ROWS, Scheme, fit_group, scheme_for

__all__ = [
    "CODEBOOK",
    "GROUPS",
    "LAYOUT",
    "RECIPES",
    "SCHEMES",
    "TILE_ROWS",
    "ErrorStats",
    "Scheme",
    "decode",
    "encode",
    "fit_group",
    "recipe",
    "relative_error",
    "scheme_for",
]
