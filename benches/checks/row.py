"""What checks share: a row of the report, and the models and evaluations that several rows need."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import evaluate

from clover_edge import demo
from clover_edge.export import export_checkpoint

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))  # the oracle and the maker of tiny checkpoints


class Skipped(Exception):
    """Why a check cannot run here, e.g. "needs extra judge"."""


@dataclass(frozen=True)
class Row:
    """One line of the report. `holds` is None for a row that could not be measured."""

    name: str
    figure: str
    bound: str
    holds: bool | None
    note: str = ""

    def line(self) -> str:
        verdict = {True: "holds", False: "falls short", None: "skipped"}[self.holds]
        note = f" ({self.note})" if self.note else ""
        return f"{self.name:<58}  {self.figure:>22}  {self.bound:>12}  {verdict}{note}"


def at_most(
    name: str, value: float, bound: float, form: str = "{:.2e}", unit: str = "", note: str = ""
) -> Row:
    """A row whose figure must not exceed its bound."""
    return Row(name, form.format(value) + unit, f"<= {bound:g}{unit}", value <= bound, note)


def at_least(
    name: str, value: float, bound: float, form: str = "{:.2f}", unit: str = "", note: str = ""
) -> Row:
    """A row whose figure must reach its bound."""
    return Row(name, form.format(value) + unit, f">= {bound:g}{unit}", value >= bound, note)


@dataclass
class Context:
    """One run of the script: where it may write, what it was told, what it has computed."""

    scratch: Path
    limit: int | None
    install: bool
    checkpoint: Path | None
    models: Path  # where synthetic models are made
    full: bool  # whether the model of full size is made
    _packed: dict[str, Path] = field(default_factory=dict)
    _scores: dict[str, evaluate.Score] = field(default_factory=dict)

    def pack(self, name: str, source: Path, recipe: str) -> Path:
        """A checkpoint packed by a recipe, once."""
        key = f"{name}-{recipe}"
        if key not in self._packed:
            self._packed[key] = self.scratch / key
            export_checkpoint(source, self._packed[key], recipe=recipe)
        return self._packed[key]

    def demo_model(self, recipe: str) -> Path:
        """The demo model, packed by a recipe."""
        return self.pack("demo", self.checkpoint or demo.checkpoint_path(), recipe)

    def prompts(self, held_out: str) -> list[dict[str, Any]]:
        """A held-out set, or its first `--limit` rows."""
        return evaluate.held_out(held_out)[: self.limit]

    def score(self, recipe: str, held_out: str, **options: Any) -> evaluate.Score:
        """The demo model on a held-out set, each combination evaluated once."""
        key = f"{recipe} {held_out} {sorted(options.items())}"
        if key not in self._scores:
            self._scores[key] = evaluate.score(
                self.demo_model(recipe), self.prompts(held_out), **options
            )
        return self._scores[key]


Check = Callable[[Context], Iterator[Row]]
