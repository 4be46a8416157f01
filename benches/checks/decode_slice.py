"""Decoding of a tenth of Clover, random weights: what the techniques cost, acceptance stated.

How many tokens a step accepts is the demo model's, by width, scaled so that a block of 32 accepts
4 a forward when nothing is approximated, commits counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from checks.decode_demo import BALANCED, RECIPE
from checks.row import Context, Row, at_least
from decode_cases import Measured, Way, speedup, stated_steps
from forward_cases import Bench, Ids
from replay import Replay
from synthetic import SHAPES

from clover_edge import load
from clover_edge.corpus import TASK_SETS, task_rows
from clover_edge.loader import open_core, read_folder

WIDTHS = (8, 12, 16, 24, 32)
WIDEST = 4.0  # tokens a forward of a block of 32
THREADS = 2
PROMPT, ROUNDS = 256, 7
CORESET = 48


KINDS: dict[str, dict[str, Any]] = {"exact": {}, "balanced": BALANCED}
Steps = dict[str, dict[int, float]]  # of a block, by kind and width


def _steps(context: Context) -> Steps:
    """Steps of a block by kind and width, as the demo model takes them on held-out requests, scaled
    alike: the widest exact block accepts WIDEST a forward, previews and commits counted."""
    found: Steps = {kind: {} for kind in KINDS}
    with load(context.demo_model(RECIPE)) as model:
        for kind, width in product(KINDS, WIDTHS):
            options: dict[str, Any] = {"block_length": width, "mode": "diffusion", **KINDS[kind]}
            tokens = forwards = 0
            for name in TASK_SETS:
                for row in task_rows(name)[: min(context.limit or 100, 100)]:
                    request = [{"role": "user", "content": row["request"]}]
                    counters = model.chat(request, **options).counters
                    tokens += counters.tokens
                    forwards += counters.denoise_steps + counters.blocks
            found[kind][width] = tokens / forwards
    scale = WIDEST / found["exact"][max(WIDTHS)]
    return {kind: stated_steps(rates, scale) for kind, rates in found.items()}


def _ways(steps: Steps, coreset: int) -> list[Way]:
    ways = [Way("ar", {"mode": "ar"})]
    for kind, width in product(KINDS, WIDTHS):
        options = {"mode": "diffusion", "block_length": width, "coreset": coreset, **KINDS[kind]}
        ways.append(Way(f"{kind} {width} wide", options, steps[kind][width]))
    return ways


def _measured(
    context: Context, steps: Steps, recipe: str, routing: str, coreset: int
) -> tuple[dict[str, Measured], str]:
    bench = Bench(context.models, SHAPES["slice"], "slice", THREADS)
    folder = read_folder(bench.path(recipe, routing=routing))
    core, ids = open_core(folder, threads=THREADS), Ids(folder.spec["vocab_size"])
    core.commit(core.new_state(512), ids(512), logits="none")  # maps every page
    found = Replay(core, ids, PROMPT).measure(_ways(steps, coreset), ROUNDS)
    rates = (f"{name} {found[name].tokens / found[name].forwards:.2f}" for name in _bests(found))
    return found, "tokens a forward: " + ", ".join(rates)


def _best(found: dict[str, Measured], kind: str) -> str:
    """The fastest of a kind."""
    names = [name for name in found if name.startswith(kind)]
    return max(names, key=lambda name: found[name].tokens_per_second)


def _bests(found: dict[str, Measured]) -> tuple[str, str]:
    return _best(found, "exact"), _best(found, "balanced")


def balanced_against_exact(context: Context) -> Iterator[Row]:
    """Each at its best width, both with fused commits."""
    found, told = _measured(context, _steps(context), "int4", "correlated", 0)
    exact, balanced = _bests(found)
    note = f"{exact} {found[exact].tokens_per_second:.1f}, {balanced} "
    note += f"{found[balanced].tokens_per_second:.1f} tok/s; {told}"
    ratio = speedup(found, balanced, exact)
    yield at_least(
        "slice, balanced against exact: tokens a second", ratio, 1.25, "{:.2f}", "x", note
    )


def diffusion_against_autoregression(context: Context) -> Iterator[Row]:
    """The best diffusion setting against autoregressive decoding of the same packed model."""
    cases = (
        ("int4", "correlated", 0, True),
        ("int4", "correlated", CORESET, True),
        ("int4-all", "correlated", CORESET, False),
        ("int4", "random", 0, False),
        ("int4", "random", CORESET, False),
    )
    steps = _steps(context)
    for recipe, routing, coreset, bounded in cases:
        found, told = _measured(context, steps, recipe, routing, coreset)
        best = max(_bests(found), key=lambda name: found[name].tokens_per_second)
        ratio, plain = speedup(found, best, "ar"), found["ar"].tokens_per_second
        label = f"slice, {recipe}, {routing}" + (f", coreset {coreset}" if coreset else "")
        label += ": best diffusion against autoregressive"
        note = f"{best} {found[best].tokens_per_second:.1f}, ar {plain:.1f} tok/s; {told}"
        if bounded:
            yield at_least(label, ratio, 1.3, "{:.2f}", "x", note)
        else:
            yield Row(label, f"{ratio:.2f}x", "beside it", True, note)
