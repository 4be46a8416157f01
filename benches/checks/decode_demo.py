"""Decoding of the demo model: same answers, fewer forwards and rows, the planner's choice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from checks.row import Context, Row, at_least, at_most
from decode_cases import Way, measure

from clover_edge import _core, load
from clover_edge.corpus import TASK_SETS, task_rows
from clover_edge.loader import open_core, read_folder
from clover_edge.tuning import plan_for

RECIPE = "int4"
PROMPTS = 1000  # of all held-out sets together
WIDTHS = (8, 16, 32)
BALANCED = {"skip_rows": True, "coreset_share": 0.4}  # what the planner may choose
APPROXIMATE = {"rows skipped": {"skip_rows": True}, "and fewer experts": BALANCED}
ROUNDS = 7


def _requests(count: int | None = None) -> list[str]:
    """A row of each held-out set in turn, then what the longer sets have left."""
    sets = [task_rows(name) for name in TASK_SETS]
    longest = max(map(len, sets))
    rows = [part[i]["request"] for i in range(longest) for part in sets if i < len(part)]
    return rows[:count]


def balanced_keeps_the_answers(context: Context) -> Iterator[Row]:
    """Exact match with the approximations against the same setting without; the planner's two
    choices."""
    path = context.demo_model(RECIPE)
    with load(path) as model:
        plans = {q: plan_for(model, q, new=True).options for q in ("exact", "balanced")}
    pairs: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        f"{w} wide, {told}": ({"block_length": w}, {"block_length": w, **options})
        for w in WIDTHS
        for told, options in APPROXIMATE.items()
    }
    pairs["the planner's choices"] = (plans["exact"], plans["balanced"])
    for name, (exact, balanced) in pairs.items():
        before, after, n = 0.0, 0.0, 0
        for held_out, size in zip(TASK_SETS, _shares(context), strict=True):
            one = context.score_first(RECIPE, held_out, size, **exact)
            two = context.score_first(RECIPE, held_out, size, **balanced)
            before, after, n = before + one.exact * one.n, after + two.exact * two.n, n + one.n
        note = f"{before / n:.1%} -> {after / n:.1%}, n = {n}"
        if name == "the planner's choices":
            note += f"; {_told(exact)} -> {_told(balanced)}"
        label = f"demo model, balanced against exact, {name}: exact match lost"
        yield at_most(label, 100 * (before - after) / n, 1, "{:.2f}", " points", note)


def _shares(context: Context) -> list[int]:
    """Prompts of each held-out set: a thousand together, or as the run is limited."""
    if context.limit is not None:
        return [context.limit] * len(TASK_SETS)
    return [PROMPTS - 2 * (PROMPTS // 3), PROMPTS // 3, PROMPTS // 3]


def _told(options: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in options.items())


def self_speculation(context: Context) -> Iterator[Row]:
    """Every held-out prompt, drafted and verified, against one token a forward."""
    path = context.demo_model(RECIPE)
    with load(path) as model:
        texts = _requests(None if context.limit is None else 3 * context.limit)
        prompts = [model.chat_prompt([{"role": "user", "content": text}]) for text in texts]
        base = {"max_new_tokens": 96, "stop_ids": list(model.generation["eos_token_id"])}
        ways = [Way("ar", {**base, "mode": "ar"})]
        ways += [
            Way(f"{w} wide", {**base, "mode": "speculative", "block_length": w}) for w in WIDTHS
        ]
        found = measure(model.core, ways, prompts, 1)
    plain = found.pop("ar")
    for name, way in found.items():
        differ = sum(a != b for a, b in zip(way.ids, plain.ids, strict=True))
        label = f"demo model, self-speculation {name}: texts unlike autoregressive"
        yield at_most(label, differ, 0, "{:.0f}", "", f"{len(plain.ids)} held-out prompts")
        speed = f"{way.tokens_per_second:.0f} tok/s, autoregressive {plain.tokens_per_second:.0f}"
        label = f"demo model, self-speculation {name}: autoregressive forwards"
        yield at_least(label, plain.forwards / way.forwards, 1.5, "{:.2f}", "x", speed)


def planner_against_a_sweep(context: Context) -> Iterator[Row]:
    """The setting that the planner chooses, timed beside every other it could have chosen."""
    path = context.demo_model(RECIPE)
    with load(path) as model:
        texts = _requests(30)
        prompts = [model.chat_prompt([{"role": "user", "content": text}]) for text in texts]
        stops = list(model.generation["eos_token_id"])
        for quality in ("exact", "balanced"):
            plan = plan_for(model, quality, new=True)
            ways = []
            for candidate in plan.candidates:
                options = {name: value for name, value in candidate.options.items()}
                options |= {"max_new_tokens": 48, "stop_ids": stops}
                if "coreset_size" in options:
                    options["coreset"] = options.pop("coreset_size")
                threshold = model.generation.get("threshold", 0.9)
                ways.append(Way(_told(candidate.options), {"threshold": threshold, **options}))
            found = measure(model.core, ways, prompts, ROUNDS)
            speeds = {name: way.tokens_per_second for name, way in found.items()}
            best = max(speeds, key=speeds.__getitem__)
            chosen = speeds[ways[0].name]
            note = (
                f"{ways[0].name} {chosen:.0f} tok/s; best of {len(ways)}: {best} {speeds[best]:.0f}"
            )
            label = f"demo model, planner's choice, {quality}: speed of the best in a sweep"
            yield at_least(label, 100 * chosen / speeds[best], 95, "{:.1f}", " %", note)


def fused_commit(context: Context) -> Iterator[Row]:
    """A commit in the next preview's pass against two passes: logits, and bytes as counted."""
    folder = read_folder(context.demo_model(RECIPE))
    core = open_core(folder)
    mask, valid = folder.spec["mask_token_id"], folder.spec["valid_vocab"]
    rng = np.random.default_rng(0)
    worst, nbytes = 0.0, [0, 0]
    one, two = core.new_state(600), core.new_state(600)
    for width in (32, 16, 8, 5, 1, 32, 32):
        ids, block = rng.integers(mask + 1, valid, (2, width)).tolist()
        block = [mask if rng.random() < 0.6 else token for token in block]
        start = core.counters["bytes_read"]
        core.commit(two, ids, logits="none")
        want = core.preview(two, block)
        middle = core.counters["bytes_read"]
        found = core.preview(one, block, commit=ids)
        nbytes[0] += middle - start
        nbytes[1] += core.counters["bytes_read"] - middle
        worst = max(worst, float(np.abs(found - want).max() / np.abs(want).max()))
    yield at_most("fused commit against separate passes: logits", worst, 1e-5)
    share = nbytes[1] / nbytes[0]
    yield Row("fused commit: bytes read, of separate passes", f"{share:.2f}x", "< 1x", share < 1)


def rows_of_a_skipping_block(context: Context) -> Iterator[Row]:
    """Blocks of 32 in 8 steps of 4 tokens: rows computed a token, commits counted."""
    core = open_core(read_folder(context.demo_model(RECIPE)))
    base: dict[str, Any] = {"max_new_tokens": 320, "block_length": 32, "commit_last": True}
    base |= {"threshold": 2.0, "steps": 8, "fixed_schedule": True}
    rows = []
    for options in ({}, {"skip_rows": True}):
        result = core.generate(core.new_state(1024), [5, 6, 7], {**base, **options})
        assert result["counters"]["denoise_steps"] == 80
        rows.append(result["counters"]["rows"] / len(result["ids"]))
    note = f"{rows[1]:.2f} of {rows[0]:.2f} rows a token"
    label = "balanced, 32 wide, 8 steps a block: rows of exact"
    yield at_most(label, 100 * rows[1] / rows[0], 73, "{:.1f}", " %", note)


def exact_runs_repeat(context: Context) -> Iterator[Row]:
    """One thread and two, a prompt at once and in pieces: the same ids, mode by mode."""
    path = context.demo_model(RECIPE)
    with load(path) as model:
        texts = _requests(60 if context.limit is None else 3 * context.limit)
        prompts = [model.chat_prompt([{"role": "user", "content": text}]) for text in texts]
        stops = list(model.generation["eos_token_id"])
    folder = read_folder(path)
    cores = [open_core(folder, threads=n) for n in (1, 2)]
    differ = {"one thread and two": 0, "session and cold prompt": 0}
    for mode in ("diffusion", "ar", "speculative"):
        options = {"mode": mode, "max_new_tokens": 64, "block_length": 16, "stop_ids": stops}
        for prompt in prompts:
            ids = [_ids(core, [prompt], options) for core in cores]
            split = len(prompt) // 2
            pieces = _ids(cores[1], [prompt[:split], prompt[split:]], options)
            differ["one thread and two"] += ids[0] != ids[1]
            differ["session and cold prompt"] += pieces != ids[1]
    for name, count in differ.items():
        note = f"{3 * len(prompts)} generations in three modes"
        yield at_most(f"two exact runs, {name}: texts that differ", count, 0, "{:.0f}", "", note)


def _ids(core: _core.Model, pieces: list[list[int]], options: dict[str, Any]) -> list[int]:
    """Generated behind the last piece, in a session that holds the others."""
    state = core.new_state(sum(map(len, pieces)) + 128)
    for piece in pieces[:-1]:
        core.commit(state, piece, logits="none")
    ids: list[int] = core.generate(state, pieces[-1], options)["ids"]
    return ids
