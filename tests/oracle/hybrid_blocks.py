"""The hybrid trunk as conversions to block diffusion use it: attention layers under a block mask,
DeltaNet causal over clean and noisy rows alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from oracle.blocks import block_mask
from oracle.clover import Clover, Config, Linear, linear
from oracle.equations import Array


class HybridBlocks(Clover):
    """Whole texts only: nothing is kept between two calls.

    ``causal_prefix``: rows in front of the last block see nothing behind themselves.
    """

    def __init__(
        self,
        weights: Mapping[str, ArrayLike],
        config: Config | Mapping[str, Any],
        *,
        linear: Linear = linear,
        causal_prefix: bool = False,
    ) -> None:
        super().__init__(weights, config, linear=linear)
        self.causal_prefix = causal_prefix
        self.origin = 0

    def logits(self, ids: Sequence[int], origin: int = 0) -> Array:
        """Of a whole text: [n, V]. ``origin``: where blocks count from, or the last one starts."""
        self.origin = origin
        return self.commit(self.start(), ids)[0]

    def visible(self, n: int, p: int, preview: bool) -> NDArray[np.bool_]:
        assert p == 0 and not preview
        if self.causal_prefix:
            return last_block_mask(n, self.origin)
        return block_mask(n, self.config.block_size, self.origin)


def last_block_mask(n: int, start: int) -> NDArray[np.bool_]:
    """[n, n]: causal, but rows from ``start`` on see each other."""
    visible = np.tri(n, dtype=bool)
    visible[start:] = True
    return visible
