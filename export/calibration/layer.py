"""One layer of a checkpoint, run by the core on hidden states that are at hand.

The layer becomes a packed folder of its own, its weights in floats. Its "vocabulary" are the hidden
states: token t of this little model has row t of them as its embedding, so that the core needs no
other entrance.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...quant.recipes import CLASSES, EMBED, FLOAT, Recipe
from ..checkpoint import Checkpoint
from ..coding import Coding
from ..families import ExpertStack, Model, Piece, Tensor
from ..plan import SHARD_BYTES, make_plan
from ..weights import write_weights
from .passages import Passage

Floats = NDArray[np.float32]
_HIDDEN = "hidden states"  # no checkpoint has a tensor of this name
_COMMIT_ROWS = 128  # a longer commit would be several passes


class LayerRun:
    """What a layer read and wrote: arrays by name, the commits' rows first, then the previews'."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.arrays: dict[str, NDArray[Any]] = {}
        self.place = slice(0, 0)

    def observe(self, layer: int, half: str, arrays: dict[str, NDArray[Any]]) -> None:
        for name, values in arrays.items():
            key = f"{half}.{name}"
            if key not in self.arrays:
                self.arrays[key] = np.empty((self.rows, *values.shape[1:]), values.dtype)
            self.arrays[key][self.place] = values

    @property
    def output(self) -> Floats:
        """Hidden states behind the layer."""
        out: Floats = self.arrays["feed_forward.residual"] + self.arrays["feed_forward.output"]
        return out


def run_layer(
    source: Checkpoint,
    model: Model,
    spec: Mapping[str, Any],
    number: int,
    passages: list[Passage],
    hidden: Floats,
    *,
    threads: int = 0,
) -> LayerRun:
    """Layer ``number`` on ``hidden``: row t is the t-th token of all passages, and row T + t, for
    models with previews, the same token as a preview sees it.

    A passage is walked block by block: a preview of the block, then its commit. With full attention
    it is seen as a whole, as it is and masked.
    """
    from ...loader import open_core, read_folder

    with TemporaryDirectory(prefix="clover-export-") as name:
        folder = Path(name)
        _write_layer(source.with_tensor(_HIDDEN, hidden), model, spec, number, folder)
        core = open_core(read_folder(folder), threads=threads)
        run = LayerRun(len(hidden))
        core.observe(run.observe)
        try:
            _walk(core, spec, passages, run)
        finally:
            core.observe(None)
    return run


def _walk(core: Any, spec: Mapping[str, Any], passages: list[Passage], run: LayerRun) -> None:
    previews = spec.get("preview", True)
    width = spec["block_size"] if previews else _COMMIT_ROWS
    tokens, first = sum(map(len, passages)), 0
    for passage in passages:
        state = core.new_state(len(passage) + width)
        if spec.get("mask") == "full":
            for start in (first, tokens + first):
                run.place = slice(start, start + len(passage))
                core.preview(state, np.arange(start, start + len(passage)), rows=[])
            first += len(passage)
            continue
        for at in range(0, len(passage), width):
            rows = np.arange(first + at, first + min(at + width, len(passage)))
            if previews:
                run.place = slice(tokens + rows[0], tokens + rows[-1] + 1)
                core.preview(state, tokens + rows, rows=[])
            for part in np.split(rows, range(_COMMIT_ROWS, len(rows), _COMMIT_ROWS)):
                run.place = slice(part[0], part[-1] + 1)
                core.commit(state, part, logits="none")
        first += len(passage)


def _write_layer(
    source: Checkpoint, model: Model, spec: Mapping[str, Any], number: int, folder: Path
) -> None:
    rows, width = source.tensors[_HIDDEN].shape
    prefix = f"layers.{number}."
    tensors: list[Tensor | ExpertStack] = [
        Tensor("embed", EMBED, (rows, width), (Piece(_HIDDEN, 0, rows),))
    ]
    for item in model.tensors:
        if item.name.startswith(prefix):
            tensors.append(replace(item, name="layers.0." + item.name.removeprefix(prefix)))
        elif item.name == "final_norm":
            tensors.append(item)
    bf16 = all(source.row_dtype(name) == np.uint16 for name in _matrices(tensors))
    wide = "bf16" if bf16 else "f32"
    classes = dict.fromkeys(CLASSES, wide) | {EMBED: "f32", FLOAT: "f32"}
    alone = Model(model.family, _spec(spec, number, rows), {}, tensors)
    plan = make_plan(alone, Recipe("layer", classes), None, 0, SHARD_BYTES)
    write_weights(source, plan, Coding(), folder)
    ours = {
        "format_version": 1,
        "family": plan.model.family,
        "recipe": plan.recipe,
        "group_size": plan.group_size,
        "spec": alone.spec,
        "generation": {},
        "tensors": {item.name: item.entry for item in plan.tensors},
    }
    (folder / "config.json").write_text(json.dumps({"clover_edge": ours}))


_BY_LAYER = ("layer_types", "ffn_types", "windows")


def _spec(spec: Mapping[str, Any], number: int, rows: int) -> dict[str, Any]:
    """The model of one layer. Its mask id is the last row, which commits have no use for."""
    alone = {
        **spec,
        "num_layers": 1,
        "vocab_size": rows,
        "valid_vocab": rows,
        "tie_embeddings": True,
        "embed_scale": 1.0,  # rows are hidden states
    }
    alone |= {name: [spec[name][number]] for name in _BY_LAYER if name in spec}
    if spec.get("preview", True):
        alone["mask_token_id"] = rows - 1
    return alone


def _matrices(tensors: list[Tensor | ExpertStack]) -> Iterator[str]:
    """Checkpoint names of what is stored as matrices."""
    for item in tensors:
        if isinstance(item, ExpertStack):
            yield from (piece.source for part in item.parts.values() for piece in part.pieces)
        elif item.kind not in (EMBED, FLOAT):
            yield from (piece.source for piece in item.pieces)
