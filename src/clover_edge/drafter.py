"""A drafter beside an autoregressive model: a packed folder that serves that model alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .errors import ArgumentError, UnsupportedModelError
from .generation import is_autoregressive
from .loader import PackedFolder, open_core, read_folder

if TYPE_CHECKING:
    from ._core import Model as CoreModel


@dataclass(frozen=True)
class Drafter:
    """An opened drafter that fits its model."""

    folder: PackedFolder
    core: CoreModel
    block_size: int  # tokens of a draft at most, the one that the model has decided among them
    max_positions: int

    @property
    def path(self) -> Path:
        """The packed folder."""
        return self.folder.path


def is_drafter(spec: Mapping[str, Any]) -> bool:
    """Whether a packed folder holds a drafter, which writes no text by itself."""
    return bool(spec.get("drafts_for_layers"))


def refuse_drafter(folder: PackedFolder) -> None:
    """UnsupportedModelError where a drafter stands in a model's place."""
    if is_drafter(folder.spec):
        raise UnsupportedModelError(
            f"{folder.path}: is a drafter; load(MODEL, drafter=...) and --drafter take it"
        )


def open_drafter(
    path: str | Path,
    model: PackedFolder,
    core: CoreModel,
    *,
    threads: int,
    isa: str | None,
    mmap: bool,
    kv: Literal["f32", "f16", "int8"],
) -> Drafter:
    """Opens the drafter for `model`, of which `core` is the compiled one.

    Raises what `read_folder` and `open_core` do, UnsupportedModelError for a folder that is no
    drafter and a model that denoises blocks, ArgumentError naming the field that does not fit.
    """
    folder = read_folder(path)
    if not is_drafter(folder.spec):
        raise UnsupportedModelError(f"{folder.path}: is no drafter")
    if not is_autoregressive(model.spec):
        raise UnsupportedModelError(
            f"{model.path}: denoises blocks and drafts for itself: drafters are not supported of it"
        )
    opened = open_core(folder, threads=threads, isa=isa, mmap=mmap, kv=kv)
    try:
        core.check_drafter(opened)
    except ArgumentError as error:
        raise ArgumentError(f"drafter: {folder.path}: {error} ({model.path})") from None
    spec = folder.spec
    return Drafter(folder, opened, spec["block_size"], spec["max_positions"])
