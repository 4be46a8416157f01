"""Number formats and quantisation: arrays in, arrays out; opens no file."""

from .codebook import CODEBOOK
from .encode import decode, encode
from .methods import CALIBRATED, DATA_FREE, METHODS, Calibration, settle
from .metrics import ErrorStats, relative_error
from .recipes import RECIPES, Recipe, Rule, recipe
from .schemes import GROUPS, LAYOUT, SCHEMES, TILE_ROWS, Scheme, fit_group, scheme_for

__all__ = [
    "CALIBRATED",
    "CODEBOOK",
    "DATA_FREE",
    "GROUPS",
    "LAYOUT",
    "METHODS",
    "RECIPES",
    "SCHEMES",
    "TILE_ROWS",
    "Calibration",
    "ErrorStats",
    "Recipe",
    "Rule",
    "Scheme",
    "decode",
    "encode",
    "fit_group",
    "recipe",
    "relative_error",
    "scheme_for",
    "settle",
]
