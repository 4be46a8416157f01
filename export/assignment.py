"""Which matrix gets which scheme: a recipe's rules, its classes, and what fits a shape."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from ..errors import ArgumentError
from ..quant.recipes import FLOAT, Recipe, Rule
from ..quant.schemes import GROUPS, QUANTISED, Scheme, Shape, groups_of, scheme_for

DEFAULT_GROUP = GROUPS[0]


class Assignment:
    """Schemes by name. ``group_size`` None: 32, and a smaller step down where nothing fits; a size
    that was asked for must divide every matrix that takes it."""

    def __init__(self, recipe: Recipe, group_size: int | None) -> None:
        if group_size is not None and group_size not in GROUPS:
            raise ArgumentError(f"group size must be one of {GROUPS}, not {group_size}")
        self.recipe = recipe
        self.group_size = group_size or DEFAULT_GROUP
        self._asked = group_size is not None
        self._unused = set(recipe.rules)
        self.fallbacks: list[str] = []

    def scheme(self, name: str, kind: str, shape: Shape) -> Scheme:
        """ArgumentError naming the tensor when it cannot be stored as was asked for."""
        ruled = [rule for rule in self.recipe.rules if fnmatchcase(name, rule.match)]
        self._unused.difference_update(ruled)
        if ruled:
            return self._by_rule(ruled[-1], name, kind, shape)
        wanted = self.recipe.classes[kind]
        if self._asked and wanted in QUANTISED and self.group_size in groups_of(wanted):
            self._check(name, shape, self.group_size, f"the group size of {self.group_size}")
        scheme = scheme_for(wanted, shape, self.group_size)
        self.fallbacks.extend(_fallback(name, wanted, shape, scheme))
        return scheme

    def finish(self) -> None:
        """ArgumentError when a rule has matched nothing."""
        for rule in self.recipe.rules:
            if rule in self._unused:
                raise ArgumentError(
                    f"recipe {self.recipe.name}: the rule {rule.match!r} matches no tensor"
                )

    def _by_rule(self, rule: Rule, name: str, kind: str, shape: Shape) -> Scheme:
        asked = f"the rule {rule.match!r} of recipe {self.recipe.name}"
        if kind == FLOAT and rule.scheme != "f32":
            raise ArgumentError(
                f"{name}: stays float32 in every recipe, and {asked} makes it {rule.scheme}"
            )
        if rule.scheme not in QUANTISED:
            return Scheme(rule.scheme)
        taken = groups_of(rule.scheme)
        group = rule.group or (self.group_size if self.group_size in taken else taken[0])
        self._check(name, shape, group, f"the group of {group} that {asked} asks for")
        return scheme_for(rule.scheme, shape, group)

    @staticmethod
    def _check(name: str, shape: Shape, group: int, asked: str) -> None:
        if len(shape) != 2 or shape[1] % group:
            raise ArgumentError(f"{name}: {shape[-1]} columns are no multiple of {asked}")


def _fallback(name: str, wanted: str, shape: Shape, scheme: Scheme) -> Iterator[str]:
    """A matrix whose columns no group divides, and which therefore takes another scheme."""
    if wanted in QUANTISED and scheme.name != wanted:
        least = min(GROUPS if scheme.name == "bf16" else groups_of(wanted))
        yield f"{name}: {shape[-1]} columns are no multiple of {least}; stored as {scheme.name}"
