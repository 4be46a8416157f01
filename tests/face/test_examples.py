"""The usage examples run as they are written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("name", ["stream.py", "thresholds.py"])
def test_example(name: str, packed: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(FOLDER / name), "hello"],
        capture_output=True,
        text=True,
        env={**os.environ, "CLOVER_MODEL": str(packed), "PYTHONUTF8": "1"},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "forwards" in done.stdout
    assert done.stderr == ""
