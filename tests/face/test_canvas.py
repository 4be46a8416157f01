"""A model whose blocks start as random ids, through the Python face, the terminal and the CLI."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from terminal import Terminal

import clover_edge
from clover_edge import DraftEvent, TextEvent
from clover_edge.cli.live import LiveText
from clover_edge.cli.main import main
from clover_edge.errors import ArgumentError


@pytest.fixture(scope="module")
def folder(pack_canvas: Callable[..., Path]) -> Path:
    return pack_canvas("int8")


@pytest.fixture(scope="module")
def model(folder: Path) -> Iterator[clover_edge.Model]:
    with clover_edge.load(folder, threads=1) as opened:
        yield opened


def test_drafts(model: clover_edge.Model) -> None:
    """Nothing, then the likeliest ids: accepted where the step keeps an id, else drafted."""
    drafts, text = [], ""
    for event in model.stream("x", max_new_tokens=32, seed=2):
        if isinstance(event, DraftEvent):
            drafts.append(event)
        elif isinstance(event, TextEvent):
            text += event.text
    assert drafts[0].states == ("masked",) * 16 and set(drafts[0].token_ids) == {-1}
    steps = [d for d in drafts if d.block == 0 and d.step]
    assert [d.step for d in steps] == list(range(1, len(steps) + 1))
    assert all(set(d.states) <= {"drafted", "accepted"} for d in steps)
    assert {"drafted", "accepted"} == {state for d in steps for state in d.states}
    assert len({d.states for d in steps}) > 1
    result = model.generate("x", max_new_tokens=32, seed=2)
    assert result.text == text
    last = [d for d in drafts if d.block == 0][-1]
    if set(last.states) == {"accepted"} and result.finish_reason != "stop":
        assert len(last.token_ids) == 16
    assert result.counters.denoise_steps == sum(1 for d in drafts if d.step)


def test_on_a_terminal(monkeypatch: pytest.MonkeyPatch, model: clover_edge.Model) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("LINES", "24")
    terminal = Terminal(60)
    live = LiveText(terminal)
    for event in model.stream("x", max_new_tokens=32, seed=2):
        if isinstance(event, DraftEvent):
            live.draft(event)
        elif isinstance(event, TextEvent):
            live.text(event.text)
    live.close()
    shown = "".join(terminal.screen())
    assert "░" not in shown and "‹" not in shown


def test_options(model: clover_edge.Model) -> None:
    plain = model.generate("x", max_new_tokens=32, seed=2)
    assert plain == plain
    assert model.generate("x", max_new_tokens=32, seed=2).token_ids == plain.token_ids
    assert model.generate("x", max_new_tokens=32, seed=3).token_ids != plain.token_ids
    cold = model.generate("x", max_new_tokens=32, temperature=0)
    assert cold.token_ids == model.generate("x", max_new_tokens=32, t_min=0, t_max=0).token_ids
    short = model.generate("x", max_new_tokens=32, seed=2, steps=1)
    assert short.counters.denoise_steps == short.counters.blocks
    with pytest.raises(ArgumentError, match=r"^threshold: "):
        model.generate("x", threshold=0.5)
    with pytest.raises(ArgumentError, match="t_max"):
        model.generate("x", t_min=0.9, t_max=0.8)


def test_command_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--max-new-tokens", "32", "--seed", "2", "--entropy-bound", "0.4", "--t-max", "0.6"]
    assert main(["run", str(folder), "x", "--raw", "--json", "-q", *options]) == 0
    found = json.loads(capsys.readouterr().out)
    with clover_edge.load(folder) as model:
        want = model.generate("x", max_new_tokens=32, seed=2, entropy_bound=0.4, t_max=0.6)
    assert found["token_ids"] == list(want.token_ids)
    assert main(["run", str(folder), "x", "--threshold", "0.5"]) != 0
    assert "threshold" in capsys.readouterr().err
    assert main(["inspect", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert "feed-forward 160, 8 experts of which 2 a token" in shown
    assert "entropy_bound 0.2" in shown


def test_evaluation_measures_commits(folder: Path) -> None:
    """Previews see no masks, which is what the denoising figures are of."""
    found = clover_edge.evaluate(folder, tasks=False, limit=2, sequence_length=48)
    assert found.commit is not None and found.preview is None
