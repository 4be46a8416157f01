"""Pictures with bars: a row of panels a model, a bar a device and runtime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .figures import TITLES, colour, count_in_thousands, distinct, frame, label
from .results import Result
from .tables import significant

_BAR = 0.24  # inches of a bar and the space around it
_AROUND = 1.1  # inches of titles and axis
_PANEL = 2.5  # inches
_LETTER = 0.075  # inches, at this size of type


@dataclass(frozen=True)
class _Bar:
    name: str
    value: float
    deviation: float
    colour: str


Panel = tuple[str, list[_Bar]]  # a title, and bars
Figure = Callable[[Result], float]


def speed(results: Sequence[Result]) -> Any:
    """Tokens a second with nothing in front: a row a model, a column a test."""
    kept = [result for result in results if result.depth == 0]
    value = lambda r: r.record["avg_ts"]  # noqa: E731
    return _tests(kept, "tokens/s", value, lambda r: r.record["stddev_ts"])


def energy(results: Sequence[Result]) -> Any:
    """Millijoules a token, where something measures them."""
    kept = [result for result in results if has_energy(result)]
    value = lambda r: 1e3 * (r.joules_per_token or 0.0)  # noqa: E731
    return _tests(kept, "mJ a token", value, lambda r: 1e3 * r.record["stddev_energy_j"] / r.tokens)


def has_energy(result: Result) -> bool:
    return result.depth == 0 and bool(result.joules_per_token)


def first_block(results: Sequence[Result]) -> Any:
    """Time until a text's first block stands, prompt not counted."""
    kept = [result for result in results if has_first_block(result)]
    rows = {}
    for model in distinct(kept, lambda r: r.model):
        found = [result for result in kept if result.model == model]
        bars = [
            _Bar(
                _behind(result, kept),
                result.record["ttfb_ns"] / 1e6,
                result.record["stddev_ttfb_ns"] / 1e6,
                colour(result),
            )
            for result in found
        ]
        rows[model] = [("first block of a text", bars)]
    return _figure(rows, "ms", width=2 * _PANEL)


def has_first_block(result: Result) -> bool:
    return result.kind == "tg" and bool(result.record.get("ttfb_ns"))


def _behind(result: Result, among: Sequence[Result]) -> str:
    behind = f"behind {result.depth:,} tokens" if result.depth else "at the start"
    name = label(result, among)
    return behind if name == result.runtime else f"{name}, {behind}"


def _tests(kept: Sequence[Result], unit: str, value: Figure, deviation: Figure) -> Any:
    rows: dict[str, list[Panel]] = {}
    for model in distinct(kept, lambda r: r.model):
        panels: dict[str, list[_Bar]] = {}
        for result in kept:
            if result.model == model:
                bar = _Bar(label(result, kept), value(result), deviation(result), colour(result))
                panels.setdefault(f"{result.test}: {TITLES[result.kind]}", []).append(bar)
        rows[model] = list(panels.items())
    return _figure(rows, unit, width=_PANEL)


def _figure(rows: dict[str, list[Panel]], unit: str, width: float) -> Any:
    """Panels of a row share the names of their bars, which stand at its left."""
    from matplotlib.figure import Figure

    names = [
        list(dict.fromkeys(bar.name for _, bars in panels for bar in bars))
        for panels in rows.values()
    ]
    heights = [_AROUND + _BAR * len(found) for found in names]
    margin = _LETTER * max(len(name) for found in names for name in found)
    most = max(map(len, rows.values()))
    figure = Figure(figsize=(margin + width * most, sum(heights)), layout="constrained")
    parts = figure.subfigures(len(rows), 1, squeeze=False, height_ratios=heights)
    for part, found, (model, panels) in zip(parts[:, 0], names, rows.items(), strict=True):
        part.suptitle(model, x=0.005, ha="left", weight="bold", fontsize=10)
        axes = part.subplots(1, most, squeeze=False)[0]
        for axis in axes[len(panels) :]:
            axis.set_visible(False)
        for axis, (title, bars) in zip(axes, panels, strict=False):
            _bars(axis, bars, found, unit, title)
        for axis in axes[1:]:
            axis.tick_params(labelleft=False)
    return figure


def _bars(axis: Any, bars: Sequence[_Bar], names: list[str], unit: str, title: str) -> None:
    """Horizontal bars at their names' places; the value is written behind each."""
    most = max(bar.value + bar.deviation for bar in bars)
    for bar in bars:
        place = names.index(bar.name)
        whisker = {"lw": 0.8, "capsize": 2}
        axis.barh(place, bar.value, 0.72, xerr=bar.deviation, color=bar.colour, error_kw=whisker)
        end = bar.value + bar.deviation + 0.02 * most
        axis.text(end, place, significant(bar.value), va="center")
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(len(names) - 0.5, -0.5)
    axis.set_xlim(0, 1.3 * most)
    count_in_thousands(axis.xaxis, 4)
    axis.set_xlabel(unit)
    axis.set_title(title, fontsize=9, loc="left")
    frame(axis, "x")
