"""What checks share: a row of the report, and the models and evaluations that several rows need."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from clover_edge import _core, demo, load
from clover_edge.corpus import task_rows
from clover_edge.evaluation import Evaluation, evaluate
from clover_edge.evaluation.tasks import Score, score
from clover_edge.export import export_checkpoint
from clover_edge.quant import CALIBRATED

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))  # the oracle and the maker of tiny checkpoints

CHATS = 400  # that calibrate the demo model
TEXTS = 600  # held-out chats that divergences are measured on; a few positions make most of them


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


def relative(found: ArrayLike, reference: ArrayLike) -> float:
    """max|difference| / max|reference|."""
    found, reference = np.asarray(found, float), np.asarray(reference, float)
    return float(np.abs(found - reference).max() / max(np.abs(reference).max(), 1e-30))


@dataclass
class Context:
    """One run of the script: where it may write, what it was told, what it has computed."""

    scratch: Path
    limit: int | None
    install: bool
    checkpoint: Path | None
    models: Path  # where synthetic models are made, and downloaded packages lie
    full: bool  # whether the model of full size is made
    _packed: dict[str, Path] = field(default_factory=dict)
    _scores: dict[str, Score] = field(default_factory=dict)
    _evaluations: dict[str, Evaluation] = field(default_factory=dict)

    def pack(self, name: str, source: Path, recipe: str, method: str = "rtn") -> Path:
        """A checkpoint packed by a recipe and a method, once."""
        key = f"{name}-{recipe}-{method}"
        if key not in self._packed:
            self._packed[key] = self.scratch / key
            calib = self._demo_text() if method in CALIBRATED else None
            export_checkpoint(source, self._packed[key], recipe=recipe, method=method, calib=calib)
        return self._packed[key]

    def _demo_text(self) -> Path:
        """Requests and answers as the demo model was trained on; none is held out."""
        sys.path.insert(0, str(ROOT / "examples" / "demo_model"))
        from generate import sample
        from held_out import held_out_requests, normalise

        path = self.scratch / "demo.jsonl"
        held_out, rng = held_out_requests(), random.Random("calibration")
        with path.open("w", encoding="utf-8") as file:
            for example in (sample(rng, 0.3) for _ in range(CHATS)):
                if normalise(example.request) not in held_out:
                    request = {"role": "user", "content": example.request}
                    answer = {"role": "assistant", "content": example.answer}
                    file.write(json.dumps({"messages": [request, answer]}) + "\n")
        return path

    def demo_model(self, recipe: str, method: str = "rtn") -> Path:
        """The demo model, packed by a recipe and a method."""
        return self.pack("demo", self.checkpoint or demo.checkpoint_path(), recipe, method)

    def score(self, recipe: str, held_out: str, **options: Any) -> Score:
        """The demo model on a held-out set (or its first `--limit` rows), each combination once."""
        return self.score_first(recipe, held_out, self.limit, **options)

    def score_first(self, recipe: str, held_out: str, size: int | None, **options: Any) -> Score:
        """The same on its first `size` rows."""
        key = f"{recipe} {held_out} {size} {sorted(options.items())}"
        if key not in self._scores:
            rows = task_rows(held_out)[:size]
            path = self.demo_model(recipe)
            with ExitStack() as stack:
                at_a_time = min(_core.default_threads(), len(rows))
                models = [stack.enter_context(load(path, threads=1)) for _ in range(at_a_time)]
                self._scores[key] = score(models, rows, **options)
        return self._scores[key]

    def evaluation(self, recipe: str, method: str = "rtn") -> Evaluation:
        """The demo model against itself in float, over held-out requests and answers, once."""
        key = f"{recipe}-{method}"
        if key not in self._evaluations:
            self._evaluations[key] = evaluate(
                self.demo_model(recipe, method),
                against=self.demo_model("f32"),
                tasks=False,
                limit=min(self.limit or TEXTS, TEXTS),
            )
        return self._evaluations[key]


Check = Callable[[Context], Iterator[Row]]
