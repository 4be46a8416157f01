"""Hybrid trunks converted to block diffusion: attention sees its block, DeltaNet is causal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import packer
from core_checks import assert_activations_as_defined, core_judge, generated, previewed_logits
from golden_checks import AGAIN, Golden, need_judge
from golden_files import maker_of
from oracle.blocks import generate_blocks
from oracle.compare import relative_error, rounded_activations
from oracle.hybrid_blocks import HybridBlocks
from oracle.packed import read_packed
from tiny_core import committed, same_from_now
from tiny_hybrid import make_hybrid

from clover_edge import _core
from clover_edge.errors import UnsupportedModelError

ISAS = _core.available_isas()
MAKER = maker_of("hybrid_blocks")
ROWS = list(MAKER.ROWS)
IDS = MAKER.token_ids()
PROMPT = IDS[: MAKER.PROMPT]
LAST = MAKER.LENGTH - MAKER.WIDTH
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def golden() -> Golden:
    return Golden("hybrid_blocks")


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Packs a case by a recipe, once."""

    def write(folder: Path, case: str, **other: Any) -> None:
        make_hybrid(folder, MAKER.CASES[case][0], **{**MAKER.arguments(case), **other})

    def check(case: str, plan: Any) -> None:
        assert plan.model.family == "a2d"

    return packer(tmp_path_factory, write, check)


@pytest.fixture(scope="module")
def core(packed: Callable[..., Path], open_core: Open) -> Open:
    def make(case: str, recipe: str = "f32", **options: Any) -> Any:
        causal = MAKER.CASES[case][2].get("causal", False)
        return open_core(packed(case, recipe), spec={"mask": "causal"} if causal else {}, **options)

    return make


def oracle_of(case: str, golden: Golden | None = None) -> HybridBlocks:
    tensors, config = MAKER.tensors_of(case)
    if golden is not None:
        golden.assert_drawn(case, tensors)
    causal = MAKER.CASES[case][2].get("causal", False)
    return HybridBlocks(tensors, config, causal_prefix=causal)


def options_of(case: str) -> Any:
    return MAKER.options_of(case, MAKER.tensors_of(case)[1])


@pytest.mark.parametrize("case", MAKER.CASES)
def test_oracle_is_transformers(golden: Golden, case: str) -> None:
    model = oracle_of(case, golden)
    golden.assert_logits(case, model.logits(IDS, LAST)[ROWS])
    text = generate_blocks(model.logits, PROMPT, options_of(case))
    golden.assert_text(case, text.ids, text.changed)


def last_block(core: Any, state: Any) -> np.ndarray:
    """Logits of all of IDS: its last block as a preview."""
    before = core.commit(state, IDS[:LAST], logits="all")
    found: np.ndarray = np.concatenate([before, core.preview(state, IDS[LAST:])])
    return found


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("case", MAKER.CASES)
def test_core_is_transformers(golden: Golden, core: Open, case: str, isa: str) -> None:
    """Logits of a text and its last block, and a whole generation: ids and accepted positions."""
    model = core(case, isa=isa)
    golden.assert_logits(case, last_block(model, model.new_state(len(IDS)))[ROWS])
    if "causal" not in case:  # then a commit sees what a preview does
        whole = model.commit(model.new_state(len(IDS)), IDS, logits="all")[ROWS]
        golden.assert_logits(case, whole)
    asked = {"max_new_tokens": 3 * MAKER.WIDTH, "threshold": MAKER.CASES[case][2]["threshold"]}
    result, steps = generated(model, model.new_state(64), PROMPT, asked)
    golden.assert_text(case, result["ids"], steps)
    assert result["counters"]["commits"] == 1  # the others share a preview's pass
    apart = model.generate(model.new_state(64), PROMPT, {**asked, "fused_commit": False})
    assert apart["ids"] == result["ids"]
    assert apart["counters"]["commits"] == 3  # a preview leaves no recurrent state behind


def test_generations_are_no_trifles(golden: Golden) -> None:
    texts = [golden.ids(case) for case in MAKER.CASES]
    assert all(len(set(text)) > 8 for text in texts)
    assert len({tuple(text) for text in texts}) == len(texts)
    for case in ("a2d_qwen3_5", "a2d_qwen3_5_moe", "causal commits"):
        assert len(set(map(len, golden.steps(case)))) > 1


def test_golden_tells_models_apart(golden: Golden) -> None:
    """Who sees whom: each way to get it wrong moves the logits by far more than the tolerance."""
    right = oracle_of("a2d_qwen3_5", golden)
    for wrong, origin in (
        (HybridBlocks(right.w, right.config), LAST + 1),  # where blocks are counted from
        (HybridBlocks(right.w, replace(right.config, block_size=16)), LAST),
        (HybridBlocks(right.w, right.config, causal_prefix=True), LAST),  # commits
        (HybridBlocks(right.w, right.config, causal_prefix=True), len(IDS)),  # all
    ):
        golden.assert_told_apart("a2d_qwen3_5", wrong.logits(IDS, origin)[ROWS])
    assert relative_error(golden["causal commits: logits"], golden["a2d_qwen3_5: logits"]) > 0.01


@pytest.mark.parametrize("case", ["a2d_qwen3_5", "causal commits"])
def test_previews_leave_the_state(core: Open, case: str) -> None:
    model = core(case)
    state, twin = committed(model, PROMPT), committed(model, PROMPT)
    noisy = [*IDS[:3], *[MAKER.tensors_of(case)[1]["mask_token_id"]] * 5]
    first = model.preview(state, noisy)
    model.preview(state, IDS[:8])
    assert np.array_equal(model.preview(state, noisy), first)
    same_from_now(model, state, twin, IDS[:3])


@pytest.mark.parametrize("cuts", [[3], [8, 16], [1, 2, 9, 10, 11, 31], list(range(1, 45))])
def test_splits_change_no_bit(
    packed: Callable[..., Path], open_core: Open, cuts: list[int]
) -> None:
    """Blocks from position 0: the recurrent state waits in front of a block that is left open."""
    model = open_core(packed("a2d_qwen3_5", "f32"), spec={"block_origin": "absolute"})
    pieces = [list(piece) for piece in np.split(np.array(IDS[:45]), cuts)]
    whole, split = committed(model, IDS[:45]), committed(model, *pieces)
    oracle = oracle_of("a2d_qwen3_5")
    rest = [*IDS[:3]]
    want = oracle.logits([*IDS[:45], *rest])[-3:]
    assert relative_error(model.preview(split, rest), want) < 1e-4
    same_from_now(model, whole, split, IDS[:3])


def test_a_long_text(packed: Callable[..., Path], open_core: Open) -> None:
    """Longer than a pass of a commit, and ending within a block."""
    ids = np.random.default_rng(2).integers(0, 250, 163).tolist()
    model = open_core(packed("a2d_qwen3_5", "f32"), spec={"block_origin": "absolute"})
    oracle = oracle_of("a2d_qwen3_5")
    state = model.new_state(200)
    assert relative_error(model.commit(state, ids, logits="all"), oracle.logits(ids)) < 1e-4
    found = model.commit(state, [7, 8], logits="all")
    assert relative_error(found, oracle.logits([*ids, 7, 8])[-2:]) < 1e-4


@pytest.mark.parametrize("cut", [0, 19, 21])
def test_a_second_turn(packed: Callable[..., Path], open_core: Open, cut: int) -> None:
    """A snapshot within an open block, restored, goes on as the state itself."""
    model = open_core(packed("a2d_qwen3_5", "f32"), spec={"block_origin": "absolute"})
    state = model.new_state(64)
    if cut:
        model.commit(state, IDS[:cut], logits="none")
    kept = state.snapshot()
    asked = {"max_new_tokens": 13, "threshold": 0.2}
    first = model.generate(state, IDS[cut:25], asked)["ids"]
    again = model.new_state(64)
    again.restore(kept)
    assert model.generate(again, IDS[cut:25], asked)["ids"] == first
    same_from_now(model, state, again, IDS[:3])
    state.truncate(0)
    assert model.generate(state, IDS[:25], asked)["ids"] == first


def test_rollback(core: Open) -> None:
    """Refused where a block's rows see what follows; as ever where commits are causal."""
    blocks, causal = core("a2d_qwen3_5"), core("causal commits")
    with pytest.raises(UnsupportedModelError, match="rollback"):
        blocks.commit(blocks.new_state(64), PROMPT, rollback=True)
    state = committed(causal, PROMPT)
    causal.commit(state, IDS[:9], rollback=True, logits="none")
    causal.preview(state, IDS[:8])
    state.truncate(len(PROMPT) + 4)
    same_from_now(causal, state, committed(causal, PROMPT, IDS[:4]), IDS[:3])


@pytest.mark.parametrize("form", ["sequential", "closed"])
@pytest.mark.parametrize("recipe", ["f32", "int4"])
def test_threads_change_no_bit(core: Open, recipe: str, form: str) -> None:
    found = []
    for threads in (1, 2):
        model = core("a2d_qwen3_5_moe", recipe, threads=threads, delta_form=form)
        found.append(last_block(model, model.new_state(64)))
    assert np.array_equal(*found)


@pytest.mark.parametrize("recipe", ["int8", "int4"])
@pytest.mark.parametrize("case", ["a2d_qwen3_5", "a2d_qwen3_5_moe"])
def test_int8_activations_as_defined(
    packed: Callable[..., Path], open_core: Open, case: str, recipe: str
) -> None:
    """Two layers, one of each kind."""
    kinds = ["linear_attention", "full_attention"]
    folder = packed(case, recipe, num_hidden_layers=2, layer_types=kinds)
    tensors, config = read_packed(folder)
    model = HybridBlocks(tensors, config, linear=rounded_activations())
    assert_activations_as_defined(open_core, folder, model.logits, logits=previewed_logits)


@pytest.mark.parametrize("recipe", ["int8", "int4"])
@pytest.mark.parametrize("case", MAKER.CASES)
def test_quantised_generation(core: Open, case: str, recipe: str) -> None:
    """The plain loop over the core itself: what is kept between passes changes nothing."""
    model, o = core(case, recipe), options_of(case)

    want = generate_blocks(core_judge(model, o.width, 320, causal=o.causal), PROMPT, o)
    asked = {"max_new_tokens": o.max_new_tokens, "threshold": o.threshold}
    found = model.generate(model.new_state(64), PROMPT, asked)
    assert want.margin > 1e-7 and found["ids"] == want.ids


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"delta_preview": "both"}, 'delta_preview "both".*operator and causal'),
        ({"delta_preview": "operator"}, 'mask "block".*delta_preview "operator"'),
        ({"preview": False}, 'mask "block".*autoregressive'),
    ],
)
def test_refused_specs(
    packed: Callable[..., Path], open_core: Open, spec: dict[str, Any], said: str
) -> None:
    with pytest.raises(UnsupportedModelError, match=said):
        open_core(packed("a2d_qwen3_5", "f32"), spec=spec)


@pytest.mark.parametrize("case", MAKER.CASES)
def test_golden_can_be_made_again(golden: Golden, case: str) -> None:
    """With the `judge` extra: today's transformers still says the same."""
    need_judge()
    causal = MAKER.CASES[case][2].get("causal", False)
    judge = MAKER.transformers_judge(*MAKER.tensors_of(case), causal)
    golden.assert_logits(case, judge(IDS, LAST)[ROWS], AGAIN)
