"""Exports of the real shape: memory, sizes, speed."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import export_memory
import numpy as np
import streamed_export
from checks.row import Check, Context, Row, Skipped, at_least, at_most

from clover_edge.export import plan_export
from clover_edge.export.checkpoint import Checkpoint

GIGABYTES = {"int4": 21.0, "int4-all": 19.8, "int4-small": 15.0}
MEMORY = 3.0  # GB above the interpreter
SPEED = 150  # MB of source a second
KILLS = 6


def sizes_by_plan(context: Context) -> Iterator[Row]:
    """What --dry-run says of Clover-35B-A3B's shape."""
    with Checkpoint(streamed_export.opened()) as source:
        for recipe, bound in GIGABYTES.items():
            planned = plan_export(source, recipe).file_bytes / 1e9
            name = f"Clover-35B-A3B, {recipe}: planned size"
            yield at_most(name, planned, bound, "{:.2f}", " GB")


def whole_model(context: Context) -> Iterator[Row]:
    """69 GB streamed through the exporter, once for each recipe, one folder at a time."""
    if not context.full:
        raise Skipped("--no-full")
    for recipe, bound in GIGABYTES.items():
        needed = (bound + 0.5) * 1e9
        if shutil.disk_usage(context.models).free < needed:
            raise Skipped(f"{context.models}: needs {needed / 1e9:.1f} GB of disk")
        found = _streamed(recipe, context.models)
        name = f"Clover-35B-A3B, {recipe}, written"
        seconds = f"{found['seconds']:.0f} s for {found['source_bytes'] / 1e9:.1f} GB of source"
        met = "as planned" if found["packed_bytes"] == found["planned_bytes"] else "not as planned"
        yield at_most(f"{name}: size", found["packed_bytes"] / 1e9, bound, "{:.2f}", " GB", met)
        peak = found["peak_above_bytes"] / 1e9
        yield at_most(f"{name}: peak memory", peak, MEMORY, "{:.2f}", " GB", seconds)


def _streamed(recipe: str, folder: Path) -> dict[str, float]:
    """In a process of its own: memory is the process's."""
    command = [sys.executable, streamed_export.__file__, "--recipe", recipe, "--out", str(folder)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def export_speed(context: Context) -> Iterator[Row]:
    """A checkpoint of 2 GB on disk, start of the process included."""
    for recipe in GIGABYTES:
        found = export_memory.measure(recipe)
        speed = found["checkpoint_bytes"] / found["seconds"] / 1e6
        name = f"export of 2 GB on disk, {recipe}, rtn"
        yield at_least(name, speed, SPEED, "{:.0f}", " MB/s", f"{found['seconds']:.1f} s")


def interrupted_exports(context: Context) -> Iterator[Row]:
    """Killed without warning at moments spread over the export, each time resumed."""
    source = context.scratch / "interrupted-source"
    source.mkdir()
    export_memory.make_checkpoint(source, 0.5)
    whole, out = context.scratch / "whole", context.scratch / "interrupted"
    started = time.monotonic()
    _command(source, whole).wait()
    seconds, visible, kills = time.monotonic() - started, 0, 0
    for moment in np.linspace(0.3, 0.95, KILLS):
        process = _command(source, out, "--resume")
        try:
            process.wait(float(moment) * seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            kills += 1
        if process.wait() == 0:
            break
        visible += out.exists()
    if not out.exists() and _command(source, out, "--resume").wait():
        raise RuntimeError("the export cannot be resumed")
    names = {path.name for folder in (whole, out) for path in folder.iterdir()}
    differ = sum(_digest(whole / name) != _digest(out / name) for name in names)
    note = f"{kills} kills in exports of {seconds:.1f} s"
    yield at_most("interrupted and resumed: files that differ", differ, 0, "{:d}", "", note)
    yield at_most("interrupted: half-written folders visible", visible, 0, "{:d}")


def _command(source: Path, out: Path, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "clover_edge.export", str(source), "-o", str(out), "--int4"]
    return subprocess.Popen([*command, *more], stderr=subprocess.DEVNULL)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else "absent"


CHECKS: list[Check] = [sizes_by_plan, export_speed, interrupted_exports, whole_model]
