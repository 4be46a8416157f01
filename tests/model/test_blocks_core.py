"""The compiled core under a block mask: splits, open blocks, schemes, what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from core_checks import assert_activations_as_defined, assert_refused, core_judge, second_turn
from oracle.blocks import BlockOptions, BlockTransformer, generate_blocks
from oracle.compare import relative_error, rounded_activations
from oracle.packed import read_packed
from tiny_blocks import FAMILIES, special_ids
from tiny_core import committed, same_from_now

from clover_edge.errors import ArgumentError, ModelFormatError, UnsupportedModelError

IDS = np.random.default_rng(6).integers(0, 250, 45).tolist()
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def core(tiny_blocks: Open, pack: Open, open_core: Open) -> Open:
    def make(family: str, recipe: str = "f32", **options: Any) -> Any:
        return open_core(pack(tiny_blocks(family, seed=3), recipe), **options)

    return make


@pytest.mark.parametrize("family", ["llada2", "sdar", "fast_dllm"])
@pytest.mark.parametrize("cuts", [[3], [4, 8], [1, 2, 9, 10, 11, 31], list(range(1, 45))])
def test_splits_change_no_bit(core: Open, family: str, cuts: list[int]) -> None:
    """A block that a commit leaves open is computed anew with what follows."""
    model = core(family)
    pieces = [list(piece) for piece in np.split(np.array(IDS), cuts)]
    same_from_now(model, committed(model, IDS), committed(model, *pieces), IDS[:3])


@pytest.mark.parametrize("family", ["llada2", "sdar"])
def test_a_long_text(tiny_blocks: Open, core: Open, family: str) -> None:
    """Longer than a pass of a commit; logits of every row, and only of the new ones."""
    ids = np.random.default_rng(2).integers(0, 250, 163).tolist()
    model, oracle = core(family), tiny_blocks(family, seed=3).oracle()
    state = model.new_state(200)
    found = model.commit(state, ids, logits="all")
    assert relative_error(found, oracle.logits(ids)) < 1e-4
    found = model.commit(state, [7, 8], logits="all")
    assert found.shape[0] == 2
    assert relative_error(found, oracle.logits([*ids, 7, 8])[-2:]) < 1e-4


def test_blocks_wider_than_a_chunk(tiny_blocks: Open, pack: Open, open_core: Open) -> None:
    """A pass of a commit then has one whole block."""
    checkpoint = tiny_blocks("sdar", seed=3, block_size=150)
    ids = np.random.default_rng(2).integers(0, 250, 310).tolist()
    model = open_core(pack(checkpoint, "f32"))
    found = model.commit(model.new_state(310), ids, logits="all")
    assert relative_error(found, checkpoint.oracle().logits(ids)) < 1e-4


@pytest.mark.parametrize("length", [21, 24])
def test_blocks_from_the_end_of_the_prompt(tiny_blocks: Open, core: Open, length: int) -> None:
    model, oracle = core("a2d"), tiny_blocks("a2d", seed=3).oracle()
    found = model.commit(model.new_state(64), IDS[:length], logits="all")
    assert relative_error(found, oracle.logits(IDS[:length], length % 8)) < 1e-4


@pytest.mark.parametrize("family", FAMILIES)
def test_previews(tiny_blocks: Open, core: Open, family: str) -> None:
    """Of the rest of an open block, or of the next one; the state stays as it is."""
    config = tiny_blocks(family, seed=3).config
    width, mask = config.get("bd_size") or config["block_size"], config["mask_token_id"]
    model, oracle = core(family), tiny_blocks(family, seed=3).oracle()
    for length in (32, 35):
        text = IDS[:length]
        open_rows = 0 if family.startswith("a2d") else length % width
        block = [mask] * (width - open_rows)
        state, twin = committed(model, text), committed(model, text)
        found = model.preview(state, block)
        want = oracle.logits([*text, *block], length if family.startswith("a2d") else 0)
        assert relative_error(found, want[length:]) < 1e-4
        assert np.array_equal(model.preview(state, block, rows=[0]), found[:1])
        same_from_now(model, state, twin, IDS[:3])


@pytest.mark.parametrize("recipe", ["f32", "int4"])
@pytest.mark.parametrize("family", FAMILIES)
def test_threads_change_no_bit(core: Open, family: str, recipe: str) -> None:
    one, two = core(family, recipe, threads=1), core(family, recipe, threads=2)
    found = [m.commit(m.new_state(45), IDS, logits="all") for m in (one, two)]
    assert np.array_equal(*found)


@pytest.mark.parametrize("recipe", ["int8", "int4", "int4-all", "int4-small"])
@pytest.mark.parametrize("family", ["llada2", "sdar_moe", "fast_dllm"])
def test_int8_activations_as_defined(
    tiny_blocks: Open, pack: Open, open_core: Open, family: str, recipe: str
) -> None:
    folder = pack(tiny_blocks(family, seed=4, hidden=128, layers=2), recipe)
    model = BlockTransformer(*read_packed(folder), linear=rounded_activations())
    assert_activations_as_defined(open_core, folder, model.logits)


def options(checkpoint: Any, **asked: Any) -> BlockOptions:
    config, ids = checkpoint.config, special_ids(checkpoint.config)
    return BlockOptions(
        mask=config["mask_token_id"],
        valid_vocab=max(ids.values()) + 1,
        width=config.get("bd_size") or config["block_size"],
        **asked,
    )


@pytest.mark.parametrize("recipe", ["int8", "int4"])
@pytest.mark.parametrize("family", FAMILIES)
def test_quantised_generation(
    tiny_blocks: Open, pack: Open, open_core: Open, family: str, recipe: str
) -> None:
    """The plain loop over the core itself: caches and open blocks change nothing."""
    checkpoint = tiny_blocks(family, seed=3)
    core = open_core(pack(checkpoint, recipe))
    absolute, shift = not family.startswith("a2d"), int(family == "fast_dllm")
    o = options(checkpoint, max_new_tokens=20, threshold=0.5, absolute=absolute, shift=shift)

    judge = core_judge(core, o.width, checkpoint.config["vocab_size"])
    want = generate_blocks(judge, IDS[:13], o)
    found = core.generate(core.new_state(64), IDS[:13], {"max_new_tokens": 20, "threshold": 0.5})
    assert want.margin > 1e-7 and found["ids"] == want.ids


@pytest.mark.parametrize("family", ["llada2", "sdar", "fast_dllm"])
def test_a_second_turn(tiny_blocks: Open, core: Open, family: str) -> None:
    """The state behind a text that ends within a block goes on as if all had been one prompt."""
    model, checkpoint = core(family), tiny_blocks(family, seed=3)
    asked = {"max_new_tokens": 13, "threshold": 0.5}
    _, whole, second = second_turn(model, IDS, asked)
    o = options(checkpoint, shift=int(family == "fast_dllm"), **asked)
    want = generate_blocks(checkpoint.oracle().logits, whole, o)
    assert want.margin > 1e-5 and second == want.ids


@pytest.mark.parametrize("family", FAMILIES)
def test_stop_token(tiny_blocks: Open, core: Open, family: str) -> None:
    """Whatever stands behind it in its block is not asked for."""
    model, checkpoint = core(family), tiny_blocks(family, seed=3)
    asked = {"max_new_tokens": 24, "threshold": 0.5}
    usual = model.generate(model.new_state(64), IDS[:9], asked)["ids"]
    stop = usual[13]
    found = model.generate(model.new_state(64), IDS[:9], {**asked, "stop_ids": [stop]})
    absolute, shift = not family.startswith("a2d"), int(family == "fast_dllm")
    o = options(checkpoint, absolute=absolute, shift=shift, stop_ids=(stop,), **asked)
    want = generate_blocks(checkpoint.oracle().logits, IDS[:9], o)
    assert want.margin > 1e-5 and want.stop_id == stop
    assert (found["ids"], found["stop_id"], found["finish_reason"]) == (want.ids, stop, "stop")
    assert found["counters"]["denoise_steps"] == len(want.changed)


@pytest.mark.parametrize("edits", [{}, {"edit_threshold": 0.0, "max_post_steps": 3}])
@pytest.mark.parametrize("family", ["llada2", "fast_dllm"])
def test_mask_and_padding_are_never_written(
    tiny_blocks: Open, pack: Open, open_core: Open, family: str, edits: dict[str, Any]
) -> None:
    """A spec under which tokens that the model likes to write are the mask, or padding."""
    checkpoint = tiny_blocks(family, seed=3)
    folder = pack(checkpoint, "f32")
    asked = {"max_new_tokens": 24, "threshold": 0.2, **edits}
    if family == "fast_dllm" and edits:
        asked["sub_block"] = 0
    model = open_core(folder)
    prompt = [3, 5, 7]
    hot = {"temperature": 3.0, "seed": 5}
    for sampled in ({}, hot):
        usual = model.generate(model.new_state(64), prompt, {**asked, **sampled})["ids"]
        mask, valid = min(set(usual) - set(prompt)), max(usual)
        if mask == valid:  # a text of one token
            valid = 288
        other = open_core(folder, spec={"mask_token_id": mask, "valid_vocab": valid})
        found = other.generate(other.new_state(64), prompt, {**asked, **sampled})["ids"]
        assert len(found) == 24 and mask not in found and max(found) < valid


def test_sampling_depends_on_seed_alone(core: Open) -> None:
    asked = {"max_new_tokens": 16, "threshold": 0.3, "temperature": 1.0, "top_p": 0.95, "seed": 4}
    one, two = core("sdar", threads=1), core("sdar", threads=2)
    texts = [m.generate(m.new_state(64), IDS[:7], asked)["ids"] for m in (one, two)]
    assert texts[0] == texts[1]
    other = one.generate(one.new_state(64), IDS[:7], {**asked, "seed": 5})["ids"]
    assert other != texts[0]


def test_cancelled_blocks_leave_the_prompt(core: Open) -> None:
    model = core("sdar")
    state = model.new_state(64)
    found = model.generate(
        state, IDS[:7], {"max_new_tokens": 16}, lambda event: event["type"] != "step"
    )
    assert (found["finish_reason"], found["ids"], state.position) == ("cancelled", [], 7)
    same_from_now(model, state, committed(model, IDS[:7]), IDS[:3])


@pytest.mark.parametrize(
    ("family", "asked", "error", "what"),
    [
        ("sdar", {"mode": "ar"}, UnsupportedModelError, "autoregressively"),
        ("sdar", {"block_length": 2}, ArgumentError, "block_length 2"),
        ("sdar", {"edit_threshold": -2.0}, ArgumentError, "edit_threshold"),
        ("sdar", {"max_post_steps": -1}, ArgumentError, "max_post_steps"),
        ("sdar", {"sub_block": 5}, ArgumentError, "sub_block"),
        ("sdar", {"sub_block": 2, "steps": 2}, ArgumentError, "sub_block"),
        ("sdar", {"sub_block": 2, "edit_threshold": 0.5}, ArgumentError, "sub_block"),
    ],
)
def test_refused_options(
    core: Open, family: str, asked: dict[str, Any], error: type[Exception], what: str
) -> None:
    assert_refused(core(family), IDS[:5], asked, error, what)


def test_an_empty_prompt(core: Open) -> None:
    """Nothing decides the first token where logits are shifted; else a text may start from it."""
    shifted, plain = core("fast_dllm"), core("sdar")
    with pytest.raises(ArgumentError, match="prompt is empty"):
        shifted.generate(shifted.new_state(64), [], {"max_new_tokens": 8})
    assert len(plain.generate(plain.new_state(64), [], {"max_new_tokens": 8})["ids"]) == 8


def test_rollback_is_refused(core: Open) -> None:
    model = core("sdar")
    with pytest.raises(UnsupportedModelError, match="rollback"):
        model.commit(model.new_state(64), IDS[:5], rollback=True)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n_group", 0),
        ("n_group", 3),
        ("n_group", 16),
        ("topk_group", 5),
        ("topk_group", 0),
        ("routed_scaling_factor", 0.0),
        ("routed_scaling_factor", float("nan")),
    ],
)
def test_router_fields(
    tiny_blocks: Open, pack: Open, open_core: Open, field: str, value: Any
) -> None:
    with pytest.raises(ModelFormatError, match=f"spec: {field}"):
        open_core(pack(tiny_blocks("llada2", seed=3), "f32"), spec={field: value})


def test_groups_hold_enough_experts(tiny_blocks: Open, pack: Open, open_core: Open) -> None:
    spec = {"n_group": 8, "topk_group": 1}
    with pytest.raises(ModelFormatError, match="topk_group: 1 groups of 2"):
        open_core(pack(tiny_blocks("llada2", seed=3), "f32"), spec=spec)


@pytest.mark.parametrize("coreset", [3, 5, 15])
def test_coreset_takes_the_place_of_groups(tiny_blocks: Open, core: Open, coreset: int) -> None:
    """The experts with the best scores and biases of any row; rows choose freely among them."""
    checkpoint = tiny_blocks("llada2", seed=3)
    model, mask = core("llada2"), checkpoint.config["mask_token_id"]
    block = [*IDS[:3], *[mask] * 5]
    config = {**checkpoint.config, "coreset": coreset}
    want = BlockTransformer(checkpoint.tensors, config).logits(block)
    found = model.preview(model.new_state(64), block, coreset=coreset)
    assert relative_error(found, want) < 1e-4
    assert relative_error(found, checkpoint.oracle().logits(block)) > 1e-2


def test_a_settled_block_costs_no_commit(core: Open) -> None:
    """The step that found no mask and changed nothing has computed what the commit stores."""
    model, asked = (
        core("llada2"),
        {"max_new_tokens": 16, "threshold": 0.5, "commit_last": True, "fused_commit": False},
    )
    plain, edited = model.new_state(64), model.new_state(64)
    want = model.generate(plain, IDS[:16], asked)
    found = model.generate(edited, IDS[:16], {**asked, "edit_threshold": 1.0})  # never above
    assert found["ids"] == want["ids"]
    assert (found["counters"]["commits"], want["counters"]["commits"]) == (0, 2)
    assert found["counters"]["denoise_steps"] == want["counters"]["denoise_steps"] + 2
    same_from_now(model, plain, edited, IDS[:3])


@pytest.mark.parametrize("between", ["nothing", "growth", "restore", "another block"])
def test_a_commit_of_what_was_previewed(core: Open, between: str) -> None:
    model = core("sdar")
    ids = np.random.default_rng(4).integers(0, 250, 250).tolist()
    state, other = model.new_state(1000), model.new_state(1000)
    for each in (state, other):
        model.commit(each, ids, logits="none")
    rest = [1, 2]  # of the open block
    first = model.preview(state, rest)
    if between == "restore":
        state.restore(other)
    if between == "another block":
        model.preview(state, [4, 5])
    if between == "growth":
        model.generate(state, rest, {"max_new_tokens": 300, "steps": 1})
        model.generate(other, rest, {"max_new_tokens": 300, "steps": 1})
    else:
        rows = model.counters["rows"]
        model.commit(state, rest, logits="none")
        assert (model.counters["rows"] == rows) == (between == "nothing")
        assert np.array_equal(model.commit(other, rest), first[-1:])
    same_from_now(model, state, other, IDS[:3])


def test_counters(core: Open) -> None:
    """One commit a block; every pass has the rows of what is open and of the block."""
    model = core("sdar")
    asked = {"max_new_tokens": 10, "fused_commit": False}
    counters = model.generate(model.new_state(64), IDS[:6], asked)["counters"]
    assert (counters["blocks"], counters["commits"]) == (3, 3)
    assert counters["rows"] == 4 * counters["forward_passes"]
