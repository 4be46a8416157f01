"""The newcomer's first command, timed in a fresh virtual environment."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from pathlib import Path

from checks.row import ROOT, Context, Row, Skipped, at_most

INSTALL_SECONDS = 360
DEMO_SECONDS = 20


def install_and_demo(context: Context) -> Iterator[Row]:
    """`pip install . && clover-edge demo` on a copy of the checkout, with no build folder in it."""
    if not context.install:
        raise Skipped("by --no-install")
    checkout, environment = context.scratch / "checkout", context.scratch / "venv"
    _copy(checkout)
    started = time.perf_counter()
    venv.create(environment, with_pip=True)
    _run([str(environment / "bin" / "python"), "-m", "pip", "install", "-q", "."], checkout)
    installed = time.perf_counter()
    _run([str(environment / "bin" / "clover-edge"), "demo"], checkout)
    done = time.perf_counter()
    shutil.rmtree(environment)
    yield at_most(
        "pip install . && clover-edge demo, fresh environment",
        done - started,
        INSTALL_SECONDS,
        "{:.0f}",
        " s",
    )
    yield at_most("clover-edge demo alone", done - installed, DEMO_SECONDS, "{:.1f}", " s")


def _copy(target: Path) -> None:
    """What a clone would hold: files that git tracks or would take."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        source, copy = ROOT / name, target / name
        if source.is_file():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy)


def _run(command: list[str], folder: Path) -> None:
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace")
    if result.returncode:
        print(result.stdout[-2000:], result.stderr[-4000:], file=sys.stderr)
        raise RuntimeError(f"{' '.join(command)} ended with {result.returncode}")
