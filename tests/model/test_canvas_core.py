"""Canvases of random ids in the core: splits, threads, states, recipes, mean embeddings, errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracle.canvas import Canvas
from oracle.compare import relative_error, rounded_activations
from oracle.equations import softmax
from oracle.packed import read_packed
from tiny_canvas import DECODER, FULL, SLIDING, canvas_config, make_canvas

from clover_edge import _core
from clover_edge.errors import (
    ArgumentError,
    ContextLengthError,
    ModelFormatError,
    UnsupportedModelError,
)

VALID = 288
IDS = np.random.default_rng(3).integers(0, VALID, 300)
CANVAS = np.random.default_rng(4).integers(0, VALID, 16)
OPTIONS = {"steps": 6, "max_new_tokens": 32, "entropy_bound": 0.5, "seed": 11}


@pytest.fixture(scope="module")
def core(pack_canvas: Callable[..., Path], open_core: Callable[..., Any]) -> Any:
    return open_core(pack_canvas())


def behind(core: Any, count: int) -> Any:
    state = core.new_state(400)
    core.commit(state, IDS[:count], logits="none")
    return state


def text(core: Any, state: Any = None, **options: Any) -> list[int]:
    state = behind(core, 20) if state is None else state
    ids: list[int] = core.generate(state, IDS[:5], {**OPTIONS, **options})["ids"]
    return ids


@pytest.mark.parametrize("isa", _core.available_isas())
@pytest.mark.parametrize("recipe", ["f32", "int8", "int4"])
def test_splits_and_threads_change_no_bit(
    pack_canvas: Callable[..., Path], open_core: Callable[..., Any], recipe: str, isa: str
) -> None:
    """Layers of two shapes, in a text that runs in chunks; and whole generations."""
    one, three = (open_core(pack_canvas(recipe), isa=isa, threads=n) for n in (1, 3))
    whole = one.commit(one.new_state(300), IDS, logits="all")
    for core, cuts in ((one, [1, 2, 19, 140]), (three, [64])):
        state = core.new_state(300)
        found = [core.commit(state, piece, logits="all") for piece in np.split(IDS, cuts)]
        assert np.array_equal(np.concatenate(found), whole)
    assert text(one) == text(three)
    for a, b in zip(
        one.soft_embeddings(behind(one, 40), CANVAS),
        three.soft_embeddings(behind(three, 40), CANVAS),
        strict=True,
    ):
        assert np.array_equal(a, b)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
def test_mean_embeddings(tmp_path: Path, core: Any, temperature: float) -> None:
    """Of real ids alone, and the entropies of their probabilities."""
    table = make_canvas(tmp_path)[DECODER + "embed_tokens.weight"].astype(float)
    state = behind(core, 40)
    logits = core.preview(state, CANVAS).astype(float)[:, :VALID]
    p = softmax(logits / temperature)
    soft, entropy = core.soft_embeddings(state, CANVAS, temperature=temperature)
    assert relative_error(soft, p @ table[:VALID] * np.sqrt(96)) < 1e-6
    assert np.allclose(entropy, -(p * np.log(p)).sum(axis=1), rtol=1e-5, atol=1e-6)
    # a second step from them is the step from the logits
    found = core.preview(state, CANVAS, soft=soft)
    model = Canvas(make_canvas(tmp_path), canvas_config())
    previous = np.full((16, 320), -np.inf)
    previous[:, :VALID] = logits / temperature
    want = model.canvas(model.commit(IDS[:40])[1], CANVAS, previous)
    assert relative_error(found, want) < 1e-4


def three_passes(core: Any, ids: Any, canvas: Any) -> list[np.ndarray]:
    """Logits of a causal pass, of a canvas, and of the next step on it."""
    state = core.new_state(400)
    causal = core.commit(state, ids, logits="all")
    soft, _ = core.soft_embeddings(state, canvas)
    return [causal, core.preview(state, canvas), core.preview(state, canvas, soft=soft)]


@pytest.mark.parametrize("recipe", ["bf16", "int8", "int4"])
def test_recipes_are_as_defined(
    pack_canvas: Callable[..., Path], open_core: Callable[..., Any], recipe: str
) -> None:
    """The packed weights in the oracle, with activations rounded as the kernels round them. One
    layer of each kind; the median, as in test_oracle_schemes.py."""
    kinds = {"num_hidden_layers": 2, "layer_types": [SLIDING, FULL], "sliding_window": 2}
    folder = pack_canvas(recipe, **kinds)
    weights, config = read_packed(folder)
    rounding = {} if recipe == "bf16" else {"linear": rounded_activations()}
    model = Canvas(weights, config["text_config"], **rounding)
    for isa in _core.available_isas():
        core, found = open_core(folder, isa=isa), []
        for seed in range(9):
            ids, canvas = np.random.default_rng(seed).integers(0, VALID, (2, 3))
            ours = three_passes(core, ids, canvas)
            causal, context = model.commit(ids)
            previous = ours[1].astype(float)
            previous[:, VALID:] = -np.inf
            want = [causal, model.canvas(context, canvas, None)]
            want.append(model.canvas(context, canvas, previous))
            found.append([relative_error(a, b) for a, b in zip(ours, want, strict=True)])
        assert (np.median(found, axis=0) < 2e-6).all(), (isa, np.median(found, axis=0))


@pytest.mark.parametrize(("recipe", "bound"), [("bf16", 0.05), ("int8", 0.1), ("int4", 0.4)])
def test_recipes_stay_near(
    pack_canvas: Callable[..., Path],
    open_core: Callable[..., Any],
    core: Any,
    recipe: str,
    bound: float,
) -> None:
    """Of a row's logits, the median of rows: of all three passes against float32. (Where random
    experts are chosen almost at random, rounding sends some rows to others.)"""
    packed = open_core(pack_canvas(recipe))
    ours, theirs = (three_passes(m, IDS[:40], CANVAS) for m in (packed, core))
    for found, want in zip(ours, theirs, strict=True):
        rows = np.square(found - want).sum(axis=1) / np.square(want).sum(axis=1)
        assert 0 < np.sqrt(np.median(rows)) < bound
    assert len(set(text(packed))) > 8


@pytest.mark.parametrize(("kv", "bound"), [("f16", 2e-3), ("int8", 5e-2)])
def test_kept_keys_of_two_shapes(
    pack_canvas: Callable[..., Path],
    open_core: Callable[..., Any],
    core: Any,
    kv: str,
    bound: float,
) -> None:
    other = open_core(pack_canvas(), kv=kv)
    want = core.preview(behind(core, 40), CANVAS)
    assert 0 < relative_error(other.preview(behind(other, 40), CANVAS), want) < bound
    # k and v: of two layers 1 x 64, of one 2 x 32; there is room for 256 tokens
    per_row = {"f16": 2 * 3 * 128, "int8": 2 * (2 * (4 + 64) + 2 * (4 + 32))}[kv]
    assert behind(other, 40).nbytes == 256 * per_row + 96 * 4


def test_state_is_the_oracles(tmp_path: Path, core: Any) -> None:
    model = Canvas(make_canvas(tmp_path), canvas_config())
    logits, context = model.commit(IDS[:40])
    arrays = behind(core, 40).arrays()
    assert relative_error(arrays["logits"], logits[-1]) < 1e-4
    for i, (k, v) in enumerate(context):
        assert arrays[f"layers.{i}.k"].shape == k.shape
        assert relative_error(arrays[f"layers.{i}.k"], k) < 1e-4
        assert relative_error(arrays[f"layers.{i}.v"], v) < 1e-4


def test_previews_leave_no_trace(core: Any) -> None:
    state = behind(core, 40)
    before = state.arrays()
    core.preview(state, CANVAS)
    core.soft_embeddings(state, CANVAS)
    for name, value in state.arrays().items():
        assert np.array_equal(value, before[name])
    core.preview(state, CANVAS[:7])  # a narrower canvas
    assert np.array_equal(core.commit(state, IDS[40:60]), core.commit(behind(core, 40), IDS[40:60]))


def test_snapshot_and_truncate(core: Any) -> None:
    state = behind(core, 20)
    kept = state.snapshot()
    first = text(core, state)
    assert state.position == 20 + 5 + 32
    state.restore(kept)
    assert text(core, state) == first
    state = behind(core, 20)
    core.commit(state, IDS[20:50], rollback=True)
    state.truncate(27)
    want = behind(core, 27)
    assert np.array_equal(core.preview(state, CANVAS), core.preview(want, CANVAS))
    state.truncate(0)
    assert text(core, state) == text(core, core.new_state(60))


def test_seeds_and_steps(core: Any) -> None:
    assert text(core) == text(core)
    assert text(core) != text(core, seed=12)
    assert text(core) != text(core, steps=5)
    assert text(core) == text(core, temperature=9.0)  # the schedule's holds
    greedy = text(core, t_min=0, t_max=0)
    assert greedy == text(core, t_min=0, t_max=0) and len(greedy) == 32


def test_a_text_ends_at_its_first_stop_token(core: Any) -> None:
    whole = text(core)
    at = 21  # in the second canvas
    stop = whole[at]
    first = whole.index(stop)
    state = behind(core, 20)
    found = core.generate(state, IDS[:5], {**OPTIONS, "stop_ids": [stop]})
    assert found["ids"] == whole[:first]
    assert (found["finish_reason"], found["stop_id"]) == ("stop", stop)
    assert state.position == 25 + first + 1
    found = core.generate(behind(core, 20), IDS[:5], {**OPTIONS, "max_new_tokens": 19})
    assert (found["ids"], found["finish_reason"]) == (whole[:19], "length")


def test_a_narrower_canvas_and_penalties(core: Any) -> None:
    assert len(text(core, block_length=5)) == 32
    assert text(core, block_length=5) != text(core)
    bent = text(core, frequency_penalty=2.0)
    assert bent[:16] == text(core)[:16] != bent[16:]  # of canvases that are done


def test_no_prompt_will_do(core: Any) -> None:
    found = core.generate(core.new_state(32), [], OPTIONS)
    assert len(found["ids"]) == 32


@pytest.mark.parametrize("mode", ["ar", "speculative"])
def test_no_autoregressive_mode(core: Any, mode: str) -> None:
    """Its causal pass was not trained to predict."""
    with pytest.raises(UnsupportedModelError, match="blocks of random ids"):
        core.generate(behind(core, 20), IDS[20:25], {"mode": mode, "max_new_tokens": 3})


def test_events(core: Any) -> None:
    """What a step keeps is in the next canvas; the rest of it is noise by the position's hash."""
    events: list[dict[str, Any]] = []
    found = core.generate(behind(core, 20), IDS[:5], OPTIONS, events.append)
    noise = _core.decoding.uniform
    for event in (e for e in events if e["type"] == "step"):
        start = 25 + 16 * event["block"]
        for i, (token, kept) in enumerate(zip(event["ids"], event["accepted"], strict=True)):
            drawn = int(noise(11, start + i, -2 - event["step"]) * VALID)
            assert kept or token == drawn
        assert any(event["accepted"]) and len(event["draft"]) == 16
    last = [e["draft"] for e in events if e["type"] == "step"][-1]
    assert found["ids"][16:] == last
    steps = []
    cancelled = core.generate(
        behind(core, 20), IDS[:5], OPTIONS, lambda e: steps.append(e) or len(steps) < 3
    )
    assert (cancelled["ids"], cancelled["finish_reason"]) == ([], "cancelled")


def test_entropy_bound_decides_how_much_is_kept(core: Any) -> None:
    counts = []
    for bound in (0.0, 0.5, 1e6):
        events: list[dict[str, Any]] = []
        core.generate(behind(core, 20), IDS[:5], {**OPTIONS, "entropy_bound": bound}, events.append)
        counts.append({sum(e["accepted"]) for e in events if e["type"] == "step"})
    assert max(counts[0]) < 16 and counts[2] == {16} and max(counts[1]) > max(counts[0])


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("t_min", -0.1),
        ("t_min", 0.9),  # above t_max
        ("t_max", float("nan")),
        ("entropy_bound", -1.0),
        ("stability_threshold", -1),
        ("confidence_threshold", float("nan")),
        ("sub_block", 4),
        ("edit_threshold", 0.5),
        ("fixed_schedule", True),
        ("skip_rows", True),
        ("block_length", 2000),
    ],
)
def test_options_that_are_refused(core: Any, option: str, value: Any) -> None:
    name = "t_max" if (option, value) == ("t_min", 0.9) else option
    with pytest.raises(ArgumentError, match=name):
        core.generate(behind(core, 20), IDS[:5], {**OPTIONS, option: value})


def test_arguments_that_are_refused(core: Any) -> None:
    state = behind(core, 20)
    for soft in (np.zeros((15, 96)), np.zeros((16, 95)), np.zeros(96)):
        with pytest.raises(ArgumentError, match="soft"):
            core.preview(state, CANVAS, soft=soft)
    with pytest.raises(ContextLengthError):
        core.generate(core.new_state(40), IDS[:20], {"max_new_tokens": 21})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("head_dims", [32, 64]),
        ("head_dims", [32, 64, 0]),
        ("head_dims", [32, 64, 32]),  # other shapes than the tensors have
        ("kv_heads", [2, 1, 3]),
        ("values_from_keys", [0, 1, 2]),
        ("values_from_keys", [1, 1, 1]),
        ("rope_local_dim", 33),
        ("rope_local_dim", 34),
        ("rotary_dim", 66),
        ("rope_local_theta", 0.0),
        ("self_conditioning_intermediate", 96),
        ("self_conditioning_intermediate", 0),
        ("self_conditioning_intermediate", -1),
        ("router_norm", False),
        ("router_logit_scale", 0.0),
        ("expert_scales", False),
        ("layer_scales", False),
        ("logit_softcap", -1.0),
        ("mask_token_id", 7),
        ("v_norm", 1),
    ],
)
def test_spec_lies(
    pack_canvas: Callable[..., Path], open_core: Callable[..., Any], field: str, value: Any
) -> None:
    with pytest.raises(ModelFormatError):
        open_core(pack_canvas(), spec={field: value})


@pytest.mark.parametrize(
    "fields",
    [
        {"noise": "gaussian"},
        {"noise": "mask", "mask_token_id": 7},  # with self-conditioning
        {"mask": "block"},
        {"logit_shift": 1},
        {"preview": False, "self_conditioning_intermediate": 0},
        {"ffn_types": ["experts", "dense", "both"]},
    ],
)
def test_specs_that_are_not_served(
    pack_canvas: Callable[..., Path], open_core: Callable[..., Any], fields: dict[str, Any]
) -> None:
    with pytest.raises(UnsupportedModelError):
        open_core(pack_canvas(), spec=fields)
