"""Tiny checkpoints of every family: logits and whole greedy texts against judges that run now, and
every combination of model type, recipe and mode. The table is tests/families.py."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from checks.row import Check, Context, Row, at_most, relative
from peers.codes import Missing, needs

from clover_edge.loader import open_core, read_folder

TOLERANCE = 1e-3
# What a text must have to tell right from wrong.
FEWEST, MARGIN = 3, 1e-4  # different ids; least distance of a decision to another one


def registered_families(context: Context) -> Iterator[Row]:
    """Model types of the registry that the table does not know are measured by no row below."""
    from families import BY_TYPE, REGISTERED

    unknown = [kind for kind in REGISTERED if kind not in BY_TYPE]
    name = f"model types without a row in tests/families.py, of {len(REGISTERED)}"
    yield at_most(name, len(unknown), 0, "{:.0f}", note=", ".join(unknown))


def logits_against_transformers(context: Context) -> Iterator[Row]:
    """A pass over a whole text at f32, by family."""
    from families import FAMILIES

    for name in FAMILIES:
        label = f"{name}: f32 logits against transformers"
        try:
            with needs("judge"):
                import transformers

                core, judge = _opened(context, name)
                ids, wanted = judge.logits()
        except Missing as reason:
            yield Row(label, "-", "-", None, str(reason))
            continue
        found = core.commit(core.new_state(len(ids)), ids, logits="all")
        note = f"transformers {transformers.__version__}, {len(ids)} tokens"
        yield at_most(label, relative(found, wanted), TOLERANCE, note=note)


def greedy_texts(context: Context) -> Iterator[Row]:
    """Every id of a generation in each mode, against a plain loop that caches nothing."""
    from families import FAMILIES

    for name, family in FAMILIES.items():
        for mode in family.modes:
            label = f"{name}, {mode}: greedy ids unlike a plain loop's"
            try:
                with needs("judge"):
                    core, judge = _opened(context, name)
                    text = judge.text(mode)
            except Missing as reason:
                yield Row(label, "-", "-", None, str(reason))
                continue
            state = core.new_state(2 * (len(text.prompt) + len(text.ids)))
            ids = core.generate(state, text.prompt, {**text.options, "mode": mode})["ids"]
            differ = sum(a != b for a, b in zip(ids, text.ids, strict=False))
            differ += abs(len(ids) - len(text.ids))
            kinds = len(set(text.ids))
            note = f"{len(text.ids)} ids, {kinds} different; closest decision {text.margin:.1e}"
            row = at_most(label, differ, 0, "{:.0f}", note=note)
            telling = kinds >= FEWEST and text.margin > MARGIN
            yield row if telling else replace(row, bound="telling text", holds=False)


def combinations(context: Context) -> Iterator[Row]:
    """Model types x recipes x modes, each exported and run. A type without a row counts, too."""
    from families import BY_TYPE, RECIPES, REGISTERED, run_modes, write

    done, every, wrong = 0, 0, list[str]()
    for kind in REGISTERED:
        if kind not in BY_TYPE:
            every, wrong = every + len(RECIPES), [*wrong, f"{kind}: no row"]
            continue
        folder, modes = context.scratch / f"every-{kind}", BY_TYPE[kind].modes
        write(folder / "in", kind)
        for recipe in RECIPES:
            found = list(run_modes(folder / "in", folder / recipe, recipe, modes))
            every, done = every + len(modes), done + found.count("")
            wrong += [f"{kind}, {recipe}, {reason}" for reason in found if reason]
    note = "; ".join(wrong) or f"{len(REGISTERED)} model types, recipes {', '.join(RECIPES)}"
    name = "model types x recipes x modes, exported and run"
    yield Row(name, f"{done} of {every}", "all", done == every, note)


def _opened(context: Context, name: str) -> tuple[Any, Any]:
    """(core, judge) of a family at f32."""
    from families import FAMILIES, write

    source = context.scratch / f"family-{name}"
    judge = write(source, FAMILIES[name].model_types[0])
    return open_core(read_folder(context.pack(f"family-{name}", source, "f32")), threads=1), judge


CHECKS: list[Check] = [
    registered_families,
    logits_against_transformers,
    greedy_texts,
    combinations,
]
