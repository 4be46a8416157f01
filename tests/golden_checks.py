"""A golden file as the tests read it: bounds, logits, whole texts; the judge of today."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from golden_files import MARGIN, assert_clear, checksum, golden_file
from numpy.typing import ArrayLike
from oracle.compare import relative_error

TOLERANCE = 1e-3  # of float32 against float64, the bound that the project states
AGAIN = 1e-4  # of float32 against float32: a later `transformers`, another machine


class Golden:
    """The arrays of ``{name}.npz``: ``"case: what"``."""

    def __init__(self, name: str) -> None:
        self._arrays = golden_file(name)

    def __getitem__(self, key: str) -> np.ndarray:
        return self._arrays[key]

    def ids(self, case: str, what: str = "ids") -> list[int]:
        """Of the case's text."""
        ids: list[int] = self[f"{case}: {what}"].tolist()
        return ids

    def steps(self, case: str, what: str = "changed") -> Any:
        """Of the case's text: by step, or by canvas and step, the positions that it accepted."""
        return json.loads(str(self[f"{case}: {what}"]))

    def assert_drawn(self, case: str, tensors: dict[str, np.ndarray]) -> None:
        """The weights are those that the file is of."""
        drawn = checksum(tensors)
        assert drawn == str(self[f"{case}: checksum"]), "the maker draws other weights now"

    def assert_logits(
        self, case: str, found: ArrayLike, bound: float = TOLERANCE, what: str = "logits"
    ) -> None:
        """They are those of the file, but for rounding."""
        assert relative_error(found, self[f"{case}: {what}"]) < bound, (case, what)

    def assert_told_apart(self, case: str, wrong: ArrayLike, what: str = "logits") -> None:
        """A detail got wrong moves the logits by far more than the tolerance."""
        assert relative_error(wrong, self[f"{case}: {what}"]) > 10 * TOLERANCE, (case, what)

    def assert_text(self, case: str, ids: list[int], steps: list[list[int]]) -> None:
        """Every id and every accepted position."""
        assert ids == self.ids(case)
        assert steps == self.steps(case)

    def assert_clear(self, case: str, least: float = MARGIN) -> None:
        """No decision of the case's text was close."""
        assert_clear(case, float(self[f"{case}: margin"]), least)


def need_judge() -> None:
    """Skips a test where `transformers` cannot run."""
    for package in ("torch", "transformers"):
        pytest.importorskip(package, reason=f"{package} comes with the `judge` extra")
