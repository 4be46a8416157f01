"""Families with full attention against `transformers` on the same tiny weights (golden file)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from core_checks import generated
from golden_checks import AGAIN, Golden, need_judge
from golden_files import maker_of
from oracle.full_attention import CanvasOptions, FullTransformer, generate_canvas

from clover_edge import _core

MAKER = maker_of("full_attention")
IDS, ROWS = MAKER.token_ids(), list(MAKER.ROWS)
PROMPT = IDS[: MAKER.PROMPT]


@pytest.fixture(scope="module")
def golden() -> Golden:
    return Golden("full_attention")


def source(make: Callable[..., Any], case: str) -> Any:
    return make(MAKER.CASES[case][0], **MAKER.arguments(case))


def core_options(o: CanvasOptions) -> dict[str, Any]:
    """Those of ``CanvasOptions`` in the core's words."""
    same = ("max_new_tokens", "cache", "threshold", "steps", "factor", "eps", "confidence")
    more = ("confidence_temperature", "seed", "stop_penalty")
    return {
        **{name: getattr(o, name) for name in (*same, *more)},
        "block_length": o.width,
        "fixed_schedule": True,
        "stop_ids": list(o.stop_ids),
    }


@pytest.mark.parametrize("case", MAKER.CASES)
def test_oracle_is_transformers(
    golden: Golden, tiny_full_attention: Callable[..., Any], case: str
) -> None:
    checkpoint = source(tiny_full_attention, case)
    golden.assert_drawn(case, checkpoint.tensors)
    model: FullTransformer = checkpoint.oracle()
    golden.assert_logits(case, model.logits(IDS)[ROWS])
    text = generate_canvas(model.part, PROMPT, MAKER.options_of(case, checkpoint.config))
    golden.assert_text(case, text.ids, text.changed)


@pytest.mark.parametrize("isa", _core.available_isas())
@pytest.mark.parametrize("case", MAKER.CASES)
def test_core_is_transformers(
    golden: Golden,
    tiny_full_attention: Callable[..., Any],
    pack: Callable[..., Path],
    open_core: Callable[..., Any],
    case: str,
    isa: str,
) -> None:
    """Logits of a whole text, and a whole generation: every id, every accepted position."""
    checkpoint = source(tiny_full_attention, case)
    core = open_core(pack(checkpoint, "f32"), isa=isa)
    whole = core.commit(core.new_state(len(IDS)), IDS, logits="all")
    golden.assert_logits(case, whole[ROWS])
    state = core.new_state(len(PROMPT) + MAKER.NEW)
    options = core_options(MAKER.options_of(case, checkpoint.config))
    found, steps = generated(core, state, PROMPT, options)
    golden.assert_text(case, found["ids"], steps)
    assert found["counters"]["denoise_steps"] == len(steps)
    assert found["counters"]["rows"] == len(steps) * (len(PROMPT) + MAKER.NEW)


def test_generations_are_no_trifles(golden: Golden) -> None:
    """Several tokens at once and one by one, and varied texts."""
    for case in MAKER.CASES:
        changed = golden.steps(case)
        assert len(set(golden.ids(case))) > 4, case
        if "random" not in case:
            assert len({len(step) for step in changed}) > 1, case


def test_rules_differ(tiny_full_attention: Callable[..., Any]) -> None:
    """On the same weights each rule accepts other positions."""
    case = "dream, entropy"
    checkpoint = source(tiny_full_attention, case)
    model, o = checkpoint.oracle(), MAKER.options_of(case, checkpoint.config)
    ways = [replace(o, confidence=name) for name in ("probability", "margin", "entropy", "random")]
    ways.append(replace(o, confidence_temperature=0.5))
    found = [str(generate_canvas(model.part, PROMPT, way).changed) for way in ways]
    assert len(set(found)) == len(ways)


def _with(**keys: Any) -> Callable[[FullTransformer], FullTransformer]:
    return lambda model: FullTransformer(model.w, {**model.config, **keys})


def _without(part: str, value: float = 0.0) -> Callable[[FullTransformer], FullTransformer]:
    """The tensors of that name have a value that does nothing."""

    def change(model: FullTransformer) -> FullTransformer:
        weights = {n: w if part not in n else w * 0 + value for n, w in model.w.items()}
        return FullTransformer(weights, model.config)

    return change


class Causal(FullTransformer):
    def visible(self, n: int, p: int) -> Any:
        return np.tri(n, p, dtype=bool)


WRONG = {
    ("dream, entropy", "causal"): lambda model: Causal(model.w, model.config),
    ("dream, entropy", "bias of q"): _without("q_proj.bias"),
    ("llada, schedule", "causal"): lambda model: Causal(model.w, model.config),
    ("llada, schedule", "rotary base"): _with(rope_theta=500_000.0),
    ("llada_moe, threshold", "weights that sum to one"): _with(norm_topk_prob=True),
    ("llada_moe, threshold", "norms of q"): _without("q_norm", 1.0),
    ("llada_moe, threshold", "number of experts"): _with(num_experts_per_tok=3),
}


@pytest.mark.parametrize(("case", "what"), WRONG)
def test_golden_tells_models_apart(
    golden: Golden, tiny_full_attention: Callable[..., Any], case: str, what: str
) -> None:
    """Each detail that is easily got wrong moves the logits by far more than the tolerance."""
    wrong = WRONG[case, what](source(tiny_full_attention, case).oracle())
    golden.assert_told_apart(case, wrong.logits(IDS)[ROWS])


@pytest.mark.parametrize("case", ["dream, entropy", "llada, schedule"])
def test_golden_tells_shifts_apart(
    golden: Golden, tiny_full_attention: Callable[..., Any], case: str
) -> None:
    checkpoint = source(tiny_full_attention, case)
    o = MAKER.options_of(case, checkpoint.config)
    wrong = generate_canvas(checkpoint.oracle().part, PROMPT, replace(o, shift=1 - o.shift))
    assert wrong.ids != golden.ids(case)


@pytest.mark.parametrize("case", MAKER.CASES)
def test_golden_can_be_made_again(golden: Golden, case: str) -> None:
    """With the `judge` extra: today's transformers still says the same."""
    need_judge()
    golden.assert_logits(case, MAKER.make_case(case)[0].logits(IDS)[ROWS], AGAIN)
