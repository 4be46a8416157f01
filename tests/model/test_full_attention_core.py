"""The compiled core under a full mask: caches, long texts, sessions, schemes, what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from core_checks import assert_activations_as_defined, assert_refused, generated, second_turn
from oracle.compare import relative_error, rounded_activations
from oracle.full_attention import CanvasOptions, FullTransformer, generate_canvas
from oracle.packed import read_packed
from tiny_full_attention import FAMILIES, special_ids

from clover_edge.errors import (
    ArgumentError,
    ContextLengthError,
    UnsupportedModelError,
)

IDS = np.random.default_rng(6).integers(0, 250, 45).tolist()
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def core(tiny_full_attention: Open, pack: Open, open_core: Open) -> Open:
    def make(family: str, recipe: str = "f32", **options: Any) -> Any:
        return open_core(pack(tiny_full_attention(family, seed=3), recipe), **options)

    return make


def options(checkpoint: Any, family: str, **asked: Any) -> CanvasOptions:
    mask = max(special_ids(family, checkpoint.config["vocab_size"]).values())
    given = {"max_new_tokens": 24, "width": 8, "shift": int(family == "dream"), **asked}
    return CanvasOptions(mask=mask, valid_vocab=mask + 1, **given)


def core_options(o: CanvasOptions) -> dict[str, Any]:
    same = ("max_new_tokens", "cache", "threshold", "steps", "confidence", "stop_penalty")
    return {
        **{name: getattr(o, name) for name in same},
        "block_length": o.width,
        "fixed_schedule": True,
        "stop_ids": list(o.stop_ids),
    }


def run(core: Any, prompt: list[int], asked: dict[str, Any]) -> tuple[list[int], list[list[int]]]:
    """Ids, and by step the accepted positions."""
    found, steps = generated(core, core.new_state(400), prompt, asked)
    return found["ids"], steps


@pytest.mark.parametrize("rule", [{"threshold": 0.5}, {"threshold": 1.0, "steps": 3}])
@pytest.mark.parametrize("cache", ["prefix", "dual"])
@pytest.mark.parametrize("family", FAMILIES)
def test_caches(
    tiny_full_attention: Open,
    pack: Open,
    open_core: Open,
    family: str,
    cache: str,
    rule: dict[str, Any],
) -> None:
    """Decision by decision what the same caches in float64 make; and not what none makes."""
    checkpoint = tiny_full_attention(family, seed=5)
    model, judge = open_core(pack(checkpoint, "f32")), checkpoint.oracle().part
    clear = 0
    for at in range(3):
        prompt = IDS[at : 13 + 5 * at]
        o = options(checkpoint, family, cache=cache, **rule)
        want = generate_canvas(judge, prompt, o)
        if want.margin < 1e-4:
            continue
        assert run(model, prompt, core_options(o)) == (want.ids, want.changed)
        exact = generate_canvas(judge, prompt, options(checkpoint, family, **rule))
        clear += (exact.ids, exact.changed) != (want.ids, want.changed)
    assert clear > 1


@pytest.mark.parametrize(("cache", "rows"), [("none", 34), ("prefix", 24), ("dual", 8)])
def test_rows_of_the_steps(core: Open, cache: str, rows: int) -> None:
    """A block's first step computes everything; later ones as much as the cache leaves over."""
    model = core("llada")
    asked = {"max_new_tokens": 24, "block_length": 8, "threshold": 1.0, "cache": cache}
    counters = model.generate(model.new_state(34), IDS[:10], asked)["counters"]
    assert counters["denoise_steps"] == counters["forward_passes"] == 24
    assert counters["prefill_passes"] == counters["commits"] == 0
    later = [rows, 16 if cache == "prefix" else rows, 8 if cache == "prefix" else rows]
    assert counters["rows"] == 3 * 34 + 7 * sum(later)


@pytest.mark.parametrize("family", FAMILIES)
def test_previews(tiny_full_attention: Open, core: Open, family: str) -> None:
    """Everything sees everything; a state keeps its text and nothing else."""
    checkpoint, model = tiny_full_attention(family, seed=3), core(family)
    mask = options(checkpoint, family).mask
    canvas = [*IDS[:2], *[mask] * 6]
    state = model.new_state(64)
    for piece in (IDS[:5], IDS[5:12], IDS[12:13]):
        model.commit(state, piece, logits="none")
    found = model.preview(state, canvas)
    want = checkpoint.oracle().logits([*IDS[:13], *canvas])
    assert relative_error(found, want[13:]) < 1e-4
    assert np.array_equal(model.preview(state, canvas, rows=[6, 0]), found[[6, 0]])
    assert state.position == 13 and "logits" not in state.arrays()
    other = model.new_state(64)
    other.restore(state)
    assert np.array_equal(model.preview(other, canvas), found)
    assert np.array_equal(model.preview(state.snapshot(), canvas), found)


@pytest.mark.parametrize("recipe", ["f32", "int4"])
@pytest.mark.parametrize("family", FAMILIES)
def test_long_texts(tiny_full_attention: Open, core: Open, family: str, recipe: str) -> None:
    """Longer than a chunk of a pass, and than a block of other models may be: chunks change no
    bit, and logits of all rows are those of the oracle."""
    checkpoint, model = tiny_full_attention(family, seed=3), core(family, recipe)
    ids = np.random.default_rng(2).integers(0, 250, 300).tolist()
    state = model.new_state(2000)
    model.commit(state, ids[:290], logits="none")
    found = model.preview(state, ids[290:])
    whole = model.commit(model.new_state(300), ids, logits="all")
    assert np.array_equal(whole[290:], found)
    model.observe(lambda layer, half, arrays: None)  # who looks on gets the pass in one piece
    assert np.array_equal(model.preview(state, ids[290:]), found)
    model.observe(None)
    if recipe == "f32":
        assert relative_error(whole, checkpoint.oracle().logits(ids)) < 1e-4
    if family == "llada":
        longer = model.preview(state, [*ids[290:], *ids * 4], rows=[0])
        assert longer.shape == (1, 320) and np.isfinite(longer).all()


@pytest.mark.parametrize(("kv", "bound"), [("f16", 2e-3), ("int8", 5e-2)])
def test_keys_in_fewer_bits(core: Open, kv: str, bound: float) -> None:
    plain, fewer = core("dream"), core("dream", kv=kv)
    found, want = (m.commit(m.new_state(45), IDS, logits="all") for m in (fewer, plain))
    assert 0 < relative_error(found, want) < bound
    asked = {"max_new_tokens": 12, "block_length": 4, "cache": "dual"}
    assert len(run(fewer, IDS[:5], asked)[0]) == 12


def test_memory_is_bounded(tiny_full_attention: Open, pack: Open, open_core: Open) -> None:
    """A long text needs its residual stream and projections, not the feed-forward of all rows at
    once: here that would be 98 kB a row."""
    checkpoint = tiny_full_attention("llada", seed=3, hidden=32, layers=1, intermediate_size=8192)
    model = open_core(pack(checkpoint, "f32"))
    model.commit(model.new_state(2000), [1] * 128, logits="last")
    before = _resident()
    model.commit(model.new_state(2000), [1] * 2000, logits="last")
    assert _resident() - before < 40e6 < 98e3 * 2000 / 4


def _resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


@pytest.mark.parametrize("cache", ["none", "dual"])
@pytest.mark.parametrize("recipe", ["f32", "int4"])
@pytest.mark.parametrize("family", FAMILIES)
def test_threads_change_no_bit(core: Open, family: str, recipe: str, cache: str) -> None:
    asked = {"max_new_tokens": 24, "block_length": 12, "threshold": 0.5, "cache": cache}
    found = []
    for threads in (1, 2):
        model = core(family, recipe, threads=threads)
        logits = model.commit(model.new_state(200), IDS * 4, logits="all")
        ways = [{"confidence": "entropy"}, {"temperature": 1.0, "top_p": 0.9, "seed": 3}]
        found.append((logits, [run(model, IDS[:9], {**asked, **way}) for way in ways]))
    assert np.array_equal(found[0][0], found[1][0]) and found[0][1] == found[1][1]


@pytest.mark.parametrize("recipe", ["int8", "int4", "int4-all"])
@pytest.mark.parametrize("family", FAMILIES)
def test_int8_activations_as_defined(
    tiny_full_attention: Open, pack: Open, open_core: Open, family: str, recipe: str
) -> None:
    folder = pack(tiny_full_attention(family, seed=4, hidden=128, layers=2), recipe)
    trunk = tiny_full_attention(family, seed=4, hidden=128, layers=2).config
    model = FullTransformer(read_packed(folder)[0], trunk, linear=rounded_activations())
    assert_activations_as_defined(open_core, folder, model.logits)


@pytest.mark.parametrize("recipe", ["int8", "int4"])
@pytest.mark.parametrize("family", FAMILIES)
def test_quantised_generation(
    tiny_full_attention: Open, pack: Open, open_core: Open, family: str, recipe: str
) -> None:
    """The plain loop over the core itself, which computes the whole text again at each step."""
    checkpoint = tiny_full_attention(family, seed=3)
    core = open_core(pack(checkpoint, recipe))
    o = options(checkpoint, family, threshold=0.5)

    def judge(ids: list[int], first: int, last: int) -> Any:
        return core.preview(core.new_state(64), ids)

    want = generate_canvas(judge, IDS[:13], o)
    assert want.margin > 1e-7
    assert run(core, IDS[:13], core_options(o)) == (want.ids, want.changed)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_second_turn(core: Open, family: str) -> None:
    """A later prompt makes a longer text, as if all had been one prompt."""
    model, asked = core(family), {"max_new_tokens": 13, "block_length": 5, "cache": "dual"}
    state, _, second = second_turn(model, IDS, asked)
    state.truncate(23)  # any position will do
    assert second == model.generate(state, IDS[10:15], asked)["ids"]
    with pytest.raises(ArgumentError, match="position 99"):
        state.truncate(99)


@pytest.mark.parametrize("family", FAMILIES)
def test_stop_token(tiny_full_attention: Open, core: Open, family: str) -> None:
    """Nothing behind it is asked for; a penalty puts it off."""
    model, checkpoint = core(family), tiny_full_attention(family, seed=3)
    o = options(checkpoint, family, threshold=0.5)
    usual = run(model, IDS[:9], core_options(o))[0]
    stop = usual[13]
    o = options(checkpoint, family, threshold=0.5, stop_ids=(stop,))
    found = model.generate(model.new_state(64), IDS[:9], core_options(o))
    want = generate_canvas(checkpoint.oracle().part, IDS[:9], o)
    assert want.margin > 1e-5 and want.stop_id == stop
    assert (found["ids"], found["stop_id"], found["finish_reason"]) == (want.ids, stop, "stop")
    assert found["counters"]["denoise_steps"] == len(want.changed)
    o = options(checkpoint, family, threshold=0.5, stop_ids=(stop,), stop_penalty=1e4)
    want = generate_canvas(checkpoint.oracle().part, IDS[:9], o)
    assert len(want.ids) == 24 and want.margin > 1e-5
    assert run(model, IDS[:9], core_options(o)) == (want.ids, want.changed)


@pytest.mark.parametrize("confidence", ["probability", "margin", "entropy", "random"])
@pytest.mark.parametrize("family", FAMILIES)
def test_mask_and_padding_are_never_written(
    tiny_full_attention: Open, pack: Open, open_core: Open, family: str, confidence: str
) -> None:
    """A spec under which tokens that the model likes to write are the mask, or padding."""
    folder = pack(tiny_full_attention(family, seed=3), "f32")
    asked = {"max_new_tokens": 24, "block_length": 8, "threshold": 0.2, "confidence": confidence}
    model = open_core(folder)
    prompt = [3, 5, 7]
    for sampled in ({}, {"temperature": 3.0, "seed": 5}, {"temperature": 2.0, "top_k": 9}):
        usual = run(model, prompt, {**asked, **sampled})[0]
        mask, valid = min(set(usual) - set(prompt)), max(usual)
        other = open_core(folder, spec={"mask_token_id": mask, "valid_vocab": max(valid, 12)})
        found = run(other, prompt, {**asked, **sampled})[0]
        assert len(found) == 24 and mask not in found and max(found) < max(valid, 12)


def test_cancelled_blocks_leave_the_prompt(core: Open) -> None:
    model = core("dream")
    state = model.new_state(64)
    found = model.generate(
        state, IDS[:7], {"max_new_tokens": 16}, lambda event: event["type"] != "step"
    )
    assert (found["finish_reason"], found["ids"], state.position) == ("cancelled", [], 7)


@pytest.mark.parametrize(
    ("family", "asked", "error", "what"),
    [
        ("llada", {"mode": "ar"}, UnsupportedModelError, "autoregressively"),
        (
            "llada",
            {"edit_threshold": 0.5},
            ArgumentError,
            "sub_block, skip_rows and credit",
        ),
        (
            "llada",
            {"sub_block": 2},
            ArgumentError,
            "sub_block, skip_rows and credit",
        ),
        (
            "llada",
            {"credit": 0.7},
            ArgumentError,
            "sub_block, skip_rows and credit",
        ),
        ("llada", {"cache": "triple"}, ArgumentError, 'cache" "triple" is none of "none"'),
        ("llada", {"confidence": "none"}, ArgumentError, '"confidence" "none"'),
        ("llada", {"eps": 0.1}, ArgumentError, "eps needs steps"),
        ("llada", {"eps": 0.1, "steps": 3, "factor": 1.0}, ArgumentError, "strategy and factor"),
        ("llada", {"eps": 2.0, "steps": 3}, ArgumentError, "eps 2"),
        ("llada", {"factor": -1.0}, ArgumentError, "factor -1"),
        ("llada", {"factor": 1.0, "confidence": "margin"}, ArgumentError, "strategy and factor"),
        (
            "llada",
            {"confidence": "random", "confidence_temperature": 1.0},
            ArgumentError,
            "confidence_temperature",
        ),
        ("llada", {"stop_penalty": 1.0, "repetition_penalty": 1.5}, ArgumentError, "stop_penalty"),
        ("llada", {"max_new_tokens": 60}, ContextLengthError, "exceed the capacity of 64"),
        ("llada_moe", {"coreset": 8}, UnsupportedModelError, "coreset"),
    ],
)
def test_refused_options(
    core: Open, family: str, asked: dict[str, Any], error: type[Exception], what: str
) -> None:
    assert_refused(core(family), IDS[:5], asked, error, what)


@pytest.mark.parametrize(
    "asked", [{"cache": "dual"}, {"confidence": "margin"}, {"stop_penalty": 1.0}]
)
def test_options_of_full_attention_alone(
    tiny_blocks: Open, pack: Open, open_core: Open, asked: dict[str, Any]
) -> None:
    model = open_core(pack(tiny_blocks("sdar"), "f32"))
    with pytest.raises(ArgumentError, match='models of mask "full"'):
        model.generate(model.new_state(64), IDS[:5], {"max_new_tokens": 8, **asked})


def test_an_empty_prompt(core: Open) -> None:
    """Nothing decides the first token where logits are shifted; else a text may start from it."""
    shifted, plain = core("dream"), core("llada")
    with pytest.raises(ArgumentError, match="prompt is empty"):
        shifted.generate(shifted.new_state(64), [], {"max_new_tokens": 8})
    for cache in ("none", "prefix", "dual"):
        asked = {"max_new_tokens": 8, "block_length": 4, "cache": cache}
        assert len(plain.generate(plain.new_state(64), [], asked)["ids"]) == 8


def test_what_a_full_mask_has_not(tiny_full_attention: Open, pack: Open, open_core: Open) -> None:
    folder = pack(tiny_full_attention("llada_moe", seed=3), "f32")
    model = open_core(folder)
    with pytest.raises(UnsupportedModelError, match='rollback is not supported of mask "full"'):
        model.commit(model.new_state(64), IDS[:5], rollback=True)
    for spec in ({"windows": [0, 4, 0]}, {"coreset_size": 8}):
        with pytest.raises(UnsupportedModelError, match='not supported of mask "full"'):
            open_core(folder, spec=spec)
    with pytest.raises(UnsupportedModelError, match="block_origin"):
        open_core(folder, spec={"block_origin": "absolute"})
    with pytest.raises(ContextLengthError, match="takes 64"):
        short = open_core(folder, spec={"max_positions": 64})
        state = short.new_state(60)
        short.commit(state, IDS, logits="none")
        short.preview(state, IDS)


def test_confidence_follows_the_distribution_that_is_sampled(core: Open) -> None:
    """Behind temperature and top-p a pick's probability is larger than before: at a threshold
    between the two, sampling accepts more at once."""
    model = core("llada")
    asked = {"max_new_tokens": 24, "block_length": 24, "threshold": 0.9, "seed": 1}
    warm = {**asked, "temperature": 0.2}
    plain, sharp = run(model, IDS[:9], asked)[1], run(model, IDS[:9], warm)[1]
    cut = run(model, IDS[:9], {**warm, "top_p": 0.3})[1]
    assert len(plain) > len(sharp) > len(cut)
