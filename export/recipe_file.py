"""A user's own recipe, as a small TOML file; docs/export.md has an example."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ..errors import ArgumentError
from ..quant.recipes import RECIPES, Recipe, Rule, recipe

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_SUFFIX = ".toml"
_KEYS = {"match": str, "scheme": str, "group": int}


def find_recipe(choice: str | Path | Recipe) -> Recipe:
    """A recipe by its name, or out of a file whose name ends in ``.toml``.

    ArgumentError for a name that is not known, and naming the file, the rule and the key for a file
    that says something else than a recipe.
    """
    if isinstance(choice, Recipe):
        return choice
    path = Path(choice)
    return _read(path) if path.suffix == _SUFFIX else recipe(str(choice))


def _read(path: Path) -> Recipe:
    try:
        said = tomllib.loads(path.read_text("utf-8"))
    except OSError as problem:
        raise ArgumentError(f"{path}: {problem.strerror or problem}") from problem
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        raise ArgumentError(f"{path}: is not TOML: {problem}") from problem
    if surplus := sorted(set(said) - {"base", "rule"}):
        raise ArgumentError(f"{path}: {surplus[0]}: is not a key of a recipe (base, rule)")
    base = said.get("base")
    if not isinstance(base, str) or base not in RECIPES:
        known = ", ".join(RECIPES)
        raise ArgumentError(f"{path}: base: {base!r} is not one of {known}")
    rules = said.get("rule", [])
    if not isinstance(rules, list):
        raise ArgumentError(f"{path}: rule: write it as [[rule]]")
    made = tuple(_rule(path, number, entry) for number, entry in enumerate(rules, 1))
    return Recipe(path.name.removesuffix(_SUFFIX), RECIPES[base].classes, made)


def _rule(path: Path, number: int, entry: Any) -> Rule:
    where = f"{path}: rule {number}"
    if not isinstance(entry, dict):
        raise ArgumentError(f"{where}: write it as [[rule]]")
    for key, value in entry.items():
        kind = _KEYS.get(key)
        if kind is None:
            raise ArgumentError(f"{where}: {key}: is not a key of a rule ({', '.join(_KEYS)})")
        if type(value) is not kind:
            raise ArgumentError(f"{where}: {key}: {value!r} is no {kind.__name__}")
    for key in ("match", "scheme"):
        if key not in entry:
            raise ArgumentError(f"{where}: {key}: is missing")
    try:
        return Rule(**entry)
    except ArgumentError as problem:
        raise ArgumentError(f"{where}: {problem}") from problem
