"""Commit mode against `transformers`' Qwen3.5-MoE on the same tiny weights (golden file)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from golden_checks import AGAIN, TOLERANCE, Golden, need_judge
from golden_files import checksum, maker_of
from oracle.clover import Clover
from oracle.compare import relative_error

from clover_edge import _core


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    return maker_of("qwen35_moe")


@pytest.fixture(scope="module")
def golden() -> Golden:
    return Golden("qwen35_moe_commit")


@pytest.fixture(scope="module")
def weights(maker: ModuleType, golden: Golden) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    assert json.loads(str(golden["maker"])) == maker.MAKER, "the golden file is of other weights"
    tensors, config = maker.weights()
    assert checksum(tensors) == str(golden["checksum"]), "the maker draws other weights now"
    return tensors, config


def test_oracle_commit_is_qwen35_moe(
    weights: tuple[dict[str, np.ndarray], dict[str, Any]], golden: Golden
) -> None:
    model = Clover(*weights)
    logits, _ = model.commit(model.start(), golden["ids"])
    assert relative_error(logits, golden["logits"]) < TOLERANCE
    closed, _ = model.commit(model.start(), golden["ids"], closed=True)
    assert relative_error(closed, golden["logits"]) < TOLERANCE


@pytest.mark.parametrize("isa", _core.available_isas())
def test_core_commit_is_qwen35_moe(
    maker: ModuleType,
    golden: Golden,
    tiny: Callable[..., Any],
    pack: Callable[..., Path],
    open_core: Callable[..., Any],
    isa: str,
) -> None:
    core = open_core(pack(tiny(**maker.MAKER), "f32"), isa=isa)
    ids = golden["ids"].tolist()
    whole = core.commit(core.new_state(len(ids)), ids, logits="all")
    assert relative_error(whole, golden["logits"]) < TOLERANCE
    state, rows = core.new_state(len(ids)), []
    for cut in (ids[:31], ids[31:32], ids[32:64], ids[64:]):
        rows.append(core.commit(state, cut, logits="all"))
    assert relative_error(np.concatenate(rows), golden["logits"]) < TOLERANCE


def test_golden_tells_models_apart(
    weights: tuple[dict[str, np.ndarray], dict[str, Any]], golden: Golden
) -> None:
    """Each detail that is easily got wrong moves the logits by far more than the tolerance."""
    tensors, config = weights
    swapped = dict(tensors)
    for name, value in tensors.items():
        if name.endswith("q_proj.weight"):  # all queries, then all gates: the wrong order
            heads = value.reshape(config["num_attention_heads"], 2, -1, value.shape[1])
            swapped[name] = heads.transpose(1, 0, 2, 3).reshape(value.shape)
    wrong = {
        "norm offset": Clover(tensors, config, norm_offset=0.0),
        "gate order": Clover(swapped, config),
        "rotary part": Clover(tensors, config).with_flags(partial_rotary_factor=0.5),
        "rotary base": Clover(tensors, config).with_flags(rope_theta=1e4),
        "shared expert": Clover(tensors, config).with_flags(shared_expert_intermediate_size=0),
        "top-k weights": Clover(tensors, config).with_flags(norm_topk_prob=False),
    }
    for what, model in wrong.items():
        logits, _ = model.commit(model.start(), golden["ids"])
        assert relative_error(logits, golden["logits"]) > 10 * TOLERANCE, what


def test_golden_can_be_made_again(
    maker: ModuleType,
    weights: tuple[dict[str, np.ndarray], dict[str, Any]],
    golden: Golden,
) -> None:
    """With the `judge` extra: today's transformers still says the same, cached or not."""
    need_judge()
    for logits in maker.transformers_logits(*weights, golden["ids"]):
        assert relative_error(logits, golden["logits"]) < AGAIN
