"""Tiny models, packed and as ONNX graphs, each made once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from onnx_models import CASES, OnnxModel


@pytest.fixture(scope="session")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Packs a case, or the demo model, by a recipe."""
    made: dict[tuple[str, str], Path] = {}

    def make(case: str, recipe: str) -> Path:
        from clover_edge import demo
        from clover_edge.export import export_checkpoint

        if (case, recipe) not in made:
            folder = tmp_path_factory.mktemp("packed")
            source = demo.checkpoint_path() if case == "demo" else folder / "in"
            if case != "demo":
                CASES[case](source)
            export_checkpoint(source, folder / "out", recipe=recipe)
            made[case, recipe] = folder / "out"
        return made[case, recipe]

    return make


@pytest.fixture(scope="session")
def graphs(
    packed: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Path]:
    """The ONNX folder of a case."""
    pytest.importorskip("onnx")
    made: dict[tuple[str, str, str], Path] = {}

    def make(case: str, recipe: str, activations: str = "float") -> Path:
        from clover_edge.export import export_onnx

        key = (case, recipe, activations)
        if key not in made:
            folder = tmp_path_factory.mktemp("graphs") / "out"
            export_onnx(packed(case, recipe), folder, activations=activations)
            made[key] = folder
        return made[key]

    return make


@pytest.fixture(scope="session")
def onnx_model(graphs: Callable[..., Path]) -> Callable[..., Any]:
    """The same, opened in onnxruntime."""
    pytest.importorskip("onnxruntime")
    made: dict[Path, OnnxModel] = {}

    def make(case: str, recipe: str, activations: str = "float") -> OnnxModel:
        folder = graphs(case, recipe, activations)
        if folder not in made:
            made[folder] = OnnxModel(folder)
        return made[folder]

    return make
