"""Sequences through one model, or through two side by side: what their passes say.

A sequence is walked once: its context is committed; then each block is previewed with some of its
positions masked, and committed, whose logits predict the block's tokens one by one. With full
attention no row is without sight of what it should predict: commits compute nothing there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..corpus import Sequence
from .metrics import (
    Floats,
    Integers,
    LayerTally,
    Masks,
    Tally,
    Vocabulary,
    score_rows,
    shared_experts,
)

if TYPE_CHECKING:
    from .._core import Model as CoreModel
    from .._core import State
    from ..model import Model

COMMIT_ROWS = 64  # at once: bounds the logits and what is recorded of the layers


@dataclass
class Record:
    """What the halves of each layer added in a pass, and which experts its rows took."""

    outputs: dict[tuple[int, str], list[Floats]] = field(default_factory=dict)
    experts: dict[int, list[Integers]] = field(default_factory=dict)

    def __call__(self, layer: int, half: str, arrays: dict[str, Any]) -> None:
        self.outputs.setdefault((layer, half), []).append(arrays["output"])
        ids = arrays.get("expert_ids")
        if ids is not None and ids.size:  # a dense layer chooses none
            self.experts.setdefault(layer, []).append(ids)


class Passes:
    """Sums over all sequences added: `commit` and `preview`, and the same two by layer.

    `width`: positions of a block; None: the model has no previews. `commits`: whether commits
    predict anything. `layers`: whether the two models' layers can be compared, one to one.
    """

    def __init__(
        self,
        model: Model,
        reference: Model | None = None,
        *,
        width: int | None,
        layers: bool,
        commits: bool = True,
        coreset: int | None = None,
        masks: int = 1,
        seed: int = 0,
    ) -> None:
        spec = model.spec
        self._cores = [model.core] if reference is None else [model.core, reference.core]
        self._vocabulary = Vocabulary(spec["valid_vocab"], spec.get("mask_token_id"))
        self.width, self.masks, self.commits = width, masks, commits
        self._coreset, self._draw = coreset, Masks(seed).draw
        self.commit, self.preview = Tally(), Tally()
        count = spec["num_layers"] if layers else 0
        self.commit_layers = [LayerTally() for _ in range(count if commits else 0)]
        self.preview_layers = [LayerTally() for _ in range(count)] if width else []
        self.blocks = 0

    def add(self, sequence: Sequence) -> None:
        """Walks a sequence; raises what the core raises."""
        ids, start = sequence.ids, sequence.start
        states = [core.new_state(len(ids)) for core in self._cores]
        last: list[Floats] = []
        if not self.commits:
            return self._walk_canvas(states, ids[:start], ids[start:])
        for piece in _pieces(ids[:start], COMMIT_ROWS):
            last = self._commit(states, piece, "last")
        for block in _pieces(ids[start:], self.width or COMMIT_ROWS):
            if self.width:
                self._preview(states, block)
            every = self._commit(states, block, "all")
            # The row in front of a token predicts it.
            rows = [np.concatenate([a, b[:-1]]) for a, b in zip(last, every, strict=True)]
            self.commit.add(score_rows(self._vocabulary, block, *rows))
            last = [logits[-1:] for logits in every]

    def _walk_canvas(self, states: list[State], context: list[int], rest: list[int]) -> None:
        assert self.width is not None
        for piece in (context, *_pieces(rest, self.width)):
            if piece is not context:
                self._preview(states, piece)
            for core, state in zip(self._cores, states, strict=True):
                core.commit(state, piece, logits="none")

    def _commit(
        self, states: list[State], ids: list[int], logits: Literal["last", "all"]
    ) -> list[Floats]:
        with self._compared(self.commit_layers) as records:
            out = []
            for core, state, record in zip(self._cores, states, records, strict=True):
                with _observed(core, record):
                    out.append(core.commit(state, ids, logits=logits))
        return out

    def _preview(self, states: list[State], block: list[int]) -> None:
        self.blocks += 1
        for _ in range(self.masks):
            masked, weight = self._draw(len(block))
            noisy = np.array(block)
            noisy[masked] = self._vocabulary.mask
            with self._compared(self.preview_layers) as records:
                rows = []
                for core, state, record in zip(self._cores, states, records, strict=True):
                    with _observed(core, record):
                        rows.append(core.preview(state, noisy, rows=masked, coreset=self._coreset))
            targets = [block[row] for row in masked]
            self.preview.add(score_rows(self._vocabulary, targets, *rows), weight)

    @contextmanager
    def _compared(self, layers: list[LayerTally]) -> Iterator[list[Record | None]]:
        """A record for each model, compared at the end; nothing is recorded without `layers`."""
        if not layers:
            yield [None] * len(self._cores)
            return
        found, reference = Record(), Record()
        yield [found, reference]
        for i, layer in enumerate(layers):
            for half, tally in (("mixer", layer.mixer), ("feed_forward", layer.feed_forward)):
                tally.add(
                    np.concatenate(reference.outputs[i, half]),
                    np.concatenate(found.outputs[i, half]),
                )
            if i in found.experts and i in reference.experts:
                ids = np.concatenate(found.experts[i])
                layer.shared += shared_experts(ids, np.concatenate(reference.experts[i]))
                layer.chosen += ids.size


@contextmanager
def _observed(core: CoreModel, record: Record | None) -> Iterator[None]:
    if record is None:
        yield
        return
    core.observe(record)
    try:
        yield
    finally:
        core.observe(None)


def _pieces(ids: list[int], size: int) -> Iterator[list[int]]:
    for start in range(0, len(ids), size):
        yield ids[start : start + size]
