"""Block-diffusion families against `transformers` on the same tiny weights (golden file)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from core_checks import generated
from golden_checks import AGAIN, Golden, need_judge
from golden_files import maker_of
from oracle.blocks import BlockTransformer, generate_blocks

from clover_edge import _core

MAKER = maker_of("blocks")
IDS, ROWS = MAKER.token_ids(), list(MAKER.ROWS)
PROMPT = IDS[: MAKER.PROMPT]


@pytest.fixture(scope="module")
def golden() -> Golden:
    return Golden("blocks")


def source(make: Callable[..., Any], case: str) -> Any:
    return make(MAKER.CASES[case][0], **MAKER.arguments(case))


def core_options(case: str, config: dict[str, Any]) -> dict[str, Any]:
    """Those of ``BlockOptions`` in the core's words."""
    o = MAKER.options_of(case, config)
    asked = {
        "max_new_tokens": o.max_new_tokens,
        "threshold": o.threshold,
        "steps": o.steps,
        "fixed_schedule": True,
        "max_post_steps": o.max_post_steps,
        "sub_block": o.sub_block,
    }
    return asked if o.edit_threshold is None else asked | {"edit_threshold": o.edit_threshold}


@pytest.mark.parametrize("case", MAKER.CASES)
def test_oracle_is_transformers(golden: Golden, tiny_blocks: Callable[..., Any], case: str) -> None:
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
    tiny_blocks: Callable[..., Any],
    pack: Callable[..., Path],
    open_core: Callable[..., Any],
    case: str,
    isa: str,
) -> None:
    """Logits of a whole text, and a whole generation: every id, every accepted position."""
    checkpoint = source(tiny_blocks, case)
    core = open_core(pack(checkpoint, "f32"), isa=isa)
    whole = core.commit(core.new_state(len(IDS)), IDS, logits="all")
    golden.assert_logits(case, whole[ROWS])
    state = core.new_state(len(PROMPT) + 3 * 16)
    found, steps = generated(core, state, PROMPT, core_options(case, checkpoint.config))
    golden.assert_text(case, found["ids"], steps)
    assert found["counters"]["denoise_steps"] == len(steps)


def test_generations_are_no_trifles(golden: Golden) -> None:
    """Several tokens at once and one by one, edits behind the last mask, and varied texts."""
    for case in MAKER.CASES:
        changed = golden.steps(case)
        assert len(set(golden.ids(case))) > 4, case
        if case not in ("a2d", "fast_dllm"):
            assert len({len(step) for step in changed}) > 1, case
    edited = golden.steps("llada2, editing")
    assert [] in edited and sum(map(len, edited)) > len(golden["llada2, editing: ids"])


def _with(**keys: Any) -> Callable[[BlockTransformer], BlockTransformer]:
    return lambda model: BlockTransformer(model.w, {**model.config, **keys})


def _without(part: str) -> Callable[[BlockTransformer], BlockTransformer]:
    def change(model: BlockTransformer) -> BlockTransformer:
        weights = {name: value * (part not in name) for name, value in model.w.items()}
        return BlockTransformer(weights, model.config)

    return change


WRONG = {
    ("llada2", "bias of the router"): _without("expert_bias"),
    ("llada2", "groups"): _with(topk_group=4),
    ("llada2", "scale of the experts"): _with(routed_scaling_factor=1.0),
    ("llada2", "weights that sum to one"): _with(norm_topk_prob=False),
    ("llada2", "partial rotation"): _with(partial_rotary_factor=1.0),
    ("llada2", "shared expert"): _without("shared_expert"),
    ("llada2", "width of a block"): _with(block_size=4),
    ("sdar", "width of a block"): _with(block_size=8),
    ("sdar", "causal"): _with(block_size=1),
    ("fast_dllm", "bias of q"): _without("q_proj.bias"),
    ("fast_dllm", "width of a block"): _with(bd_size=8),
}


@pytest.mark.parametrize(("case", "what"), WRONG)
def test_golden_tells_models_apart(
    golden: Golden, tiny_blocks: Callable[..., Any], case: str, what: str
) -> None:
    """Each detail that is easily got wrong moves the logits by far more than the tolerance."""
    wrong = WRONG[case, what](source(tiny_blocks, case).oracle())
    golden.assert_told_apart(case, wrong.logits(IDS)[ROWS])


@pytest.mark.parametrize("case", MAKER.CASES)
def test_golden_can_be_made_again(golden: Golden, case: str) -> None:
    """With the `judge` extra: today's transformers still says the same."""
    need_judge()
    judge = MAKER.transformers_judge(*MAKER.tensors_of(case))
    golden.assert_logits(case, judge(IDS, 0)[ROWS], AGAIN)
