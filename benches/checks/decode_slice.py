"""Decoding of a tenth of Clover, random weights: what the techniques cost, acceptance stated.

How many tokens a step accepts is the demo model's, by width, scaled so that a block of 32 accepts
4 a forward when nothing is approximated, commits counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from checks.decode_demo import RECIPE
from checks.row import Context, Row, at_least
from decode_cases import Measured, Way, measure, speedup, stated_steps
from forward_cases import Bench, Ids
from synthetic import SHAPES

from clover_edge import load
from clover_edge.corpus import TASK_SETS, task_rows
from clover_edge.loader import open_core, read_folder

WIDTHS = (8, 12, 16, 24, 32)
WIDEST = 4.0  # tokens a forward of a block of 32
THREADS = 2
PROMPT, NEW_TOKENS, ROUNDS = 256, 96, 7
CORESET = 48


def _tokens_per_forward(context: Context) -> dict[int, float]:
    """By width: the demo model on held-out requests, previews and commits counted."""
    found = {}
    with load(context.demo_model(RECIPE)) as model:
        for width in WIDTHS:
            tokens = forwards = 0
            for name in TASK_SETS:
                for row in task_rows(name)[: min(context.limit or 100, 100)]:
                    request = [{"role": "user", "content": row["request"]}]
                    counters = model.chat(request, block_length=width, mode="diffusion").counters
                    tokens += counters.tokens
                    forwards += counters.denoise_steps + counters.blocks
            found[width] = tokens / forwards
    return found


def _ways(steps: dict[int, float], coreset: int) -> list[Way]:
    base: dict[str, Any] = {"max_new_tokens": NEW_TOKENS}
    ways = [Way("ar", {**base, "mode": "ar"})]
    for width in WIDTHS:
        exact = {**base, "mode": "diffusion", "block_length": width, "coreset": coreset}
        ways.append(Way(f"exact {width} wide", exact, steps[width]))
        ways.append(Way(f"balanced {width} wide", {**exact, "skip_rows": True}, steps[width]))
    return ways


def _measured(
    context: Context, recipe: str, routing: str, coreset: int
) -> tuple[dict[str, Measured], str]:
    bench = Bench(context.models, SHAPES["slice"], "slice", THREADS)
    folder = read_folder(bench.path(recipe, routing=routing))
    core, ids = open_core(folder, threads=THREADS), Ids(folder.spec["vocab_size"])
    core.commit(core.new_state(512), ids(512), logits="none")  # maps every page
    rates = _tokens_per_forward(context)
    steps = stated_steps(rates, WIDEST)
    told = ", ".join(f"{w}: {w / (n + 1):.2f}" for w, n in steps.items())
    ways, prompts = _ways(steps, coreset), [ids(PROMPT)]
    glance = measure(core, ways, prompts, 1)
    kept = ("ar", _best(glance, "exact"), _best(glance, "balanced"))
    chosen = [way for way in ways if way.name in kept]
    return measure(core, chosen, prompts, ROUNDS), f"tokens a forward {told}"


def _best(found: dict[str, Measured], kind: str) -> str:
    """The fastest of a kind."""
    names = [name for name in found if name.startswith(kind)]
    return max(names, key=lambda name: found[name].tokens_per_second)


def balanced_against_exact(context: Context) -> Iterator[Row]:
    """Each at its best width, both with fused commits."""
    found, told = _measured(context, "int4", "correlated", 0)
    exact, balanced = _best(found, "exact"), _best(found, "balanced")
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
    for recipe, routing, coreset, bounded in cases:
        found, told = _measured(context, recipe, routing, coreset)
        best = max(
            _best(found, "exact"),
            _best(found, "balanced"),
            key=lambda n: found[n].tokens_per_second,
        )
        ratio, plain = speedup(found, best, "ar"), found["ar"].tokens_per_second
        label = f"slice, {recipe}, {routing}" + (f", coreset {coreset}" if coreset else "")
        label += ": best diffusion against autoregressive"
        note = f"{best} {found[best].tokens_per_second:.1f}, ar {plain:.1f} tok/s; {told}"
        if bounded:
            yield at_least(label, ratio, 1.3, "{:.2f}", "x", note)
        else:
            yield Row(label, f"{ratio:.2f}x", "beside it", True, note)
