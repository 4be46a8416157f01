"""The model that a packed one is compared with: another packed folder, or a checkpoint."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import ArgumentError, ModelFormatError
from ..export.files import read_json
from ..model import Model, load

FLOAT_RECIPES = ("f32", "bf16")


@contextmanager
def opened_reference(against: Model | str | Path, model: Model) -> Iterator[Model]:
    """Opens it as `model` is opened, but with float keys and values; a checkpoint is packed first.

    Raises ArgumentError when the two models' tokens differ, and what load() and packed_to_float()
    raise.
    """
    core = model.core
    if isinstance(against, Model):
        check_vocabulary(model, against)
        yield against
        return
    opening = load if is_packed(Path(against)) else packed_to_float
    with opening(against, threads=core.threads, isa=core.isa) as reference:
        check_vocabulary(model, reference)
        yield reference


@contextmanager
def packed_to_float(
    checkpoint: str | Path,
    *,
    threads: int | None = None,
    isa: str | None = None,
    norm: str = "auto",
) -> Iterator[Model]:
    """A checkpoint packed into a temporary folder by `float_recipe`, and opened.

    Raises what export_checkpoint() raises, ExportError for a disk that is too small among it.
    """
    from ..export import export_checkpoint

    with tempfile.TemporaryDirectory(prefix="clover-edge-reference-") as scratch:
        folder = Path(scratch) / Path(checkpoint).resolve().name
        recipe = float_recipe(checkpoint, Path(scratch))
        export_checkpoint(checkpoint, folder, recipe=recipe, norm=norm)
        with load(folder, threads=threads, isa=isa) as model:
            yield model


def is_packed(path: Path) -> bool:
    """Whether a folder is a packed one; what is neither packed nor a checkpoint is not."""
    config = path / "config.json"
    return config.is_file() and "clover_edge" in read_json(config, ModelFormatError)


def float_recipe(checkpoint: str | Path, folder: Path) -> str:
    """The widest float recipe whose files fit the disk of `folder` and the free memory."""
    from ..export import Checkpoint, plan_export
    from ..export.pipeline import available_memory

    room = [shutil.disk_usage(folder).free]
    if (memory := available_memory()) is not None:
        room.append(memory)
    with Checkpoint(checkpoint) as source:
        needed = plan_export(source, FLOAT_RECIPES[0]).file_bytes
    return FLOAT_RECIPES[needed > min(room)]


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
