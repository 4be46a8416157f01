"""Calibration, matrix by matrix, in the order in which an export asks for it.

Layers are run one after the other, each on the hidden states that the one before it left, with the
checkpoint's own weights; what a layer's products read is kept until the next layer is asked for.
Memory: one layer, mapped, and one layer's activations.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...quant import Calibration
from ..checkpoint import Checkpoint
from ..families import Model, Tensor
from .layer import LayerRun, run_layer
from .passages import Passage

Floats = NDArray[np.float32]

# What a layer's matrices read, by the end of their names: arrays of Model.observe.
_READS = {
    "attn.in": "mixer.input",
    "delta.in": "mixer.input",
    "attn.out": "mixer.mixed",
    "delta.out": "mixer.mixed",
    "shared.gate_up": "feed_forward.input",
    "shared.down": "feed_forward.shared_hidden",
    "dense.gate_up": "feed_forward.input",
    "dense.down": "feed_forward.dense_hidden",
}
_PRIOR = 16  # an expert's moments are joined by this many rows like the average of its layer


class Calibrator:
    """Calls give the moments of what a matrix reads; None where no activation was seen."""

    def __init__(
        self,
        source: Checkpoint,
        model: Model,
        spec: Mapping[str, Any],
        passages: list[Passage],
        *,
        hessians: bool,
        threads: int = 0,
    ) -> None:
        """``hessians``: second moments [K, K], else mean squares [K]."""
        self._source, self._model, self._spec = source, model, spec
        self._passages, self._hessians, self._threads = passages, hessians, threads
        self._layer = -1
        self._run: LayerRun | None = None
        self._hidden = self._embeddings()
        self._latest = lru_cache(maxsize=2)(self._moments)
        self._averages = lru_cache(maxsize=2)(self._average)

    def __call__(self, name: str, expert: int | None) -> Calibration | None:
        """``name`` as in the packed folder; layers in ascending order, the head last."""
        if name == "head":
            self._advance(self._spec["num_layers"])
            return self._calibration(self._normalised())
        found = re.fullmatch(r"layers\.(\d+)\.(.+)", name)
        if not found:
            return None
        layer, matrix = int(found[1]), found[2]
        if matrix in _READS or matrix.startswith("experts."):
            self._advance(layer)
            # gate and up read the same rows
            return self._latest(layer, "experts.gate" if matrix == "experts.up" else matrix, expert)
        return None

    def _embeddings(self) -> Floats:
        """Hidden states in front of the first layer: commits, then previews."""
        ids = np.concatenate([passage.ids for passage in self._passages])
        if self._spec.get("preview", True):
            masked = np.concatenate([passage.masked for passage in self._passages])
            seen = np.where(masked, np.int32(self._spec["mask_token_id"]), ids)
            ids = np.concatenate([ids, seen])
        (table,) = (item for item in self._model.tensors if item.name == "embed")
        assert isinstance(table, Tensor)
        (piece,) = table.pieces
        unique, place = np.unique(ids, return_inverse=True)
        rows: Floats = np.empty((len(unique), table.shape[-1]), np.float32)
        for row, token in enumerate(unique.tolist()):
            self._source.read_rows(piece.source, piece.start + token, rows[row : row + 1])
        rows *= np.float32(self._spec.get("embed_scale", 1.0))
        return rows[place]

    def _advance(self, layer: int) -> None:
        """Runs layers until ``layer`` has been run, or all of them."""
        while self._layer < layer:
            if self._run is not None:
                self._hidden = self._run.output
                self._run = None
            self._layer += 1
            if self._layer < self._spec["num_layers"]:
                self._run = run_layer(
                    self._source,
                    self._model,
                    self._spec,
                    self._layer,
                    self._passages,
                    self._hidden,
                    threads=self._threads,
                )

    def _normalised(self) -> Floats:
        """What the head reads."""
        (norm,) = (item for item in self._model.tensors if item.name == "final_norm")
        assert isinstance(norm, Tensor)
        weight = self._source.read(norm.pieces[0].source) + self._spec["norm_offset"]
        mean = np.square(self._hidden).mean(axis=1, keepdims=True)
        out: Floats = self._hidden / np.sqrt(mean + self._spec["rms_eps"]) * weight
        return out.astype(np.float32)

    def _moments(self, layer: int, matrix: str, expert: int | None) -> Calibration | None:
        assert self._run is not None
        arrays = self._run.arrays
        if expert is None:
            return self._calibration(arrays[_READS[matrix]])
        chosen = arrays["feed_forward.expert_ids"] == expert
        rows, ranks = np.nonzero(chosen)
        if not len(rows):
            return None
        # A row's error reaches the output by its router weight.
        weights = arrays["feed_forward.expert_weights"][rows, ranks][:, None]
        if matrix == "experts.down":
            x = arrays["feed_forward.expert_hidden"][rows, ranks]
        else:
            x = arrays["feed_forward.input"][rows]
        prior = np.float32(_PRIOR) * self._averages(layer, matrix)
        return Calibration((self._sums(x * weights) + prior) / np.float32(len(rows) + _PRIOR))

    def _average(self, layer: int, matrix: str) -> Floats:
        """Moments of an expert's row, over all experts of the layer."""
        assert self._run is not None
        arrays = self._run.arrays
        weights = arrays["feed_forward.expert_weights"]
        if matrix == "experts.down":
            hidden = arrays["feed_forward.expert_hidden"] * weights[:, :, None]
            x = hidden.reshape(-1, hidden.shape[-1])
        else:
            x = arrays["feed_forward.input"] * np.sqrt(np.square(weights).sum(axis=1))[:, None]
        out: Floats = self._sums(x) / np.float32(weights.size)
        return out

    def _calibration(self, x: Floats) -> Calibration:
        return Calibration(self._sums(x) / np.float32(len(x)))

    def _sums(self, x: Floats) -> Floats:
        out: Floats = x.T @ x if self._hessians else np.einsum("tk,tk->k", x, x)
        return out
