"""Every registered model type, in every recipe and every mode that it decodes in, exported and
run."""

from __future__ import annotations

from pathlib import Path

import pytest
from families import BY_TYPE, RECIPES, REGISTERED, run_modes, write


def test_table_and_registry_are_the_same() -> None:
    assert set(BY_TYPE) == set(REGISTERED)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("model_type", REGISTERED)
def test_every_mode(tmp_path: Path, model_type: str, recipe: str) -> None:
    """Modes that it does not have are refused."""
    write(tmp_path / "in", model_type)
    modes = BY_TYPE[model_type].modes
    wrong = list(run_modes(tmp_path / "in", tmp_path / "out", recipe, modes))
    assert wrong == [""] * len(modes)
