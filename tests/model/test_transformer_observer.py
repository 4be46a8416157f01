"""What an observer sees of plain transformers: biases included, dense layers among sparse ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

IDS = [5, 9, 200, 31]


@pytest.mark.parametrize(
    ("family", "options"),
    [("qwen3", {"attention_bias": True}), ("qwen3_moe", {"mlp_only_layers": [1]})],
)
def test_halves_add_up(
    tiny_transformer: Callable[..., Any],
    pack: Callable[..., Path],
    open_core: Callable[..., Any],
    family: str,
    options: dict[str, Any],
) -> None:
    checkpoint = tiny_transformer(family, seed=2, **options)
    core = open_core(pack(checkpoint, "f32"), threads=2)
    seen: list[tuple[int, str, dict[str, np.ndarray]]] = []
    core.observe(lambda *event: seen.append(event))
    core.commit(core.new_state(8), IDS)
    assert len(seen) == 6
    for i in range(5):
        one, following = seen[i][2], seen[i + 1][2]
        total = one["residual"] + one["output"]
        np.testing.assert_allclose(following["residual"], total, rtol=1e-6, atol=1e-6)
    for layer, half, arrays in seen:
        if half != "feed_forward":
            continue
        dense = f"layers.{layer}.mlp.down_proj.weight"
        assert ("dense_hidden" in arrays) == (dense in checkpoint.tensors)
        assert ("expert_ids" in arrays) == (dense not in checkpoint.tensors)
        if "dense_hidden" in arrays:
            want = arrays["dense_hidden"] @ checkpoint.tensors[dense].T
            np.testing.assert_allclose(arrays["output"], want, rtol=1e-4, atol=1e-5)
