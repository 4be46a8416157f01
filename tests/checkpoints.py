"""Folders of tiny checkpoints: copied, edited, read, packed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def edited(folder: Path, file: str = "config.json", **keys: Any) -> Path:
    """The folder, keys of one of its files changed; None drops a key."""
    path = folder / file
    config = {**json.loads(path.read_text()), **keys}
    path.write_text(json.dumps({k: v for k, v in config.items() if v is not None}))
    return folder


def copier(tiny: Callable[[str], Any], folder: Path) -> Callable[..., Path]:
    """Copies a checkpoint of ``tiny`` to the folder, once, and edits the copy."""

    def copy(family: str, file: str = "config.json", **keys: Any) -> Path:
        if not folder.exists():
            shutil.copytree(tiny(family).folder, folder)
        return edited(folder, file, **keys)

    return copy


def model_of(folder: Path) -> Any:
    """What the exporter reads from a checkpoint."""
    from clover_edge.export import Checkpoint
    from clover_edge.export.families import read_model

    with Checkpoint(folder) as checkpoint:
        return read_model(checkpoint)


def packer(
    factory: pytest.TempPathFactory,
    write: Callable[..., Any],
    check: Callable[[str, Any], None] = lambda case, plan: None,
) -> Callable[..., Path]:
    """Packs a case by a recipe, once; keyword arguments go to ``write(folder, case, ...)``.

    ``check(case, plan)`` looks at what the exporter planned.
    """
    made: dict[str, Path] = {}

    def pack(case: str, recipe: str = "f32", **other: Any) -> Path:
        from clover_edge.export import export_checkpoint

        key = json.dumps([case, recipe, other], sort_keys=True)
        if key not in made:
            folder = factory.mktemp("case")
            write(folder / "in", case, **other)
            check(case, export_checkpoint(folder / "in", folder / "out", recipe=recipe).plan)
            made[key] = folder / "out"
        return made[key]

    return pack
