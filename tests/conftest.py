"""What the test files share: tiny checkpoints, their packed folders, loaded cores."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

# pytest's importlib mode adds no folder to the path; the tests share `oracle` and `tiny_clover`.
sys.path.insert(0, str(Path(__file__).parent))

from checkpoints import packer
from oracle.blocks import BlockTransformer
from oracle.clover import Clover
from oracle.full_attention import FullTransformer
from oracle.transformer import Transformer
from tiny_blocks import make_blocks
from tiny_canvas import make_canvas
from tiny_clover import make_checkpoint, write_checkpoint_files
from tiny_full_attention import make_full_attention
from tiny_transformer import make_transformer

# helpers whose assertions say what differs, as those of the tests do
pytest.register_assert_rewrite("core_checks", "golden_checks", "golden_files", "tiny_core")


@dataclass(frozen=True)
class Tiny:
    """A tiny checkpoint: its folder, its tensors (names without prefix) and its configuration; of
    a family with full attention, in the words of its trunk."""

    folder: Path
    tensors: dict[str, np.ndarray]
    config: dict[str, Any]
    kind: Callable[..., Any]

    def oracle(self) -> Any:
        return self.kind(self.tensors, self.config)


def _once(
    factory: pytest.TempPathFactory, kind: Callable[..., Any], write: Callable[..., Any]
) -> Callable[..., Tiny]:
    """``write(folder, ...)`` returns the tensors, with the configuration if the file has another;
    one folder per set of arguments."""
    made: dict[str, Tiny] = {}

    def make(*arguments: Any, **options: Any) -> Tiny:
        key = json.dumps([arguments, options], sort_keys=True)
        if key not in made:
            folder = factory.mktemp(arguments[0] if arguments else "tiny")
            found = write(folder, *arguments, **options)
            if not isinstance(found, tuple):
                found = found, json.loads((folder / "config.json").read_text())
            made[key] = Tiny(folder, *found, kind)
        return made[key]

    return make


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Tiny]:
    """Makes a tiny checkpoint of Clover; keyword arguments are ``make_checkpoint``'s.

    ``scale`` multiplies the tensors whose name ends with a key (powers of two stay exact in bf16).
    """

    def write(
        folder: Path, *, scale: dict[str, float] | None = None, **options: Any
    ) -> dict[str, np.ndarray]:
        tensors = make_checkpoint(folder, **options)
        if scale:
            for name in tensors:
                for ending, factor in scale.items():
                    tensors[name] *= factor if name.endswith(ending) else 1
            write_checkpoint_files(folder, _prefixed(tensors), shards=2)
        return tensors

    return _once(tmp_path_factory, Clover, write)


@pytest.fixture(scope="session")
def tiny_transformer(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Tiny]:
    """Of a family; arguments are ``make_transformer``'s."""
    return _once(tmp_path_factory, Transformer, make_transformer)


@pytest.fixture(scope="session")
def tiny_blocks(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Tiny]:
    """Of a block-diffusion family under a block mask; arguments are ``make_blocks``'s."""
    return _once(tmp_path_factory, BlockTransformer, make_blocks)


@pytest.fixture(scope="session")
def tiny_full_attention(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Tiny]:
    """Of a family with full attention; arguments are ``make_full_attention``'s."""
    return _once(tmp_path_factory, FullTransformer, make_full_attention)


@pytest.fixture(scope="session")
def pack_canvas(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Packs a tiny DiffusionGemma checkpoint, once; arguments are ``make_canvas``'s."""

    def write(folder: Path, case: str, **options: Any) -> None:
        make_canvas(folder, **options)

    return partial(packer(tmp_path_factory, write), "canvas")


def _prefixed(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {
        name if name.startswith("lm_head") else f"model.{name}": value
        for name, value in tensors.items()
    }


@pytest.fixture(scope="session")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Exports a tiny checkpoint by a recipe, once; tests leave the packed folder as it is."""
    made: dict[tuple[Path, str, int | None], Path] = {}

    def make(
        source: Tiny,
        recipe: str,
        group_size: int | None = None,
    ) -> Path:
        from clover_edge.export import export_checkpoint

        key = (source.folder, recipe, group_size)
        if key not in made:
            folder = tmp_path_factory.mktemp("packed") / recipe
            export_checkpoint(source.folder, folder, recipe=recipe, group_size=group_size)
            made[key] = folder
        return made[key]

    return make


@pytest.fixture(scope="session")
def open_core() -> Callable[..., Any]:
    """Loads ``_core.Model`` from a packed folder; ``spec`` replaces fields of its spec."""

    def make(
        folder: Path, *, threads: int = 1, spec: dict[str, Any] | None = None, **options: Any
    ) -> Any:
        from clover_edge import _core
        from clover_edge.loader import read_folder

        packed = read_folder(folder)
        return _core.Model(
            {**packed.spec, **(spec or {})},
            [str(file) for file in packed.files],
            [dict(row) for row in packed.table],
            threads=threads,
            **options,
        )

    return make
