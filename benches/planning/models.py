"""What a model consists of: as packed, as a checkpoint would be, or as its configuration says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from synthetic import SHAPES, header_only

from clover_edge.errors import CheckpointError, UnsupportedModelError
from clover_edge.export import Checkpoint, Plan, plan_export
from clover_edge.export.files import read_json
from clover_edge.export.sources.folder import holds_weights
from clover_edge.loader import PackedFolder, read_folder

CLOVER = "clover_moe"  # the model_type whose tensors are known from its configuration


@dataclass(frozen=True)
class Described:
    """A packed model as it is, or as an export would write it; no weight is read.

    `entries`, `sizes`: as in `PackedFolder`. `folder`: None where nothing is packed yet.
    """

    name: str
    recipe: str
    spec: Mapping[str, Any]
    generation: Mapping[str, Any]
    entries: Mapping[str, Mapping[str, Any]]
    sizes: Mapping[str, int]
    folder: PackedFolder | None = None

    @property
    def nbytes(self) -> int:
        """Of all weights."""
        return sum(self.sizes.values())


def describe(model: Path, recipe: str) -> Described:
    """A packed folder (whose recipe is its own), a checkpoint, or a Clover `config.json` or a
    folder that holds little else.

    Raises what opening these raises, CheckpointError where a configuration alone does not do, and
    UnsupportedModelError for a drafter or a folder of ONNX graphs.
    """
    config = model / "config.json" if model.is_dir() else model
    if model.is_dir() and config.is_file() and "clover_edge" in read_json(config):
        folder = read_folder(model)
        if folder.graphs:
            raise UnsupportedModelError(f"{model}: ONNX graphs; plan the packed folder they are of")
        found = _packed(folder)
    elif config.suffix == ".json" and (model.is_file() or not _has_weights(model)):
        found = _from_configuration(config, recipe)
    else:
        with Checkpoint(model) as checkpoint:
            found = _planned(model.stem, plan_export(checkpoint, recipe))
    if found.spec.get("drafts_for_layers"):
        raise UnsupportedModelError(f"{model}: a drafter is planned with its model, not by itself")
    return found


def describe_shape(name: str, recipe: str) -> Described:
    """One of the shapes of benches/synthetic.py; "full" is Clover-35B-A3B's."""
    with header_only(SHAPES[name].config()) as checkpoint:
        return _planned(f"shape {name}", plan_export(checkpoint, recipe))


def _has_weights(folder: Path) -> bool:
    return holds_weights(folder) or any(folder.glob("*.gguf"))


def _packed(folder: PackedFolder) -> Described:
    return Described(
        folder.path.name,
        folder.recipe,
        folder.spec,
        folder.generation,
        folder.entries,
        folder.sizes,
        folder,
    )


def _planned(name: str, plan: Plan) -> Described:
    return Described(
        name,
        plan.recipe,
        plan.model.spec,
        plan.model.generation,
        {item.name: item.entry for item in plan.tensors},
        {item.name: item.blob.nbytes for item in plan.tensors},
    )


def _from_configuration(path: Path, recipe: str) -> Described:
    whole = read_json(path)
    kind = whole.get("model_type")
    if kind != CLOVER:
        reason = f"{kind!r} needs its weights' headers: only {CLOVER!r} is planned without"
        raise CheckpointError(str(path), "model_type", reason)
    try:
        with header_only(whole, path) as checkpoint:
            return _planned(path.parent.name or path.stem, plan_export(checkpoint, recipe))
    except KeyError as error:
        raise CheckpointError(str(path), str(error.args[0]), "is missing") from None
