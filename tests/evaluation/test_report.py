"""The report: numbers in tables, files, the picture."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import clover_edge
from clover_edge import demo, evaluate

FEW: dict[str, Any] = {"limit": 2, "sequence_length": 32}


@pytest.fixture(scope="module")
def found(
    plain: clover_edge.Model, packed: clover_edge.Model, text: Path
) -> clover_edge.Evaluation:
    return evaluate(packed, against=plain, text=text, **FEW)


def test_markdown_says_what_was_found(found: clover_edge.Evaluation, text: Path) -> None:
    page = found.markdown()
    assert page.startswith("# Quality of int4-all against f32\n")
    assert "Text: meadow.txt, 2 sequences" in page
    assert found.preview is not None
    for mode in (found.commit, found.preview):
        assert f"KL divergence {mode['kl']:.3g} nats" in page
        for side in ("model", "against"):
            assert f"{mode[side]['bits_per_byte']:.4f}" in page
    for row in found.layers:
        assert f"| {row['commit']['router_agreement']:.2%} |" in page
    tables = [part for part in page.split("\n\n") if part.startswith("|")]
    for table in tables:
        assert len({line.count("|") for line in table.splitlines()}) == 1, table


def test_alone(packed: clover_edge.Model, text: Path) -> None:
    alone = evaluate(packed, text=text, **FEW)
    assert alone.against is None and alone.layers == []
    assert "kl" not in alone.commit and "against" not in alone.commit
    assert "KL" not in alone.markdown()


def test_files(found: clover_edge.Evaluation, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs extra plot")
    paths = found.write(tmp_path / "new")
    assert [path.name for path in paths] == ["quality.json", "quality.md", "quality.png"]
    assert set((tmp_path / "new").iterdir()) == set(paths)
    assert json.loads(paths[0].read_text()) == found.as_dict()
    assert paths[1].read_text().endswith("![Layers](quality.png)\n")
    assert paths[2].read_bytes().startswith(b"\x89PNG")
    before = [path.read_bytes() for path in paths]
    assert [path.read_bytes() for path in found.write(tmp_path / "new")] == before


def test_without_matplotlib(
    found: clover_edge.Evaluation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    paths = found.write(tmp_path)
    assert [path.name for path in paths] == ["quality.json", "quality.md"]
    assert "png" not in paths[1].read_text()


def test_the_demo_model(tmp_path: Path) -> None:
    """Its own text and tasks without being asked for."""
    with demo.pack() as folder:
        found = evaluate(Path(folder) / "model", against=demo.checkpoint_path(), limit=2)
    assert found.text["source"] == "the demo model's held-out requests"
    assert found.against is not None and found.against["recipe"] == "f32"
    assert set(found.tasks) == {"combinations", "wordings", "made_up"}
    for sides in found.tasks.values():
        assert set(sides) == {"model", "against"} and sides["model"]["requests"] == 2
    assert found.commit["kl"] < 0.1 < found.commit["top1_agreement"]
    assert "| combinations (2) | model |" in found.markdown()
