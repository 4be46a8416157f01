"""The model that a packed one is compared with: another packed folder, or a checkpoint."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import ArgumentError, ModelFormatError
from ..export.files import read_json
from ..model import Model, load

Progress = Callable[[str, int, int], None]


@contextmanager
def opened_reference(
    against: Model | str | Path, model: Model, progress: Progress
) -> Iterator[Model]:
    """Opens it as `model` is opened, but with float keys and values; a checkpoint is packed first.

    Raises ArgumentError when the two models' tokens differ, and what load() and packed_to_float()
    raise.
    """
    core = model.core
    if isinstance(against, Model):
        check_vocabulary(model, against)
        yield against
        return
    place: dict[str, Any] = {"threads": core.threads, "isa": core.isa}
    with (
        load(against, **place)
        if is_packed(Path(against))
        else packed_to_float(against, progress, **place)
    ) as reference:
        check_vocabulary(model, reference)
        yield reference


@contextmanager
def packed_to_float(
    checkpoint: str | Path,
    progress: Progress,
    *,
    threads: int | None = None,
    isa: str | None = None,
    norm: str = "auto",
    preview_tensors: Path | None = None,
) -> Iterator[Model]:
    """A checkpoint packed into a temporary folder, and opened: to f32, or to bf16 where f32 exceeds
    the free disk or memory. `progress(what, done, total)`. `norm`, `preview_tensors`: as for the
    exporter.

    Raises what export_checkpoint() raises, ExportError for a disk that is too small among it.
    """
    from ..export import Checkpoint, plan_export
    from ..export.coding import Coding
    from ..export.pipeline import write_plan

    with tempfile.TemporaryDirectory(prefix="clover-edge-reference-") as scratch:
        folder = Path(scratch) / Path(checkpoint).resolve().name
        with Checkpoint(checkpoint, preview_tensors=preview_tensors) as source:
            plan = plan_export(source, "f32")
            if plan.file_bytes > _room(scratch):
                plan = plan_export(source, "bf16")
            write_plan(
                source,
                plan,
                folder,
                coding=Coding(),
                norm=norm,
                progress=lambda done, total, _: progress("reference", done, total),
            )
        with load(folder, threads=threads, isa=isa) as model:
            yield model


def _room(folder: str) -> int:
    """Bytes that a file in a folder may take and still be read from memory."""
    from ..export.pipeline import available_memory

    disk, memory = shutil.disk_usage(folder).free, available_memory()
    return disk if memory is None else min(disk, memory)


def is_packed(path: Path) -> bool:
    """Whether a folder is a packed one; what is neither packed nor a checkpoint is not."""
    config = path / "config.json"
    return config.is_file() and "clover_edge" in read_json(config, ModelFormatError)


def check_vocabulary(model: Model, reference: Model) -> None:
    """ArgumentError naming what differs: logits of unlike tokens cannot be compared."""
    where = f"against: {reference.path}"
    for field in ("valid_vocab", "mask_token_id"):
        ours, theirs = model.spec.get(field), reference.spec.get(field)
        if ours != theirs:
            raise ArgumentError(f"{where}: {field} is {theirs}, and {ours} in {model.path}")
    here, there = model.codec.tokens(), reference.codec.tokens()
    if here != there:
        token, number = min(set(here.items()) ^ set(there.items()), key=lambda item: item[1])
        raise ArgumentError(
            f"{where}: token {token!r} (id {number}) is not the same in {model.path}"
        )


def same_layers(model: Model, reference: Model) -> bool:
    """Whether layer i of one can be held against layer i of the other."""
    fields = ("layer_types", "hidden_size", "num_experts", "top_k")
    return all(model.spec.get(field) == reference.spec.get(field) for field in fields)
