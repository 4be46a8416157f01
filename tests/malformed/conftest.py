"""What the lies have in common: a good checkpoint to spoil, and a check that nothing was left."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_clover import write_checkpoint_files

from clover_edge.errors import CloverError
from clover_edge.export import export_checkpoint

Edit = Callable[[dict[str, Any]], None]


class Spoiled:
    """A copy of a good single-file checkpoint, to be spoiled and then exported."""

    def __init__(self, folder: Path, tensors: dict[str, np.ndarray]) -> None:
        self.folder, self.tensors = folder, tensors

    def edit(self, change: Edit, name: str = "config.json") -> None:
        value = json.loads((self.folder / name).read_text())
        change(value)
        (self.folder / name).write_text(json.dumps(value))

    def set(self, key: str, value: Any) -> None:
        self.edit(lambda config: config.__setitem__(key, value))

    def write(self, tensors: dict[str, np.ndarray], **options: Any) -> None:
        """Replace the weights; names are the file's own."""
        for path in self.folder.glob("*.safetensors*"):
            path.unlink()
        write_checkpoint_files(self.folder, tensors, **options)

    @property
    def weights(self) -> Path:
        return self.folder / "model.safetensors"

    def refused(self, error: type[CloverError], *words: str) -> CloverError:
        """Exports; the error must be of this type and name all words; nothing may be left."""
        out = self.folder.parent / "out"
        with pytest.raises(error) as caught:
            export_checkpoint(self.folder, out)
        for word in words:
            assert word in str(caught.value)
        assert [path.name for path in out.parent.iterdir()] == [self.folder.name]
        return caught.value


@pytest.fixture
def spoiled(tiny: Any, tmp_path: Path) -> Spoiled:
    return _copy(tiny(shards=1), tmp_path)


@pytest.fixture
def spoil(tiny_transformer: Any, tmp_path: Path) -> Callable[..., Spoiled]:
    """The same of a plain transformer of a family, its configuration changed by keywords."""

    def make(family: str, **keys: Any) -> Spoiled:
        spoiled = _copy(tiny_transformer(family, separate=False), tmp_path)
        spoiled.edit(lambda config: config.update(keys))
        return spoiled

    return make


def _copy(source: Any, parent: Path) -> Spoiled:
    shutil.copytree(source.folder, parent / "in")
    named = {
        name if name.startswith("lm_head") else "model." + name: value.copy()
        for name, value in source.tensors.items()
    }
    return Spoiled(parent / "in", named)
