"""Nemotron-Labs-Diffusion: causal commits that seed the next block, previews that see all of it."""

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
from oracle.compare import rounded_activations
from oracle.nemotron import Nemotron
from oracle.packed import read_packed
from tiny_nemotron import make_nemotron

from clover_edge import _core
from clover_edge.errors import ArgumentError, ModelFormatError

ISAS = _core.available_isas()
MAKER = maker_of("nemotron")
ROWS, IDS = list(MAKER.ROWS), MAKER.token_ids()
PROMPT, LAST = IDS[: MAKER.PROMPT], MAKER.LENGTH - MAKER.WIDTH
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def golden() -> Golden:
    return Golden("nemotron")


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Packs a case by a recipe, once."""

    def write(folder: Path, case: str, **other: Any) -> None:
        make_nemotron(folder, **{**MAKER.arguments(case), **other})

    def check(case: str, plan: Any) -> None:
        assert plan.model.family == "nemotron"

    return packer(tmp_path_factory, write, check)


def oracle_of(case: str, **rope: Any) -> Nemotron:
    tensors, config = MAKER.tensors_of(case)
    return Nemotron(tensors, {**config, "rope_parameters": {**config["rope_parameters"], **rope}})


def options_of(case: str, **other: Any) -> Any:
    return MAKER.options_of(case, MAKER.tensors_of(case)[1], **other)


@pytest.mark.parametrize("case", MAKER.CASES)
def test_oracle_is_transformers(golden: Golden, case: str) -> None:
    model = oracle_of(case)
    golden.assert_drawn(case, MAKER.tensors_of(case)[0])
    golden.assert_logits(case, model.logits(IDS, LAST)[ROWS])
    text = generate_blocks(model.logits, PROMPT, options_of(case))
    assert text.ids == golden.ids(case, "diffusion")
    assert text.changed == golden.steps(case, "diffusion changed")


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("case", MAKER.CASES)
def test_core_is_transformers(
    golden: Golden,
    packed: Callable[..., Path],
    open_core: Open,
    case: str,
    isa: str,
) -> None:
    """Logits of a text and its last block; whole generations, every id and accepted position."""
    core = open_core(packed(case), isa=isa)
    state = core.new_state(64)
    before = core.commit(state, IDS[:LAST], logits="all")
    found = np.concatenate([before, core.preview(state, IDS[LAST:])])
    golden.assert_logits(case, found[ROWS])
    asked = {"max_new_tokens": MAKER.NEW, "threshold": MAKER.CASES[case][1]["threshold"]}
    text, steps = generated(core, core.new_state(64), PROMPT, asked)
    assert text["ids"] == golden.ids(case, "diffusion")
    assert steps == golden.steps(case, "diffusion changed")
    for mode in ("ar", "speculative"):
        text = core.generate(core.new_state(64), PROMPT, {**asked, "mode": mode})
        assert text["ids"] == golden.ids(case, "ar")


def test_generations_are_no_trifles(golden: Golden) -> None:
    """Both modes begin with the same token: the one that the prompt's last row decides."""
    for case in MAKER.CASES:
        diffusion, ar = (golden.ids(case, mode) for mode in ("diffusion", "ar"))
        assert diffusion[0] == ar[0] and diffusion != ar and len(set(diffusion)) > 6
        steps = golden.steps(case, "diffusion changed")
        assert not any(0 in step for step in steps), "the seed is there before the first preview"
    lengths = [
        set(map(len, golden.steps(case, "diffusion changed")))
        for case in ("stretched", "a factor below 1")
    ]
    assert all(len(found) > 1 for found in lengths)


@pytest.mark.parametrize(
    "rope",
    [
        {"llama_4_scaling_beta": 0.0},
        {"factor": 1.0},
        {"original_max_position_embeddings": 32},
        {"mscale_all_dim": 0.0},
        {"rope_theta": 1e4},
    ],
)
def test_golden_tells_models_apart(golden: Golden, rope: dict[str, Any]) -> None:
    """Each detail that is easily got wrong moves the logits by far more than the tolerance."""
    wrong = oracle_of("stretched", **rope).logits(IDS, LAST)[ROWS]
    golden.assert_told_apart("stretched", wrong)


def test_a_wrong_loop_gives_another_text(golden: Golden) -> None:
    """Without the seed, with shifted logits inside a block, with commits that see blocks whole."""
    model, right = oracle_of("stretched"), golden["stretched: diffusion"].tolist()
    golden.assert_told_apart("stretched", model.logits(IDS, len(IDS))[ROWS])
    for wrong in ({"seed": False}, {"shift": 1}, {"causal": False}):
        o = replace(options_of("stretched"), **wrong)
        if o.causal:
            found = generate_blocks(model.logits, PROMPT, o)
        else:  # every block sees itself, not just the last
            found = generate_blocks(_blocks(model), PROMPT, o)
        assert found.ids != right, wrong


def _blocks(model: Nemotron) -> Callable[..., Any]:
    from oracle.blocks import block_mask

    class Blocks(Nemotron):
        def visible(self, n: int, p: int) -> Any:
            return block_mask(n, MAKER.WIDTH, self.start_of_block)

    return Blocks(model.w, model.config).logits


@pytest.mark.parametrize("recipe", ["int8", "int4"])
@pytest.mark.parametrize("case", MAKER.CASES)
def test_quantised_generation(
    packed: Callable[..., Path], open_core: Open, case: str, recipe: str
) -> None:
    """The plain loop over the core itself: what is kept between passes changes nothing."""
    core, o = open_core(packed(case, recipe)), options_of(case)

    want = generate_blocks(core_judge(core, o.width, 320, causal=True), PROMPT, o)
    asked = {"max_new_tokens": o.max_new_tokens, "threshold": o.threshold}
    found = core.generate(core.new_state(64), PROMPT, asked)
    assert want.margin > 1e-7 and found["ids"] == want.ids


@pytest.mark.parametrize("recipe", ["int8", "int4"])
def test_int8_activations_as_defined(
    packed: Callable[..., Path], open_core: Open, recipe: str
) -> None:
    folder = packed("stretched", recipe, num_hidden_layers=2)
    model = Nemotron(*read_packed(folder), linear=rounded_activations())
    assert_activations_as_defined(
        open_core, folder, lambda ids: model.logits(ids, 0), logits=previewed_logits
    )


def test_narrower_blocks_and_stops(packed: Callable[..., Path], open_core: Open) -> None:
    """Commits being causal, a block may be narrower than in training; a seed may end the text."""
    core, oracle = open_core(packed("stretched")), oracle_of("stretched")
    o = replace(options_of("stretched"), width=5, max_new_tokens=15)
    want = generate_blocks(oracle.logits, PROMPT, o)
    asked = {"max_new_tokens": 15, "threshold": o.threshold, "block_length": 5}
    assert want.margin > 1e-5
    assert core.generate(core.new_state(64), PROMPT, asked)["ids"] == want.ids
    found = core.generate(core.new_state(64), PROMPT, {**asked, "stop_ids": [want.ids[0]]})
    assert (found["ids"], found["stop_id"]) == ([], want.ids[0])
    assert found["counters"]["denoise_steps"] == 0


def test_threads_change_no_bit(packed: Callable[..., Path], open_core: Open) -> None:
    folder, found = packed("stretched", "int4"), []
    for threads in (1, 2):
        core = open_core(folder, threads=threads)
        found.append(core.commit(core.new_state(64), IDS, logits="all"))
    assert np.array_equal(*found)


def test_an_empty_prompt_is_refused(packed: Callable[..., Path], open_core: Open) -> None:
    core = open_core(packed("stretched"))
    with pytest.raises(ArgumentError, match="prompt is empty"):
        core.generate(core.new_state(64), [], {"max_new_tokens": 8})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("query_scale_beta", -0.1),
        ("query_scale_beta", float("inf")),
        ("query_scale_positions", 0),
    ],
)
def test_fields_out_of_their_domain(
    packed: Callable[..., Path], open_core: Open, field: str, value: float
) -> None:
    with pytest.raises(ModelFormatError, match=f"spec: {field}"):
        open_core(packed("stretched"), spec={field: value})


@pytest.mark.parametrize("case", MAKER.CASES)
def test_golden_can_be_made_again(golden: Golden, case: str) -> None:
    """With the `judge` extra: today's transformers still says the same."""
    need_judge()
    judge = MAKER.transformers_judge(*MAKER.tensors_of(case))
    golden.assert_logits(case, judge(IDS, LAST)[ROWS], AGAIN)
