"""Bytes and operations of a pass, counted from what a model consists of."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from clover_edge.loader import PARTS
from clover_edge.tuning.planner import FREE, Limit

from .experts import Routing, limited
from .models import Described

KV_BYTES = {"f32": (4, 0), "f16": (2, 0), "int8": (1, 4)}  # of an element; of a head beside them
_DELTA_OPERATIONS = 7  # of an element of S and a row: decay, S^T k, S += k d^T, S^T q


@dataclass(frozen=True)
class Work:
    """Of one pass. `experts`: different ones of a layer; `weights`, `state`: bytes read;
    `operations`: a multiply-add is two."""

    rows: int
    experts: float
    weights: float
    state: float
    operations: float

    @property
    def nbytes(self) -> float:
        return self.weights + self.state


@dataclass
class Counts:
    """What the passes of a model read and compute behind `context` tokens, by `routing`.

    Of weights: every tensor once a pass, but the embedding by row, and of the experts those that
    are chosen. Of the state: keys and values that a row sees, and recurrent states.
    """

    model: Described
    routing: Routing
    context: int
    kv: str = "f32"
    dense: float = field(default=0.0, init=False)  # bytes of what every pass reads
    dense_operations: float = field(default=0.0, init=False)  # of a row
    expert: float = field(default=0.0, init=False)  # bytes of one expert of every layer
    expert_operations: float = field(default=0.0, init=False)  # of a row
    soft: float = field(default=0.0, init=False)  # bytes of self-conditioned previews alone

    def __post_init__(self) -> None:
        for name, entry in self.model.entries.items():
            if entry["scheme"] == "experts":
                parts = [entry["parts"][part] for part in PARTS]
                self.expert += sum(part["bytes"] for part in parts)
                self.expert_operations += self.spec["top_k"] * sum(map(_operations, parts))
            elif name.startswith("self_conditioning."):
                self.soft += self.model.sizes[name]
            elif name not in ("embed", "head"):
                self.dense += self.model.sizes[name]
                self.dense_operations += _operations(entry)

    @property
    def spec(self) -> Mapping[str, Any]:
        return self.model.spec

    @property
    def whole_text(self) -> bool:
        """Full attention: a pass computes the text in front, too, and there is no state."""
        return bool(self.spec.get("mask") == "full")

    def work(self, committed: int, previewed: int, *, head: float = 0, limit: Limit = FREE) -> Work:
        """A pass that commits some rows and previews others, `head` rows of which get logits.

        With `limit` all of its experts are restricted; the mean of a fraction of rows is allowed.
        """
        rows = committed + previewed + (self.context if self.whole_text else 0)
        experts = limited(self.routing, rows, limit, self.spec.get("top_k", 0))
        embedding = self.model.sizes["embed"] / self.spec["vocab_size"]
        weights = self.dense + experts * self.expert + rows * embedding
        operations = rows * (self.dense_operations + self.expert_operations)
        operations += committed * self._mixing(committed, preview=False)
        operations += (rows - committed) * self._mixing(rows, preview=True)
        if previewed:
            weights += self.soft
        if head:
            weights += self.head_bytes
            operations += head * self.head_operations
        return Work(rows, experts, weights, self.state_read(), operations)

    @property
    def head_bytes(self) -> int:
        """Of a model whose embedding is its head, the embedding's."""
        return self.model.sizes["embed" if self.spec.get("tie_embeddings") else "head"]

    @property
    def head_operations(self) -> float:
        return 2 * float(self.spec["vocab_size"] * self.spec["hidden_size"])

    def _mixing(self, rows: int, *, preview: bool) -> float:
        """Operations of a row among `rows` in attention and the DeltaNet layers, products apart."""
        total = 0.0
        for heads, _, width, window in _attention(self.spec):
            behind = 0 if self.whole_text else self.context
            seen = behind + (rows if preview else (rows + 1) / 2)
            total += 4 * heads * width * min(seen, window or math.inf)
        layers = _delta_layers(self.spec)
        if layers:
            heads, k, v = (self.spec[f"delta_{name}"] for name in ("v_heads", "k_dim", "v_dim"))
            recurrent = self.spec.get("delta_preview", "operator") != "operator"
            if preview and not recurrent:
                total += layers * heads * (2 * k * v + 2 * rows * (k + v))
            else:
                total += layers * heads * _DELTA_OPERATIONS * k * v
        return total

    def state_read(self) -> float:
        """Bytes: keys and values behind a pass, as far as windows reach, and recurrent states."""
        if self.whole_text:
            return 0.0
        total = _delta_layers(self.spec) * 4.0 * _delta_floats(self.spec)
        for _, kv_heads, width, window in _attention(self.spec):
            total += min(self.context, window or math.inf) * self._kv(kv_heads, width)
        return total

    def state_bytes(self) -> int:
        """What a state of `context` tokens takes, as `_core.Model.needs` counts it."""
        spec = self.spec
        kept = (2 if spec.get("mask") == "block" else 1) * spec["hidden_size"]
        total: int = 4 * (_delta_layers(spec) * _delta_floats(spec) + kept)
        for _, kv_heads, width, _ in _attention(spec):
            total += self.context * self._kv(kv_heads, width)
        return total

    def _kv(self, heads: int, width: int) -> int:
        """Bytes of a token's keys and values in a layer."""
        element, beside = KV_BYTES[self.kv]
        return 2 * heads * (element * width + beside)


def _operations(entry: Mapping[str, Any]) -> float:
    """Of a row and a matrix; vectors cost next to nothing."""
    shape = entry["shape"]
    return 2.0 * math.prod(shape) if len(shape) == 2 else 0.0


def _attention(spec: Mapping[str, Any]) -> list[tuple[int, int, int, int]]:
    """Heads, key/value heads, their width and window (0: none) of each attention layer."""
    count = spec["num_layers"]
    kinds = spec.get("layer_types") or ["attention"] * count

    def by_layer(name: str, usual: int) -> list[int]:
        return list(spec.get(name) or [usual] * count)

    kv_heads = by_layer("kv_heads", spec.get("num_kv_heads", 0))
    widths, windows = by_layer("head_dims", spec.get("head_dim", 0)), by_layer("windows", 0)
    return [
        (spec["num_heads"], kv_heads[i], widths[i], windows[i])
        for i in range(count)
        if kinds[i] == "attention"
    ]


def _delta_layers(spec: Mapping[str, Any]) -> int:
    return sum(kind == "deltanet" for kind in spec.get("layer_types") or ())


def _delta_floats(spec: Mapping[str, Any]) -> int:
    """Of a layer's S and convolution ring."""
    if not _delta_layers(spec):
        return 0
    keys, values = spec["delta_k_heads"], spec["delta_v_heads"]
    k, v = spec["delta_k_dim"], spec["delta_v_dim"]
    return int(values * k * v + (spec["conv_taps"] - 1) * (2 * keys * k + values * v))
