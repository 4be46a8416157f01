"""Ministral-3's equations with a last block that sees itself as a whole, in float64 numpy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from oracle.equations import Array
from oracle.hybrid_blocks import last_block_mask
from oracle.transformer import Transformer


class Nemotron(Transformer):
    """Whole texts only: nothing is kept between two calls."""

    start_of_block = 0

    def logits(self, ids: Sequence[int], start: int) -> Array:
        """Of a text whose rows from ``start`` on are a preview's: [n, V]."""
        self.start_of_block = start
        return self.commit(self.start(), ids)[0]

    def visible(self, n: int, p: int) -> NDArray[np.bool_]:
        assert p == 0
        return last_block_mask(n, self.start_of_block)

    def _heads(self, name: str, x: Array, positions: Array | None) -> Array:
        y = super()._heads(name, x, positions)
        if positions is None or not name.endswith("q"):
            return y
        rope = self.config["rope_parameters"]
        turns = np.floor(positions / rope["original_max_position_embeddings"])
        factor: Array = 1 + rope.get("llama_4_scaling_beta", 0.0) * np.log(1 + turns)
        return y * factor[:, None, None]
