"""LLaDA2.2's decoding, which inserts and deletes, against a plain loop over `transformers`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkpoints import edited, model_of
from core_checks import core_judge, generated
from golden_checks import Golden, need_judge
from golden_files import maker_of

from clover_edge import _core
from clover_edge.errors import (
    ArgumentError,
    CheckpointError,
    ModelFormatError,
    UnsupportedModelError,
)
from clover_edge.export import export_checkpoint
from clover_edge.generation import GenerationConfig

MAKER, BLOCKS = maker_of("indel"), maker_of("blocks")
PROMPT = BLOCKS.token_ids()[: BLOCKS.PROMPT]
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def golden() -> Golden:
    return Golden("indel")


def source(make: Open, case: str) -> Any:
    return make("llada2", **MAKER.arguments(case))


def core_text(core: Any, case: str) -> tuple[list[int], list[list[int]]]:
    """Ids, and the positions that each step wrote."""
    asked = {"max_new_tokens": 24, "max_post_steps": MAKER.CASES[case][4], **MAKER.CASES[case][3]}
    found, steps = generated(core, core.new_state(64), PROMPT, asked)
    return found["ids"], steps


@pytest.mark.parametrize("isa", _core.available_isas())
@pytest.mark.parametrize("case", MAKER.CASES)
def test_core_is_the_plain_loop(
    golden: Golden,
    tiny_blocks: Open,
    pack: Callable[..., Path],
    open_core: Open,
    case: str,
    isa: str,
) -> None:
    """Every id, and every position that was written at every step."""
    checkpoint = source(tiny_blocks, case)
    golden.assert_drawn(case, checkpoint.tensors)
    ids, steps = core_text(open_core(pack(checkpoint, "f32"), isa=isa), case)
    assert steps == golden.steps(case, "written")
    assert ids == golden.ids(case)


def test_every_rule_has_its_say(golden: Golden) -> None:
    events = {case: set(json.loads(str(golden[f"{case}: events"]))) for case in MAKER.CASES}
    every = {"cleanup", "delete", "fallback", "limit", "loop", "scrubbed", "split"}
    assert set.union(*events.values()) == every
    for case, (_, delete, split, _, _) in MAKER.CASES.items():
        assert not {delete, split} & set(golden.ids(case))


@pytest.mark.parametrize("case", MAKER.CASES)
def test_without_commands_the_text_is_another(
    golden: Golden, tiny_blocks: Open, pack: Open, open_core: Open, case: str
) -> None:
    spec = {"delete_token_id": -1, "split_token_id": -1}
    core = open_core(pack(source(tiny_blocks, case), "f32"), spec=spec)
    assert core_text(core, case)[0] != golden.ids(case)


@pytest.mark.parametrize("recipe", ["int8", "int4"])
@pytest.mark.parametrize("case", ["every rule", "masks of the start"])
def test_quantised_generation(
    tiny_blocks: Open, pack: Open, open_core: Open, case: str, recipe: str
) -> None:
    """The plain loop over the core itself."""
    checkpoint = source(tiny_blocks, case)
    core = open_core(pack(checkpoint, recipe))

    judge = core_judge(core, checkpoint.config["block_size"], checkpoint.config["vocab_size"])
    want = MAKER.text_of(judge, case, checkpoint.config, PROMPT)
    ids, steps = core_text(core, case)
    assert want.margin > 1e-7 and (ids, steps) == (want.ids, want.written)


def test_threads_change_nothing(tiny_blocks: Open, pack: Open, open_core: Open) -> None:
    folder = pack(source(tiny_blocks, "every rule"), "int4")
    one, two = (core_text(open_core(folder, threads=n), "every rule") for n in (1, 2))
    assert one == two


@pytest.mark.parametrize(
    "asked",
    [
        {"steps": 3},
        {"sub_block": 4},
        {"fixed_schedule": True},
        {"skip_rows": True, "edit_threshold": -1.0},
        {"strategy": "sequential", "edit_threshold": -1.0},
        {"temperature": 0.5},
        {"frequency_penalty": 0.5},
    ],
)
def test_refused_options(
    tiny_blocks: Open, pack: Open, open_core: Open, asked: dict[str, Any]
) -> None:
    core = open_core(pack(source(tiny_blocks, "every rule"), "f32"))
    with pytest.raises(ArgumentError, match="insert and delete"):
        core.generate(core.new_state(64), PROMPT, {"max_new_tokens": 8, **asked})


@pytest.mark.parametrize(
    ("spec", "error", "said"),
    [
        ({"delete_token_id": -1}, ModelFormatError, "delete_token_id: -1"),
        ({"split_token_id": 300}, ModelFormatError, "split_token_id: 300"),
        ({"split_token_id": 6}, ModelFormatError, "two are the same"),
        ({"logit_shift": 1}, UnsupportedModelError, "logit_shift"),
    ],
)
def test_refused_specs(
    tiny_blocks: Open,
    pack: Open,
    open_core: Open,
    spec: dict[str, Any],
    error: type[Exception],
    said: str,
) -> None:
    with pytest.raises(error, match=said):
        open_core(pack(source(tiny_blocks, "every rule"), "f32"), spec=spec)


def test_spec_and_defaults(tmp_path: Path) -> None:
    """The pool is 48 experts where there are as many; decoding defaults are the engine's."""
    from tiny_blocks import make_blocks

    make_blocks(tmp_path / "in", "llada2", num_experts=64, **MAKER.arguments("every rule"))
    model = model_of(tmp_path / "in")
    names = ("delete_token_id", "split_token_id", "coreset_size")
    assert [model.spec[name] for name in names] == [6, 171, 48]
    core = GenerationConfig.resolve("x", model.spec, model.generation).core_options(8)
    names = ("threshold", "edit_threshold", "max_post_steps", "fixed_schedule")
    assert [core[name] for name in names] == [0.5, 0.0, 16, False]
    assert model_of(edited(tmp_path / "in", coreset_size=20)).spec["coreset_size"] == 20


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"split_token_id": None}, "split_token_id: is missing"),
        ({"delete_token_id": None}, "delete_token_id: is missing"),
        ({"delete_token_id": 171}, "two are the same"),
        ({"delete_token_id": 300}, "delete_token_id: 300"),
        ({"coreset_size": 2}, "coreset_size: 2"),
    ],
)
def test_refused_configurations(tmp_path: Path, keys: dict[str, Any], said: str) -> None:
    from tiny_blocks import make_blocks

    make_blocks(tmp_path / "in", "llada2", **MAKER.arguments("every rule"))
    with pytest.raises(CheckpointError, match=said):
        model_of(edited(tmp_path / "in", **keys))


def test_text_in_text_out(tmp_path: Path) -> None:
    from tiny_blocks import make_blocks

    import clover_edge

    make_blocks(tmp_path / "in", "llada2", num_experts=64, **MAKER.arguments("every rule"))
    export_checkpoint(tmp_path / "in", tmp_path / "out", recipe="int8")
    with clover_edge.load(tmp_path / "out", threads=1) as model:
        events = list(model.stream("the cat and the", max_new_tokens=12))
        again = model.generate("the cat and the", max_new_tokens=12)
        assert events[-1].result.token_ids == again.token_ids


@pytest.mark.parametrize("case", MAKER.CASES)
def test_golden_can_be_made_again(golden: Golden, case: str) -> None:
    """With the `judge` extra: today's transformers still gives that text."""
    need_judge()
    tensors, config = MAKER.tensors_of(case)
    text = MAKER.text_of(BLOCKS.transformers_judge(tensors, config), case, config, PROMPT)
    assert text.written == golden.steps(case, "written")
