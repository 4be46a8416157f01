"""What the test files share: tiny checkpoints, their packed folders, loaded cores."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

# pytest's importlib mode adds no folder to the path; the tests share `oracle` and `tiny_clover`.
sys.path.insert(0, str(Path(__file__).parent))

from oracle.blocks import BlockTransformer
from oracle.clover import Clover
from oracle.full_attention import FullTransformer
from oracle.transformer import Transformer
from tiny_blocks import make_blocks
from tiny_canvas import make_canvas
from tiny_clover import make_checkpoint, write_checkpoint_files
from tiny_full_attention import make_full_attention
from tiny_transformer import make_transformer


@dataclass(frozen=True)
class Tiny:
    """A tiny checkpoint: its folder, its tensors (names without prefix) and its configuration."""

    folder: Path
    tensors: dict[str, np.ndarray]
    config: dict[str, Any]

    def oracle(self) -> Clover:
        return Clover(self.tensors, self.config)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Tiny]:
    """Makes a tiny checkpoint; keyword arguments are ``make_checkpoint``'s. One folder per set.

    ``scale`` multiplies the tensors whose name ends with a key (powers of two stay exact in bf16).
    """
    made: dict[str, Tiny] = {}

    def make(*, scale: dict[str, float] | None = None, **options: Any) -> Tiny:
        key = json.dumps([options, scale], sort_keys=True)
        if key not in made:
            folder = tmp_path_factory.mktemp("tiny")
            tensors = make_checkpoint(folder, **options)
            if scale:
                for name in tensors:
                    for ending, factor in scale.items():
                        tensors[name] *= factor if name.endswith(ending) else 1
                write_checkpoint_files(folder, _prefixed(tensors), shards=2)
            made[key] = Tiny(folder, tensors, json.loads((folder / "config.json").read_text()))
        return made[key]

    return make


@dataclass(frozen=True)
class TinyTransformer:
    """The same of a plain transformer."""

    folder: Path
    tensors: dict[str, np.ndarray]
    config: dict[str, Any]

    def oracle(self) -> Transformer:
        return Transformer(self.tensors, self.config)


@pytest.fixture(scope="session")
def tiny_transformer(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[..., TinyTransformer]:
    """Makes a tiny checkpoint of a family; arguments are ``make_transformer``'s."""
    made: dict[str, TinyTransformer] = {}

    def make(family: str, **options: Any) -> TinyTransformer:
        key = json.dumps([family, options], sort_keys=True)
        if key not in made:
            folder = tmp_path_factory.mktemp(family)
            tensors = make_transformer(folder, family, **options)
            config = json.loads((folder / "config.json").read_text())
            made[key] = TinyTransformer(folder, tensors, config)
        return made[key]

    return make


@dataclass(frozen=True)
class TinyBlocks:
    """The same of a block-diffusion family under a block mask."""

    folder: Path
    tensors: dict[str, np.ndarray]
    config: dict[str, Any]

    def oracle(self) -> BlockTransformer:
        return BlockTransformer(self.tensors, self.config)


@pytest.fixture(scope="session")
def tiny_blocks(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., TinyBlocks]:
    """Makes a tiny checkpoint of a family; arguments are ``make_blocks``'s."""
    made: dict[str, TinyBlocks] = {}

    def make(family: str, **options: Any) -> TinyBlocks:
        key = json.dumps([family, options], sort_keys=True)
        if key not in made:
            folder = tmp_path_factory.mktemp(family)
            tensors = make_blocks(folder, family, **options)
            config = json.loads((folder / "config.json").read_text())
            made[key] = TinyBlocks(folder, tensors, config)
        return made[key]

    return make


@dataclass(frozen=True)
class TinyFullAttention:
    """The same of a family with full attention; ``config`` in the words of its trunk."""

    folder: Path
    tensors: dict[str, np.ndarray]
    config: dict[str, Any]

    def oracle(self) -> FullTransformer:
        return FullTransformer(self.tensors, self.config)


@pytest.fixture(scope="session")
def tiny_full_attention(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[..., TinyFullAttention]:
    """Makes a tiny checkpoint of a family; arguments are ``make_full_attention``'s."""
    made: dict[str, TinyFullAttention] = {}

    def make(family: str, **options: Any) -> TinyFullAttention:
        key = json.dumps([family, options], sort_keys=True)
        if key not in made:
            folder = tmp_path_factory.mktemp(family)
            made[key] = TinyFullAttention(folder, *make_full_attention(folder, family, **options))
        return made[key]

    return make


@pytest.fixture(scope="session")
def pack_canvas(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Packs a tiny DiffusionGemma checkpoint, once; arguments are ``make_canvas``'s."""
    made: dict[str, Path] = {}

    def make(recipe: str = "f32", **options: Any) -> Path:
        from clover_edge.export import export_checkpoint

        key = json.dumps([recipe, options], sort_keys=True)
        if key not in made:
            folder = tmp_path_factory.mktemp("canvas")
            make_canvas(folder / "in", **options)
            export_checkpoint(folder / "in", folder / "out", recipe=recipe)
            made[key] = folder / "out"
        return made[key]

    return make


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
        source: Tiny | TinyTransformer | TinyBlocks | TinyFullAttention,
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
