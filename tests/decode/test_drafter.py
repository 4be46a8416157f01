"""A drafter beside an autoregressive model: its equations, and a text that it does not change."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracle.clover import Clover
from oracle.compare import relative_error, rounded_activations
from oracle.drafter import Drafter, layer_outputs
from oracle.packed import read_packed
from oracle.transformer import Transformer
from tiny_clover import write_checkpoint_files
from tiny_core import same
from tiny_drafter import BLOCK, MASK, make_drafter
from tiny_hybrid import make_hybrid
from tiny_transformer import make_transformer

from clover_edge import _core
from clover_edge.errors import (
    ArgumentError,
    ContextLengthError,
    ModelFormatError,
    UnsupportedModelError,
)
from clover_edge.export import export_checkpoint

TOLERANCE = 1e-4  # f32 weights, logits and state
ISAS = _core.available_isas()
PROMPT = np.random.default_rng(1).integers(4, 250, 13).tolist()
TARGETS = ("qwen3", "qwen3_moe", "qwen3_5", "qwen3_5_moe")
LAYERS = (0, 2, 3)
Open = Callable[..., Any]


@dataclass(frozen=True)
class Pair:
    """Checkpoints of a target and of a drafter for it."""

    folder: Path
    target: dict[str, np.ndarray]
    drafter: dict[str, np.ndarray]

    def packed(self, recipe: str) -> tuple[Path, Path]:
        out = self.folder / recipe
        if not out.exists():
            out.mkdir()
            for name in ("target", "drafter"):
                export_checkpoint(self.folder / name, out / name, recipe=recipe)
        return out / "target", out / "drafter"

    def oracles(self) -> tuple[Any, Drafter]:
        config = json.loads((self.folder / "target" / "config.json").read_text())
        hybrid = any("linear_attn" in name for name in self.target)
        target = (Clover if hybrid else Transformer)(self.target, config)
        config = json.loads((self.folder / "drafter" / "config.json").read_text())
        words = self.target["embed_tokens.weight"], self.target["lm_head.weight"]
        return target, Drafter(self.drafter, config, *words)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Pair]:
    made: dict[tuple[str, bool], Pair] = {}

    def make(family: str, *, flat: bool = False) -> Pair:
        """``flat``: the target's logits are all the same."""
        if (family, flat) not in made:
            folder = tmp_path_factory.mktemp(family)
            if family.startswith("qwen3_5"):
                target = make_hybrid(folder / "target", family, seed=5, dtype="f32")
            else:
                target = make_transformer(folder / "target", family, seed=5, dtype="f32", layers=4)
            if flat:
                target["lm_head.weight"] = np.zeros_like(target["lm_head.weight"])
                stored = {n if n.startswith("lm_") else f"model.{n}": v for n, v in target.items()}
                for old in (folder / "target").glob("model*"):
                    old.unlink()
                write_checkpoint_files(folder / "target", stored, dtype="f32")
            vocab, hidden = target["embed_tokens.weight"].shape
            sizes = {"hidden": hidden, "vocab": vocab, "target_layers": LAYERS}
            made[family, flat] = Pair(
                folder, target, make_drafter(folder / "drafter", seed=6, **sizes)
            )
        return made[family, flat]

    return make


@pytest.fixture(scope="module")
def cores(pairs: Callable[..., Pair], open_core: Open) -> Callable[..., tuple[Any, Any]]:
    def make(family: str, recipe: str = "f32", *, flat: bool = False, **options: Any) -> Any:
        return tuple(
            open_core(folder, **options) for folder in pairs(family, flat=flat).packed(recipe)
        )

    return make


def run(
    target: Any, drafter: Any = None, prompt: list[int] = PROMPT, **options: Any
) -> tuple[dict[str, Any], list[Any], Any, Any]:
    """Result, events, and the states of both behind it. Without a drafter: mode ar."""
    state, events = target.new_state(400), list[Any]()
    context = drafter and drafter.new_state(400)
    asked = {"max_new_tokens": 30, **options}
    result = target.generate(
        state, prompt, asked, lambda event: events.append(event) or True, context
    )
    return result, events, state, context


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("family", TARGETS)
def test_logits_of_a_draft(pairs: Open, cores: Open, family: str, isa: str) -> None:
    """Those of a block, and the keys and values of its context, against the oracle; the prompt is
    longer than the passes that it is cut into."""
    target, drafter = cores(family, isa=isa)
    prompt = np.random.default_rng(2).integers(4, 250, 150).tolist()
    _, _, _, context = run(target, drafter, prompt, max_new_tokens=0)
    model, judge = pairs(family).oracles()
    outputs = layer_outputs(model, prompt, LAYERS)
    block = [7, *[MASK] * (BLOCK - 1)]
    found = target.draft(context, block)
    assert relative_error(found, judge.logits(outputs, block)) < TOLERANCE
    arrays = context.arrays()
    assert set(arrays) == {f"layers.{i}.{kind}" for i in range(2) for kind in "kv"}
    for i in range(2):
        for kind, want in zip("kv", judge.keys_and_values(outputs, i), strict=True):
            assert relative_error(arrays[f"layers.{i}.{kind}"], want) < TOLERANCE


def test_what_a_draft_depends_on(pairs: Open) -> None:
    """Getting any part of the equations wrong moves the logits by far more than the tolerance."""
    model, judge = pairs("qwen3").oracles()
    outputs = layer_outputs(model, PROMPT, LAYERS)
    block = [7, *[MASK] * (BLOCK - 1)]
    want = judge.logits(outputs, block)
    wrong = {
        "outputs of other layers": layer_outputs(model, PROMPT, [0, 1, 3]),
        "a row less": outputs[1:],
        "outputs in another order": np.roll(outputs, 64, axis=1),
    }
    for name, other in wrong.items():
        assert relative_error(judge.logits(other, block), want) > 100 * TOLERANCE, name
    assert relative_error(judge.logits(outputs, block[:-1]), want[:-1]) > 100 * TOLERANCE


CASES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "one token": {"max_new_tokens": 1},
    "narrow": {"block_length": 3},
    "one wide": {"block_length": 1},
    "sampled": {"temperature": 1.0, "seed": 3},
    "top-p": {"temperature": 1.5, "top_p": 0.8, "seed": 2},
    "penalties": {"frequency_penalty": 0.5, "presence_penalty": 0.3},
    "repetition, sampled": {"repetition_penalty": 1.3, "temperature": 0.7, "seed": 9},
}
# Of a target whose logits are all the same: drafts are right, or right every other time.
FLAT: dict[str, dict[str, Any]] = {
    "always right": {},
    "often right": {"temperature": 1.0, "top_k": 2, "seed": 4},
    "often right, penalties": {"temperature": 1.0, "top_k": 2, "frequency_penalty": -0.01},
}


def check_text(target: Any, drafter: Any, options: dict[str, Any]) -> dict[str, Any]:
    """The autoregressive text and state; the drafter's context is that of the text in one go."""
    want, _, plain, _ = run(target, **options, mode="ar")
    found, events, state, context = run(target, drafter, **options)
    assert (found["ids"], found["finish_reason"]) == (want["ids"], want["finish_reason"])
    same(state.arrays(), plain.arrays())
    text = [*PROMPT, *found["ids"], *[found["stop_id"]] * (found["stop_id"] is not None)]
    assert context.position == state.position == len(text)
    _, _, _, whole = run(target, drafter, text, max_new_tokens=0)
    same(context.arrays(), whole.arrays())
    blocks = [event for event in events if event["type"] == "block"]
    assert [token for block in blocks for token in block["ids"]] == found["ids"]
    counters = found["counters"]
    assert counters["commits"] == counters["forward_passes"] == counters["blocks"] == len(blocks)
    assert counters["denoise_steps"] == 0
    drafts = [event for event in events if event["type"] == "step" and len(event["draft"]) > 1]
    assert counters["drafter_passes"] == len(drafts)
    assert (counters["drafter_bytes_read"] > 0) == (len(text) > len(PROMPT))
    return counters


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("family", ["qwen3", "qwen3_5"])
def test_the_autoregressive_text(cores: Open, family: str, name: str) -> None:
    check_text(*cores(family), CASES[name])


@pytest.mark.parametrize("name", FLAT)
@pytest.mark.parametrize("family", ["qwen3", "qwen3_5"])
def test_drafts_that_agree(cores: Open, family: str, name: str) -> None:
    """They save passes; where only some of them stand, both states go back to the last of them."""
    counters = check_text(*cores(family, flat=True), FLAT[name])
    fewest = -(-30 // BLOCK)
    if name == "always right":
        assert counters["commits"] == counters["drafter_passes"] == fewest
    else:
        assert fewest < counters["commits"] < 30


@pytest.mark.parametrize("at", [0, 5, 17])
@pytest.mark.parametrize("flat", [False, True])
def test_a_stop_token(cores: Open, flat: bool, at: int) -> None:
    target, drafter = cores("qwen3_5", flat=flat)
    options = {"temperature": 1.0, "top_k": 40, "seed": 4}
    stop = run(target, mode="ar", **options)[0]["ids"][at]
    check_text(target, drafter, {**options, "stop_ids": [stop]})


@pytest.mark.parametrize("recipe", ["int8", "int4", "int4-all", "bf16"])
@pytest.mark.parametrize("family", ["qwen3", "qwen3_5_moe"])
def test_recipes(cores: Open, family: str, recipe: str) -> None:
    check_text(*cores(family, recipe), {"temperature": 0.8, "seed": 1})


@pytest.mark.parametrize("recipe", ["int8", "int4", "int4-all"])
def test_logits_of_quantised_drafters(pairs: Open, cores: Open, recipe: str) -> None:
    """Against the very weights that are stored. Values that float32 and float64 round to different
    codes move them a little, hence the median."""
    block, rounded = [7, *[MASK] * (BLOCK - 1)], rounded_activations()
    (words, config), drafts = (read_packed(folder) for folder in pairs("qwen3").packed(recipe))
    model = Transformer(words, config, linear=rounded)
    ends = words["embed_tokens.weight"], words["lm_head.weight"]
    judge = Drafter(*drafts, *ends, linear=rounded)
    target, drafter = cores("qwen3", recipe)
    found = []
    for seed in range(7):
        prompt = np.random.default_rng(seed).integers(4, 250, 5).tolist()
        _, _, _, context = run(target, drafter, prompt, max_new_tokens=0)
        want = judge.logits(layer_outputs(model, prompt, LAYERS), block)
        found.append(relative_error(target.draft(context, block), want))
    assert np.median(found) < 1e-6


@pytest.mark.parametrize("options", [{"kv": "int8"}, {"kv": "f16"}, {"threads": 2}])
def test_ways_to_run(cores: Open, options: dict[str, Any]) -> None:
    check_text(*cores("qwen3_5", "int4", **options), {"temperature": 0.8, "seed": 1})


def test_a_session(cores: Open) -> None:
    """Both states go on where the last text ended."""
    target, drafter = cores("qwen3_5")
    first, _, state, context = run(target, drafter)
    more = [9, 8, 7]
    found = target.generate(state, more, {"max_new_tokens": 20}, None, context)
    want, _, plain, _ = run(target, None, [*PROMPT, *first["ids"], *more], max_new_tokens=20)
    assert found["ids"] == want["ids"]
    assert relative_error(state.arrays()["logits"], plain.arrays()["logits"]) < 1e-5


def test_a_listener_that_cancels(cores: Open) -> None:
    target, drafter = cores("qwen3_5", flat=True)
    state, context = target.new_state(100), drafter.new_state(100)
    result = target.generate(
        state,
        PROMPT,
        {"max_new_tokens": 40, "block_length": 4},
        lambda event: not (event["type"] == "block" and event["block"] == 2),
        context,
    )
    assert (result["finish_reason"], len(result["ids"])) == ("cancelled", 12)
    assert state.position == context.position == len(PROMPT) + 12


def test_nothing_is_kept_without_a_drafter(cores: Open) -> None:
    target, drafter = cores("qwen3")
    _, _, plain, _ = run(target, mode="ar")
    _, _, state, _ = run(target, drafter)
    assert state.nbytes == plain.nbytes


def refusals(
    target: Any, drafter: Any, other: Any
) -> Iterator[tuple[type[Exception], str, Callable[[], Any]]]:
    def generate(options: dict[str, Any], context: Any) -> Callable[[], Any]:
        return lambda: target.generate(target.new_state(50), PROMPT, options, None, context)

    fresh = drafter.new_state(50)
    yield ArgumentError, "mode speculative alone", generate({"mode": "ar"}, fresh)
    yield ArgumentError, "block_length", generate({"block_length": BLOCK + 1}, fresh)
    _, _, _, ahead = run(target, drafter)
    yield ArgumentError, "is at position 43", generate({}, ahead)
    small = drafter.new_state(len(PROMPT) + 3)
    yield ContextLengthError, "drafter's state", generate({"max_new_tokens": 4}, small)
    yield ArgumentError, "of the model itself", generate({}, target.new_state(50))
    yield UnsupportedModelError, "is none", generate({}, other.new_state(50))
    yield UnsupportedModelError, "is a drafter", lambda: drafter.commit(fresh, PROMPT)
    yield UnsupportedModelError, "is a drafter", lambda: drafter.preview(fresh, PROMPT)
    yield UnsupportedModelError, "is a drafter", lambda: drafter.generate(fresh, PROMPT)


def test_refusals(cores: Open) -> None:
    other = cores("qwen3_moe")[0]
    for kind, message, call in refusals(*cores("qwen3"), other):
        with pytest.raises(kind, match=message):
            call()


@pytest.mark.parametrize(
    ("spec", "kind", "message"),
    [
        ({"drafts_for_layers": [2, 0, 3]}, ModelFormatError, "drafts_for_layers: 0 is outside"),
        ({"drafts_for_layers": [-1, 2, 3]}, ModelFormatError, "drafts_for_layers: -1 is outside"),
        ({"drafts_for_layers": [0, 2, 4096]}, ModelFormatError, "4096 is outside"),
        ({"drafts_for_layers": [0, 2]}, ModelFormatError, r"context.in: has shape \[64, 192\]"),
        ({"drafts_for_layers": []}, ModelFormatError, "embed: is missing"),
        ({"preview": False}, UnsupportedModelError, "drafts_for_layers is not supported without"),
        ({"mask": "block"}, UnsupportedModelError, "drafts_for_layers is not supported without"),
        ({"logit_shift": 1}, UnsupportedModelError, "drafts_for_layers is not supported without"),
    ],
)
def test_specs_that_make_no_drafter(
    pairs: Open, open_core: Open, spec: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        open_core(pairs("qwen3").packed("f32")[1], spec=spec)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"vocab": 288}, "vocab_size 288 does not fit the model's 320"),
        ({"hidden": 32}, "hidden_size 32 does not fit the model's 64"),
        ({"target_layers": (1, 4)}, "drafts_for_layers 4 does not fit the model's 4"),
    ],
)
def test_drafters_that_do_not_fit(
    cores: Open, open_core: Open, tmp_path: Path, sizes: dict[str, Any], message: str
) -> None:
    make_drafter(tmp_path / "in", **sizes)
    export_checkpoint(tmp_path / "in", tmp_path / "out", recipe="f32")
    target, drafter = cores("qwen3")[0], open_core(tmp_path / "out")
    with pytest.raises(ArgumentError, match=message):
        target.check_drafter(drafter)
    with pytest.raises(ArgumentError, match=message):
        run(target, drafter)
