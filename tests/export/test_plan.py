"""The plan of the real model's geometry, made from its headers alone."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import pytest
from tiny_clover import RELEASE_WIDTHS, tensor_shapes, tiny_config

from clover_edge.export.families import clover
from clover_edge.export.plan import SHARD_BYTES, PlannedExperts, make_plan
from clover_edge.export.recipe_file import find_recipe
from clover_edge.export.report import plan_dict, plan_table
from clover_edge.export.sources import TensorInfo


class Headers:
    """Clover-35B-A3B as far as a plan looks: configuration, names, shapes."""

    path, config_path = Path("clover"), Path("clover/config.json")

    def __init__(self) -> None:
        self.config = tiny_config(
            hidden=2048, layers=40, experts=256, top_k=8, vocab=248320, overrides=RELEASE_WIDTHS
        )
        self.tensors = {
            name if name == "lm_head.weight" else f"model.{name}": TensorInfo(
                "BF16", shape, self.path, 2 * prod(shape)
            )
            for name, shape in tensor_shapes(self.config).items()
        }

    def optional_json(self, name: str) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize(
    ("recipe", "gigabytes", "record"),
    [
        ("int4", 20.80, 1769472),
        ("int4-all", 19.59, 1769472),
        ("int4-small", 14.56, 1277952),
        ("codebook4", 20.80, 1769472),
        ("codebook4-all", 19.59, 1769472),
        ("int8", 36.91, 3342336),
    ],
)
def test_sizes_of_the_real_model(recipe: str, gigabytes: float, record: int) -> None:
    model = clover.read(Headers())  # type: ignore[arg-type]
    plan = make_plan(model, find_recipe(recipe), 32, 69_322_701_696, SHARD_BYTES)
    assert plan.parameters == 34_661_350_848
    assert plan.tensor_bytes / 1e9 == pytest.approx(gigabytes, abs=0.005)
    assert plan.tensor_bytes < plan.file_bytes < plan.tensor_bytes + 1_000_000
    assert {t.record_bytes for t in plan.tensors if isinstance(t, PlannedExperts)} == {record}
    assert all(layout.nbytes <= SHARD_BYTES + 1_000_000 for layout in plan.files)
    assert sum(row["bytes"] for row in plan_dict(plan)["classes"].values()) == plan.tensor_bytes
    assert f"{plan.tensor_bytes:,}" in plan_table(plan)
