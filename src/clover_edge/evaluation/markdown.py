"""An evaluation as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .report import MODES, SIDES

if TYPE_CHECKING:
    from .report import Evaluation, Facts

_TITLES = {"commit": "Commit mode: the next token", "preview": "Preview mode: masked positions"}
_MIXERS = {"deltanet": "DeltaNet"}


def render(found: Evaluation) -> str:
    """Tables: the models, both modes, the layers, the tasks."""
    parts = [_head(found), _models(found)]
    for mode, facts in (("commit", found.commit), ("preview", found.preview)):
        if facts is not None:
            parts.append(_mode(found, mode, facts))
    if found.layers:
        parts.append(_layers(found))
    if found.tasks:
        parts.append(_tasks(found))
    return "\n\n".join(parts) + "\n"


def _sides(found: Evaluation) -> Sequence[str]:
    return SIDES if found.against else SIDES[:1]


def _names(found: Evaluation) -> list[str]:
    names = [facts["name"] for facts in (found.model, found.against) if facts]
    return names if len(set(names)) == len(names) else list(_sides(found))


def _head(found: Evaluation) -> str:
    against = f" against {found.against['name']}" if found.against else ""
    text = found.text
    masks = f", {text['masks']} mask{'s' * (text['masks'] > 1)} a block"
    return (
        f"# Quality of {found.model['name']}{against}\n\n"
        f"Text: {text['source']}, {text['sequences']:,} sequences, "
        f"{text['tokens']:,} tokens, {text['bytes']:,} bytes"
        f"{masks if found.preview else ''} (seed {text['seed']})."
    )


def _models(found: Evaluation) -> str:
    sides = [facts for facts in (found.model, found.against) if facts]
    rows = [
        ["recipe", *(f"{facts['recipe']}, {facts['family']}" for facts in sides)],
        ["weights", *(f"{facts['parameters']:,}" for facts in sides)],
        ["bytes", *(f"{facts['bytes']:,}" for facts in sides)],
        ["bits a weight", *(f"{8 * f['bytes'] / f['parameters']:.2f}" for f in sides)],
    ]
    return _table(["", *_names(found)], rows)


def _mode(found: Evaluation, mode: str, facts: Facts) -> str:
    sides = _sides(found)
    rows = []
    if mode == "commit":
        rows.append(["perplexity", *(f"{facts[side]['perplexity']:.5g}" for side in sides)])
    bits = "bits per byte" if mode == "commit" else "NELBO, bits per byte"
    rows.append([bits, *(_figure(facts[side]["bits_per_byte"], ".4f") for side in sides)])
    table = _table(["", *_names(found)], rows)
    where = f"{facts['positions']:,} positions"
    if mode == "preview":
        where += f" in {facts['blocks']:,} blocks of at most {facts['block_length']}"
    parts = [f"## {_TITLES[mode]}", table]
    if found.against:
        parts.append(
            f"KL divergence {facts['kl']:.3g} nats a position, top-1 agreement "
            f"{100 * facts['top1_agreement']:.2f} %, {where}."
        )
    return "\n\n".join(parts)


def _layers(found: Evaluation) -> str:
    modes = [mode for mode in MODES if mode in found.layers[0]]
    names = ("mixer error", "feed-forward error", "router agreement")
    head = ["layer", "mixer", *(f"{mode}: {name}" for mode in modes for name in names)]
    rows = []
    for row in found.layers:
        cells: list[str] = [str(row["layer"]), str(_MIXERS.get(row["mixer"], row["mixer"]))]
        for mode in modes:
            cells += [f"{row[mode][f'{half}_error']:.4f}" for half in ("mixer", "feed_forward")]
            cells.append(_figure(row[mode]["router_agreement"], ".2%"))
        rows.append(cells)
    return f"## Layers\n\n{_table(head, rows)}"


def _tasks(found: Evaluation) -> str:
    rows = []
    for name, sides in found.tasks.items():
        for side, label in zip(_sides(found), _names(found), strict=True):
            score = sides[side]
            rows.append(
                [
                    f"{name} ({score['requests']:,})",
                    label,
                    f"{score['exact']:.1%} ± {score['exact_error']:.1%}",
                    f"{score['valid']:.1%}",
                    f"{score['tools']:.1%}",
                    f"{score['tokens_per_forward']:.2f}",
                ]
            )
    head = ["requests", "model", "exact", "valid", "tools", "tokens per forward"]
    return f"## Tasks\n\n{_table(head, rows)}"


def _figure(value: Any, form: str) -> str:
    return "-" if value is None else format(value, form)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
