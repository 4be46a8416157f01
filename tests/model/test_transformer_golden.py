"""Plain transformers against `transformers` on the same tiny weights (golden file)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden_checks import AGAIN, Golden, need_judge
from golden_files import maker_of
from oracle.transformer import Transformer
from torch_models import logits_of

from clover_edge import _core

MAKER = maker_of("transformers")
ROWS = list(MAKER.ROWS)


@pytest.fixture(scope="module")
def golden() -> Golden:
    return Golden("transformers")


def oracle_of(case: str, golden: Golden) -> Transformer:
    tensors, config = MAKER.weights(case)
    golden.assert_drawn(case, tensors)
    return Transformer(tensors, config)


def oracle_logits(model: Transformer) -> np.ndarray:
    return model.commit(model.start(), MAKER.token_ids())[0][ROWS]


@pytest.mark.parametrize("case", MAKER.CASES)
def test_oracle_is_transformers(golden: Golden, case: str) -> None:
    golden.assert_logits(case, oracle_logits(oracle_of(case, golden)))


@pytest.mark.parametrize("isa", _core.available_isas())
@pytest.mark.parametrize("case", MAKER.CASES)
def test_core_is_transformers(
    golden: Golden,
    tiny_transformer: Callable[..., Any],
    pack: Callable[..., Path],
    open_core: Callable[..., Any],
    case: str,
    isa: str,
) -> None:
    family, options = MAKER.options(case)
    core = open_core(pack(tiny_transformer(family, **options), "f32"), isa=isa)
    ids = MAKER.token_ids()
    whole = core.commit(core.new_state(len(ids)), ids, logits="all")
    golden.assert_logits(case, whole[ROWS])
    state = core.new_state(len(ids))
    pieces = [core.commit(state, cut, logits="all") for cut in np.split(ids, [1, 2, 19])]
    golden.assert_logits(case, np.concatenate(pieces)[ROWS])


def _without(part: str) -> Callable[[Transformer], Transformer]:
    """Every tensor whose name holds ``part`` set to nothing."""

    def change(model: Transformer) -> Transformer:
        weights = {name: value * (part not in name) for name, value in model.w.items()}
        return Transformer(weights, model.config)

    return change


def _with(**keys: Any) -> Callable[[Transformer], Transformer]:
    return lambda model: model.with_keys(**keys)


def _plain_norms(model: Transformer) -> Transformer:
    heads = ("q_norm.weight", "k_norm.weight")
    return Transformer(
        {name: value for name, value in model.w.items() if not name.endswith(heads)}, model.config
    )


WRONG = {
    ("llama", "stretching"): _with(rope_scaling=None),
    ("llama", "blend"): _with(rope_scaling={**MAKER.LLAMA3, "low_freq_factor": 3.9}),
    ("llama", "rotary base"): _with(rope_theta=1e4),
    ("llama, biases, tied", "bias of k"): _without("k_proj.bias"),
    ("llama, biases, tied", "bias of o"): _without("o_proj.bias"),
    ("llama, biases, tied", "stretching"): _with(rope_scaling=None),
    ("qwen2", "bias of q"): _without("q_proj.bias"),
    ("qwen2", "bias of v"): _without("v_proj.bias"),
    ("qwen2", "ramp"): _with(rope_scaling={**MAKER.YARN, "beta_slow": 0.2}),
    ("qwen2", "attention factor"): _with(rope_scaling={**MAKER.YARN, "attention_factor": 1.0}),
    ("qwen3", "norms of q and k"): _plain_norms,
    ("qwen3_moe", "top-k weights"): _with(norm_topk_prob=False),
    ("qwen3_moe, plain weights", "top-k weights"): _with(norm_topk_prob=True),
}


@pytest.mark.parametrize(("case", "what"), WRONG)
def test_golden_tells_models_apart(golden: Golden, case: str, what: str) -> None:
    """Each detail that is easily got wrong moves the logits by far more than the tolerance."""
    wrong = WRONG[case, what](oracle_of(case, golden))
    golden.assert_told_apart(case, oracle_logits(wrong))


@pytest.mark.parametrize("case", MAKER.CASES)
def test_golden_can_be_made_again(golden: Golden, case: str) -> None:
    """With the `judge` extra: today's transformers still says the same."""
    need_judge()
    found = logits_of(MAKER.official(case), MAKER.token_ids())[ROWS]
    golden.assert_logits(case, found, AGAIN)
