"""The bundled model and the command that shows it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import clover_edge
from clover_edge import demo
from clover_edge.cli.demo import SAMPLES

COMMAND = [sys.executable, "-m", "clover_edge.cli.main", "demo"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=120)


def test_demo_in_a_pipe(tmp_path: Path) -> None:
    """Packs, answers the samples, and leaves nothing behind."""
    before = set(tmp_path.iterdir())
    done = subprocess.run(
        COMMAND,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert set(tmp_path.iterdir()) == before
    for sample in SAMPLES:
        assert f"> {sample}\n" in done.stdout
    assert "<function=set_temperature>" in done.stdout
    assert "tokens/forward" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr
    assert "packed the bundled model to int4" in done.stderr


def test_demo_with_a_prompt_of_ones_own() -> None:
    for flags in ([], ["--ar"], ["--recipe", "f32"]):
        done = run("--prompt", "call Maya", *flags)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("> call Maya\n<tool_call>\n<function=call_contact>\n")
        assert "Maya" in done.stdout.split("<function=", 1)[1]


def test_no_model_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The bundled model, packed once, with one line on stderr."""
    monkeypatch.delenv("CLOVER_MODEL", raising=False)
    request = [{"role": "user", "content": "call Maya"}]
    first = clover_edge.generate(request)
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "bundled demo model" in error
    assert clover_edge.generate(request).text == first.text
    assert capsys.readouterr().err == ""
    assert "call_contact" in first.text
    assert first.finish_reason == "stop"


def test_a_build_without_the_checkpoint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(demo, "CHECKPOINT", tmp_path / "absent")
    with pytest.raises(clover_edge.ArgumentError, match="holds no demo checkpoint"):
        demo.pack()
