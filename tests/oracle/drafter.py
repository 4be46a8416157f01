"""A DFlash drafter in float64 numpy, and what it reads of its target.

The context is c = norm(fc . [outputs of the target's layers]), row by row. In every layer queries
come from the block's rows, keys and values from context and block alike, through the same
projections; every row of the block sees all of it. The target lends embedding and head.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from oracle.clover import Clover, Linear, linear
from oracle.equations import Array, attend
from oracle.transformer import Transformer


def layer_outputs(target: Clover | Transformer, ids: ArrayLike, layers: Sequence[int]) -> Array:
    """[n, layers * H]: the residual stream behind layers, counted from 0, of a commit of ids [n].

    It is what the first norm of the next layer, or the last norm, is given.
    """
    given: dict[str, Array] = {}

    class Tapped(type(target)):  # type: ignore[misc]
        def _norm(self, x: Array, name: str) -> Array:
            given[name] = x
            found: Array = super()._norm(x, name)
            return found

    tapped = Tapped(target.w, target.config, linear=target.linear)
    tapped.commit(tapped.start(), ids)
    names = [f"layers.{layer + 1}.input_layernorm.weight" for layer in layers]
    return np.concatenate([given.get(name, given["norm.weight"]) for name in names], axis=1)


class Drafter(Transformer):
    """Weights by checkpoint name; ``embed``, ``head`` [V, H] are the target's."""

    def __init__(
        self,
        weights: Mapping[str, ArrayLike],
        config: Mapping[str, Any],
        embed: ArrayLike,
        head: ArrayLike,
        *,
        linear: Linear = linear,
    ) -> None:
        super().__init__(weights, config, linear=linear)
        self._embed, self._head = np.asarray(embed, float), np.asarray(head, float)

    def logits(self, outputs: Array, block: ArrayLike) -> Array:
        """[B, V] of a block of ids [B] behind a context of target outputs [n, layers * H]."""
        context = self._norm(self._project("fc.weight", outputs), "hidden_norm.weight")
        x = self._embed[np.asarray(block, dtype=int)]
        for i in range(self.config["num_hidden_layers"]):
            layer = f"layers.{i}."
            y = self._norm(x, layer + "input_layernorm.weight")
            x = x + self._cross_attention(layer + "self_attn.", context, y)
            y = self._norm(x, layer + "post_attention_layernorm.weight")
            x = x + self._swiglu(layer + "mlp.", y)
        return self.linear("lm_head.weight", self._norm(x, "norm.weight"), self._head)

    def keys_and_values(self, outputs: Array, layer: int) -> tuple[Array, Array]:
        """Those of the context in one layer, [n, nkv, hd]."""
        context = self._norm(self._project("fc.weight", outputs), "hidden_norm.weight")
        name, at = f"layers.{layer}.self_attn.", np.arange(len(context), dtype=float)
        return self._heads(name + "k", context, at), self._heads(name + "v", context, None)

    def _cross_attention(self, name: str, context: Array, y: Array) -> Array:
        n, rows = len(context), len(y)
        at = np.arange(n + rows, dtype=float)
        both = np.concatenate([context, y])
        q = self._heads(name + "q", y, at[n:])
        k, v = self._heads(name + "k", both, at), self._heads(name + "v", both, None)
        o = attend(q, k, v, np.ones((rows, n + rows), dtype=bool))
        return self._project(name + "o_proj.weight", o.reshape(rows, -1))
