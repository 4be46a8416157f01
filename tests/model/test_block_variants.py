"""Further trunks under a block mask, and every way to choose among masked positions, against
`transformers` and a plain loop over it (golden file)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from core_checks import assert_refused, core_judge, generated
from golden_checks import AGAIN, Golden, need_judge
from golden_files import maker_of
from oracle.blocks import BlockTransformer, generate_blocks

from clover_edge import _core
from clover_edge.errors import ArgumentError

MAKER, BLOCKS = maker_of("block_variants"), maker_of("blocks")
IDS, ROWS = BLOCKS.token_ids(), list(BLOCKS.ROWS)
PROMPT = IDS[: BLOCKS.PROMPT]
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def golden() -> Golden:
    return Golden("block_variants")


def source(make: Open, case: str) -> Any:
    return make(MAKER.CASES[case][0], **MAKER.arguments(case))


def core_options(case: str, config: dict[str, Any]) -> dict[str, Any]:
    """Those of ``BlockOptions`` in the core's words."""
    o = MAKER.options_of(case, config)
    names = ("max_new_tokens", "threshold", "steps", "strategy", "factor", "entropy_bound")
    return {**{name: getattr(o, name) for name in names}, "fixed_schedule": True}


@pytest.mark.parametrize("case", MAKER.CASES)
def test_oracle_is_transformers(golden: Golden, tiny_blocks: Open, case: str) -> None:
    checkpoint = source(tiny_blocks, case)
    golden.assert_drawn(case, checkpoint.tensors)
    model: BlockTransformer = checkpoint.oracle()
    golden.assert_logits(case, model.logits(IDS)[ROWS])
    text = generate_blocks(model.logits, PROMPT, MAKER.options_of(case, checkpoint.config))
    golden.assert_text(case, text.ids, text.changed)


@pytest.mark.parametrize("isa", _core.available_isas())
@pytest.mark.parametrize("case", MAKER.CASES)
def test_core_is_transformers(
    golden: Golden,
    tiny_blocks: Open,
    pack: Callable[..., Path],
    open_core: Open,
    case: str,
    isa: str,
) -> None:
    """Logits of a whole text, and a whole generation: every id, every accepted position."""
    checkpoint = source(tiny_blocks, case)
    core = open_core(pack(checkpoint, "f32"), isa=isa)
    whole = core.commit(core.new_state(len(IDS)), IDS, logits="all")  # 48: of whole blocks
    golden.assert_logits(case, whole[ROWS])
    asked = core_options(case, checkpoint.config)
    found, steps = generated(core, core.new_state(64), PROMPT, asked)
    golden.assert_text(case, found["ids"], steps)


@pytest.mark.parametrize("case", ["sequential", "static", "entropy", "factor"])
def test_the_strategy_decides(golden: Golden, tiny_blocks: Open, case: str) -> None:
    """By threshold alone the accepted positions are others."""
    checkpoint = source(tiny_blocks, case)
    o = MAKER.options_of(case, checkpoint.config)
    usual = replace(o, strategy="low_confidence_dynamic", factor=0.0, threshold=0.5)
    text = generate_blocks(checkpoint.oracle().logits, PROMPT, usual)
    assert text.changed != golden.steps(case)


@pytest.mark.parametrize("recipe", ["int8", "int4"])
@pytest.mark.parametrize(
    "asked",
    [
        {"strategy": "sequential", "steps": 3},
        {"strategy": "low_confidence_static", "steps": 3},
        {"strategy": "entropy_bounded", "entropy_bound": 2.0},
        {"factor": 1.5},
    ],
)
def test_quantised_generation(
    tiny_blocks: Open, pack: Open, open_core: Open, recipe: str, asked: dict[str, Any]
) -> None:
    """The plain loop over the core itself; sub-blocks and threads change nothing of the rule."""
    checkpoint = tiny_blocks("sdar", seed=3, block_size=8)
    core = open_core(pack(checkpoint, recipe), threads=2)
    o = replace(MAKER.options_of("static", checkpoint.config), strategy="low_confidence_dynamic")
    o = replace(o, **{"steps": 0, **asked})

    want = generate_blocks(core_judge(core, o.width, checkpoint.config["vocab_size"]), PROMPT, o)
    options = {"max_new_tokens": o.max_new_tokens, "fixed_schedule": True, **asked}
    assert want.margin > 1e-7
    assert core.generate(core.new_state(64), PROMPT, options)["ids"] == want.ids


@pytest.mark.parametrize(
    ("entropy", "bound", "least", "want"),
    [
        ([0.5, 0.1, 0.3], 0.0, 1, [0, 1, 0]),
        ([0.5, 0.1, 0.3], 0.1, 1, [0, 1, 1]),  # what is in front of the last counts, itself not
        ([0.5, 0.1, 0.3], 0.4, 1, [1, 1, 1]),
        ([0.5, 0.1, 0.3], 0.0, 2, [0, 1, 1]),
        ([0.2, 0.2, 0.2], 0.0, 1, [1, 0, 0]),
        ([0.0, 0.0, 0.2], 0.0, 1, [1, 1, 1]),
        ([], 0.0, 1, []),
    ],
)
def test_accept_by_entropy(entropy: list[float], bound: float, least: int, want: list[int]) -> None:
    found = _core.decoding.accept_by_entropy(entropy, entropy_bound=bound, least=least)
    assert found == [bool(x) for x in want]


@pytest.mark.parametrize(
    ("asked", "what"),
    [
        ({"strategy": "random"}, 'strategy" "random" is none of .*"sequential"'),
        ({"factor": -1.0}, "factor"),
        ({"entropy_bound": float("nan")}, "entropy_bound"),
        ({"strategy": "sequential", "factor": 1.0}, "factor is not supported"),
        ({"strategy": "sequential", "edit_threshold": 0.5}, "edit_threshold"),
        ({"factor": 1.0, "edit_threshold": 0.5}, "edit_threshold"),
    ],
)
def test_refused_options(
    tiny_blocks: Open, pack: Open, open_core: Open, asked: dict[str, Any], what: str
) -> None:
    core = open_core(pack(tiny_blocks("sdar", seed=3), "f32"))
    assert_refused(core, PROMPT, asked, ArgumentError, what)


@pytest.mark.parametrize("case", MAKER.CASES)
def test_golden_can_be_made_again(golden: Golden, case: str) -> None:
    """With the `judge` extra: today's transformers still says the same."""
    need_judge()
    judge = BLOCKS.transformers_judge(*MAKER.tensors_of(case))
    golden.assert_logits(case, judge(IDS, 0)[ROWS], AGAIN)
