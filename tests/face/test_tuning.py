"""The planner: predictions from costs and traces, choices by quality, plans that are kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import clover_edge
from clover_edge.cli.main import main
from clover_edge.errors import ArgumentError
from clover_edge.tuning import Plan, plan_for
from clover_edge.tuning.costs import Costs, measure_costs, threads_to_try
from clover_edge.tuning.planner import FREE, Settings
from clover_edge.tuning.predict import autoregressive, diffusion, speculative
from clover_edge.tuning.traces import Trace, measure_trace

# A row costs a second, a pass two more; a row of the head a tenth.
ROWS = (1, 64)
COSTS = Costs(ROWS, (3.0, 66.0), (3.0, 66.0), (0.1, 6.4))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "clover-edge" / "plans"


@pytest.fixture(scope="module")
def model(packed: Path) -> clover_edge.Model:
    return clover_edge.load(packed)


def test_predictions_by_hand() -> None:
    """Blocks of 8: the first in three steps, the second in two."""
    trace = Trace(8, (((2, 2, 4), (4, 4)),), tokens=16)
    head = 0.1 * (8 + 6 + 4 + 8 + 4)
    exact = (2 + 8) * 3 + (2 + 8 + 8) + (2 + 8)  # the second block's first pass commits, too
    assert diffusion(
        trace, COSTS, first=COSTS, skip_rows=False, refresh=0, fused=True
    ) == pytest.approx(exact + head)
    apart = diffusion(trace, COSTS, first=COSTS, skip_rows=False, refresh=0, fused=False)
    assert apart == pytest.approx(exact + head + 2)
    skipped = 2 * 5 + 8 + 8 + 6 + (8 + 8) + 8  # accepted rows once more, then no longer
    assert diffusion(
        trace, COSTS, first=COSTS, skip_rows=True, refresh=0, fused=True
    ) == pytest.approx(skipped + head)
    refreshed = diffusion(trace, COSTS, first=COSTS, skip_rows=True, refresh=2, fused=True)
    assert refreshed == pytest.approx(skipped + 2 + head)  # the third step's 6 rows become 8
    assert autoregressive(trace, COSTS) == pytest.approx(16 * 3.1)
    rounds = Trace(8, (((3,), (5,)),), tokens=8)
    assert speculative(rounds, COSTS) == pytest.approx(2 * (10 + 10 + 0.7 + 0.8))


def test_a_first_step_is_not_limited() -> None:
    limited = replace(COSTS, restricted=tuple(0.5 * seconds for seconds in COSTS.free))
    trace = Trace(8, (((5, 3),),), tokens=8)
    how: dict[str, Any] = {"skip_rows": False, "refresh": 0, "fused": True}
    free = diffusion(trace, COSTS, first=COSTS, **how)
    found = diffusion(trace, limited, first=COSTS, **how)
    assert free - found == pytest.approx(0.5 * COSTS.forward(0, 8))


def test_traces_are_what_the_loop_did(model: clover_edge.Model) -> None:
    prompts = [model.tokenize("Hello"), model.tokenize("Good morning")]
    options = {"mode": "diffusion", "max_new_tokens": 24, "threshold": 0.1}
    trace = measure_trace(model.core, prompts, 8, options)
    assert trace.tokens == 48
    assert [len(text) for text in trace.texts] == [3, 3]
    assert all(sum(block) == 8 for text in trace.texts for block in text)
    rounds = measure_trace(model.core, prompts, 8, {**options, "mode": "speculative"})
    assert [sum(block[0] for block in text) for text in rounds.texts] == [24, 24]


def test_costs_are_looked_up_by_rows(model: clover_edge.Model) -> None:
    costs = measure_costs(model.core, model.tokenize("Hello"), 128, coreset=3)
    assert costs.rows[-1] == 128
    assert {len(costs.free), len(costs.restricted), len(costs.head)} == {len(costs.rows)}
    assert min(costs.free + costs.restricted) > 0 <= min(costs.head)
    assert costs.forward(0, 12) == pytest.approx(costs.restricted[costs.rows.index(12)])
    assert costs.forward(14, 0) == pytest.approx((costs.free[4] + costs.free[5]) / 2)  # 12 and 16


def test_numbers_of_threads() -> None:
    assert [threads_to_try(n) for n in (1, 2, 3, 8)] == [[1], [2, 1], [3, 1], [8, 4, 1]]


SPEC: dict[str, Any] = {"block_size": 32, "num_experts": 64, "top_k": 8}
SETTINGS = [
    ({}, {}, "exact", ("diffusion", "ar", "speculative"), 1, (FREE,)),
    ({}, {}, "balanced", ("diffusion", "ar", "speculative"), 3, (FREE, (0, 0.4))),
    ({}, {}, "fast", ("diffusion", "ar", "speculative"), 3, (FREE, (0, 0.4), (12, 0.0))),
    ({"num_experts": 0, "top_k": 0}, {}, "fast", ("diffusion", "ar", "speculative"), 3, (FREE,)),
    ({"mask": "block"}, {}, "balanced", ("diffusion",), 3, (FREE, (0, 0.4))),
    ({"mask": "block"}, {"edit_threshold": 0.9}, "balanced", ("diffusion",), 1, (FREE,)),
    ({"mask": "block", "delete_token_id": 7}, {}, "balanced", ("diffusion",), 1, (FREE,)),
    ({"mask": "full"}, {}, "balanced", ("diffusion",), 1, (FREE,)),
    ({"noise": "uniform"}, {}, "balanced", ("diffusion",), 1, (FREE,)),
    ({"delta_preview": "causal"}, {}, "balanced", ("diffusion", "ar", "speculative"), 1, (FREE,)),
    ({"preview": False}, {}, "fast", ("ar",), 1, (FREE,)),
]


@pytest.mark.parametrize(("spec", "generation", "quality", "modes", "skips", "limits"), SETTINGS)
def test_what_may_be_chosen(
    spec: dict[str, Any],
    generation: dict[str, Any],
    quality: str,
    modes: tuple[str, ...],
    skips: int,
    limits: tuple[tuple[int, float], ...],
) -> None:
    settings = Settings.of({**SPEC, **spec}, generation, quality)
    assert settings.modes == modes
    assert len(settings.skips) == skips
    assert settings.limits == limits
    widths = (1,) if modes == ("ar",) else (4, 8, 16, 32)
    assert settings.widths == ((32,) if spec.get("mask") == "block" else widths)
    if spec.get("mask") == "full":  # where the caches are the approximation
        exact = Settings.of({**SPEC, **spec}, generation, "exact")
        assert (exact.caches, settings.caches) == (("none",), ("dual", "prefix"))


def test_a_plan_is_made_once(model: clover_edge.Model, cache: Path) -> None:
    seen: list[str] = []
    plan = plan_for(model, "balanced", prompts=["Hello"], new_tokens=16, progress=seen.append)
    assert seen and len(list(cache.iterdir())) == 1
    seen.clear()
    assert plan_for(model, "balanced", progress=seen.append) == plan
    assert not seen
    assert Plan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan
    speeds = [c.measured_tps for c in plan.candidates if c.measured_tps is not None]
    assert len(speeds) == 3 and speeds == sorted(speeds, reverse=True)
    assert plan.options == plan.candidates[0].options
    result = model.generate("Hello", quality="balanced", max_new_tokens=16)
    assert result.token_ids == model.generate("Hello", max_new_tokens=16, **plan.options).token_ids


def test_the_callers_options_count_more_than_the_plan(model: clover_edge.Model) -> None:
    plan_for(model, "exact", prompts=["Hello"], new_tokens=8)
    asked: dict[str, Any] = {"max_new_tokens": 8, "mode": "diffusion", "block_length": 5}
    found = model.generate("Hello", quality="exact", **asked)
    assert found.token_ids == model.generate("Hello", **asked).token_ids
    assert found.counters.blocks == 2


def test_full_attention(
    tmp_path: Path, tiny_full_attention: Callable[..., Any], pack: Callable[..., Any]
) -> None:
    """Every setting is timed; nothing is approximated where exactness is asked for."""
    with clover_edge.load(pack(tiny_full_attention("llada"), "f32")) as model:
        for quality, caches in (("exact", {"none"}), ("balanced", {"dual", "prefix"})):
            plan = plan_for(model, quality, prompts=["Hello"], new_tokens=16)
            assert {each.options["cache"] for each in plan.candidates} == caches
            timed = [each.measured_tps is not None for each in plan.candidates]
            assert timed == [len(timed) > 1] * len(timed)  # a single one needs no race


@pytest.mark.parametrize("text", ["", "{", "[]", '{"quality": "balanced"}', "\0"])
def test_a_spoiled_plan_is_made_again(model: clover_edge.Model, cache: Path, text: str) -> None:
    plan_for(model, "exact", prompts=["Hello"], new_tokens=4)
    (file,) = cache.iterdir()
    file.write_text(text)
    plan_for(model, "exact", prompts=["Hello"], new_tokens=4)
    assert json.loads(file.read_text())["quality"] == "exact"


def test_a_cache_that_cannot_be_written(
    model: clover_edge.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert plan_for(model, "exact", prompts=["Hello"], new_tokens=4).quality == "exact"


def test_unknown_quality(model: clover_edge.Model) -> None:
    with pytest.raises(ArgumentError, match=r"quality: 'best' is none of 'exact', 'balanced'"):
        model.generate("Hello", quality="best")


def test_command(packed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("Hello\n\nGood morning\n")
    command = ["tune", str(packed), "--prompts", str(prompts), "--max-new-tokens", "8"]
    assert main(command) == 0
    out, err = capsys.readouterr()
    assert "predicted tok/s" in out
    assert "chosen for --quality balanced: --threads " in out.splitlines()[-1]
    assert "measuring costs of a forward" in err
    assert main([*command, "--json", "--quality", "exact"]) == 0
    assert json.loads(capsys.readouterr().out)["quality"] == "exact"
    for spoiled, reason in ((b"", "holds no line"), (b"\xff", "is not UTF-8 at byte 0")):
        prompts.write_bytes(spoiled)
        assert main(command) == 2
        assert reason in capsys.readouterr().err
    assert main([*command[:3], str(tmp_path / "none"), *command[4:]]) == 2
    assert main([*command[:-1], "0"]) == 2
