"""Comparing the core with the oracle: error measure, states, rounded activations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from oracle.clover import Linear, State
from oracle.equations import Array

# Matrices that every recipe keeps in float, and whose products read float activations.
FLOAT_MATRICES = (
    "mlp.gate.weight",
    "mlp.shared_expert_gate.weight",
    "router.proj.weight",
    "linear_attn.in_proj_a.weight",
    "linear_attn.in_proj_b.weight",
)


def relative_error(found: ArrayLike, reference: ArrayLike) -> float:
    """max|Δ| / max|reference|, what "relative error" means in this project."""
    found, reference = np.asarray(found, float), np.asarray(reference, float)
    assert found.shape == reference.shape, (found.shape, reference.shape)
    return float(np.abs(found - reference).max() / np.abs(reference).max())


def state_arrays(state: State) -> dict[str, Array]:
    """The oracle's state under the names of ``_core.State.arrays()``."""
    out = {
        f"layers.{i}.{name}": value
        for i, layer in enumerate(state.layers)
        for name, value in vars(layer).items()
    }
    if state.logits is not None:
        out["logits"] = state.logits
    return out


def state_error(found: Mapping[str, Any], state: State) -> float:
    """The largest relative error over the arrays of a state; the names must be the same."""
    reference = state_arrays(state)
    assert set(found) == set(reference)
    return max(relative_error(found[name], value) for name, value in reference.items())


def rounded_activations() -> Linear:
    """Products as the int8-activation kernels define them: each row's blocks rounded to int8.

    The scale is max|x|/127 per row and block, codes are rounded to the nearest even. A block has
    128 columns, or 64 or 32 where those alone divide the row.
    """

    def product(name: str, x: Array, w: Array) -> Array:
        if name.endswith(FLOAT_MATRICES):
            return x @ w.T
        g = next(g for g in (128, 64, 32) if x.shape[1] % g == 0)
        parts = x.astype(np.float32).reshape(len(x), -1, g)
        scale = np.abs(parts).max(axis=-1, keepdims=True) / np.float32(127)
        codes = np.rint(parts / np.where(scale > 0, scale, 1))
        rounded: Array = (codes.astype(float) * scale).reshape(x.shape)
        return rounded @ w.T

    return product
