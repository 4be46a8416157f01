"""Pictures of results. Colours (Okabe and Ito's) tell runtimes apart, markers devices, and every
bar or line says what it is in words, so that no picture depends on either."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .results import OURS, TESTS, Result, ordered
from .tables import significant

COLOURS = {
    OURS: "#0072b2",
    "llama.cpp": "#e69f00",
    "onnxruntime": "#009e73",
    "pytorch": "#cc79a7",
}
_OTHER = "#56b4e9"
MARKERS = "osD^vPX*"
_BAR = 0.24  # inches of a bar and the space around it
_TITLES = {
    "pp": "read a prompt",
    "blk": "denoise a block",
    "tg": "write, in the model's own way",
    "ar": "write token by token",
}
_DPI = 110
_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "clover-edge",  # the same file for the same results
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
}


class NoPlots(Exception):
    """matplotlib is not installed."""


def draw(results: Sequence[Result], folder: Path, form: str = "svg") -> list[Path]:
    """Writes every picture that the results have figures for. Raises NoPlots."""
    try:
        import matplotlib
    except ImportError as error:
        raise NoPlots("needs the extra 'plot' (matplotlib)") from error
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with matplotlib.rc_context(_STYLE):
        for name in available(results):
            figure = PICTURES[name][1](ordered(results))
            path = folder / f"{name}.{form}"
            metadata = {"Date": None} if form == "svg" else {"Software": None}
            figure.savefig(path, format=form, dpi=_DPI, metadata=metadata)
            written.append(path)
    return written


def available(results: Sequence[Result]) -> list[str]:
    """Pictures that there are figures for."""
    found = ordered(results)
    return [name for name, (keep, _) in PICTURES.items() if any(map(keep, found))]


def _label(result: Result, among: Sequence[Result], runtimes: bool = True) -> str:
    """What tells a result from the others: its device where there are several, its runtime, its
    weights where one runtime has several."""
    parts = []
    if len({each.device for each in among}) > 1:
        parts.append(result.device)
    same = [each for each in among if each.runtime == result.runtime]
    if runtimes and (len({each.runtime for each in among}) > 1 or not parts):
        parts.append(result.runtime)
    if len({each.record["quant"] for each in same}) > 1:
        parts.append(result.record["quant"])
    return ", ".join(parts) or result.runtime


def _grid(rows: int, columns: int, heights: Sequence[float], width: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    size = (width * columns, sum(heights) + 0.4)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(
        rows, columns, squeeze=False, gridspec_kw={"height_ratios": list(heights)}
    )
    return figure, axes


def _bars(axis: Any, shown: Sequence[tuple[str, float, float, str]], unit: str, title: str) -> None:
    """Horizontal bars: label, value, deviation, colour; the value is written behind each."""
    names, values, deviations, colours = zip(*shown, strict=True)
    places = range(len(names))
    axis.barh(
        places, values, 0.72, xerr=deviations, color=colours, error_kw={"lw": 0.8, "capsize": 2}
    )
    axis.set_yticks(places, names)
    axis.invert_yaxis()
    most = max(value + deviation for value, deviation in zip(values, deviations, strict=True))
    for place, value, deviation in zip(places, values, deviations, strict=True):
        axis.text(value + deviation + 0.02 * most, place, significant(value), va="center")
    axis.set_xlim(0, 1.22 * most)
    axis.set_xlabel(unit)
    axis.set_title(title, fontsize=9, loc="left")
    _frame(axis, "x")


def _frame(axis: Any, grid: str) -> None:
    axis.grid(axis=grid, color="#dddddd", linewidth=0.6)
    axis.set_axisbelow(True)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


def _colour(result: Result) -> str:
    return COLOURS.get(result.runtime, _OTHER)


def _panels(
    results: Sequence[Result], keep: Callable[[Result], bool]
) -> tuple[list[str], list[str], dict[tuple[str, str], list[Result]]]:
    """Models, kinds of test, and the results of each pair."""
    kept = [result for result in results if keep(result)]
    models = list(dict.fromkeys(result.model for result in kept))
    kinds = [kind for kind in TESTS if any(result.kind == kind for result in kept)]
    cells: dict[tuple[str, str], list[Result]] = {}
    for result in kept:
        cells.setdefault((result.model, result.kind), []).append(result)
    return models, kinds, cells


def _has_first_block(result: Result) -> bool:
    return result.kind == "tg" and bool(result.record.get("ttfb_ns"))


def _under_roof(result: Result) -> bool:
    return result.depth == 0 and bool(result.bytes_per_token and result.read_ceiling)


def _has_energy(result: Result) -> bool:
    return result.depth == 0 and bool(result.joules_per_token)


def speed(results: Sequence[Result]) -> Any:
    """Tokens a second with nothing in front: a row a model, a column a test."""
    models, kinds, cells = _panels(results, lambda r: r.depth == 0)
    most = [max(len(cells.get((model, kind), ())) for kind in kinds) for model in models]
    heights = [0.85 + _BAR * count for count in most]
    figure, axes = _grid(len(models), len(kinds), heights, 3.3)
    for row, model in enumerate(models):
        for column, kind in enumerate(kinds):
            axis, found = axes[row][column], cells.get((model, kind))
            if not found:
                axis.set_visible(False)
                continue
            several = len({result.test for result in found}) > 1
            shown = [
                (
                    _label(r, found) + (f", {r.test}" if several else ""),
                    r.record["avg_ts"],
                    r.record["stddev_ts"],
                    _colour(r),
                )
                for r in found
            ]
            test = "" if several else f" ({found[0].test})"
            _bars(axis, shown, "tokens/s", f"{model}: {_TITLES[kind]}{test}")
    return figure


def depth(results: Sequence[Result]) -> Any:
    """Tokens a second behind more and more tokens."""
    deep = {(r.model, r.test, r.device, r.runtime) for r in results if r.depth}
    models, kinds, cells = _panels(
        results, lambda r: (r.model, r.test, r.device, r.runtime) in deep
    )
    figure, axes = _grid(len(models), len(kinds), [2.3] * len(models), 2.8)
    for row, model in enumerate(models):
        for column, kind in enumerate(kinds):
            axis, found = axes[row][column], cells.get((model, kind))
            if found:
                _lines(axis, found, lambda r: r.record["avg_ts"], lambda r: r.record["stddev_ts"])
                axis.set_ylabel("tokens/s")
                axis.set_title(f"{model}: {kind}", fontsize=9, loc="left")
            else:
                axis.set_visible(False)
    _legend(figure, axes)
    return figure


def _lines(
    axis: Any,
    found: Sequence[Result],
    value: Callable[[Result], float],
    deviation: Callable[[Result], float],
) -> None:
    """A line a device, runtime and test over depth, whose steps are drawn equally wide."""
    depths = sorted({result.depth for result in found})
    devices = list(dict.fromkeys(result.device for result in found))
    lines: dict[tuple[str, str], list[Result]] = {}
    several = len({result.test for result in found}) > 1
    for result in found:
        label = _label(result, found) + (f", {result.test}" if several else "")
        lines.setdefault((label, result.device), []).append(result)
    for (label, device), line in lines.items():
        axis.errorbar(
            [depths.index(result.depth) for result in line],
            [value(result) for result in line],
            [deviation(result) for result in line],
            color=_colour(line[0]),
            marker=MARKERS[devices.index(device) % len(MARKERS)],
            markersize=4,
            linewidth=1.2,
            capsize=2,
            label=label,
        )
    axis.set_xticks(range(len(depths)), [f"{depth:,}" for depth in depths])
    axis.set_xlim(-0.3, len(depths) - 0.7)
    axis.set_ylim(bottom=0)
    axis.set_xlabel("tokens in front")
    _frame(axis, "y")


def _legend(figure: Any, axes: Any) -> None:
    """One for all panels, below them."""
    handles: dict[str, Any] = {}
    for axis in axes.flat:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    if len(handles) > 1:
        columns = min(len(handles), 3)
        figure.legend(
            handles.values(),
            handles.keys(),
            loc="outside lower center",
            ncols=columns,
            frameon=False,
        )


def first_block(results: Sequence[Result]) -> Any:
    """Time until a text's first block stands, prompt not counted."""
    models, _, cells = _panels(results, _has_first_block)
    heights = [0.85 + _BAR * len(cells[model, "tg"]) for model in models]
    figure, axes = _grid(len(models), 1, heights, 6.4)
    for row, model in enumerate(models):
        found = cells[model, "tg"]
        shown = [
            (
                _behind(r, found),
                r.record["ttfb_ns"] / 1e6,
                r.record["stddev_ttfb_ns"] / 1e6,
                _colour(r),
            )
            for r in found
        ]
        _bars(axes[row][0], shown, "ms", f"{model}: first block of a text")
    return figure


def _behind(result: Result, among: Sequence[Result]) -> str:
    several = len({(each.device, each.runtime) for each in among}) > 1
    behind = f"behind {result.depth:,}" if result.depth else "at the start"
    return f"{_label(result, among)}, {behind}" if several else behind


def roofline(results: Sequence[Result]) -> Any:
    """Speed over the bytes of weights a token takes; what reading memory alone would allow is a
    line."""
    from matplotlib.figure import Figure

    found = [result for result in results if _under_roof(result)]
    rates: dict[str, float] = {}
    for result in found:
        rates[result.device] = max(rates.get(result.device, 0.0), result.read_ceiling or 0.0)
    figure = Figure(figsize=(7.2, 4.6), layout="constrained")
    axis = figure.subplots()
    nbytes = [(r.bytes_per_token or 0) / 1e6 for r in found]
    ends = min(nbytes) / 1.6, max(nbytes) * 2.2
    devices = list(rates)
    for number, (device, rate) in enumerate(rates.items()):
        style = ("-", "--", "-.", ":")[number % 4]
        label = f"{device}: reads {significant(rate / 1e9)} GB/s"
        speeds = [rate / 1e6 / end for end in ends]
        axis.plot(ends, speeds, color="#444444", linewidth=1, linestyle=style, label=label)
    kinds = {"blk": "#0072b2", "tg": "#d55e00", "ar": "#009e73"}
    models = list(dict.fromkeys(result.model for result in found))
    for result, x in zip(found, nbytes, strict=True):
        axis.plot(
            x,
            result.record["avg_ts"],
            linestyle="",
            marker=MARKERS[devices.index(result.device) % len(MARKERS)],
            color=kinds[result.kind],
        )
    for kind in (k for k in kinds if any(r.kind == k for r in found)):
        axis.plot([], [], linestyle="", marker="s", color=kinds[kind], label=_TITLES[kind])
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlim(*ends)
    _name_points(axis, found, models)
    axis.set_xlabel("MB of weights read for a token")
    axis.set_ylabel("tokens/s")
    for each in (axis.xaxis, axis.yaxis):
        each.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axis.legend(frameon=False, loc="best", fontsize=8)
    _frame(axis, "both")
    return figure


def _name_points(axis: Any, found: Sequence[Result], models: Sequence[str]) -> None:
    """Model and test beside each point; where points of one device lie close, names part."""
    taken: list[tuple[float, float]] = []
    for result in found:
        x, y = (result.bytes_per_token or 0) / 1e6, result.record["avg_ts"]
        offset = 0
        while any(_near((x, y * 1.22**offset), other) for other in taken):
            offset -= 1
        taken.append((x, y * 1.22**offset))
        axis.annotate(
            f"{result.model} {result.test}",
            (x, y),
            xytext=(7, -3 + 11 * offset),
            textcoords="offset points",
            fontsize=8,
        )


def _near(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return 0.4 < one[0] / other[0] < 2.5 and 0.85 < one[1] / other[1] < 1.18


def energy(results: Sequence[Result]) -> Any:
    """Joules a token, where something measures them."""
    models, kinds, cells = _panels(results, _has_energy)
    most = [max(len(cells.get((model, kind), ())) for kind in kinds) for model in models]
    figure, axes = _grid(len(models), len(kinds), [0.85 + _BAR * n for n in most], 3.3)
    for row, model in enumerate(models):
        for column, kind in enumerate(kinds):
            axis, found = axes[row][column], cells.get((model, kind))
            if not found:
                axis.set_visible(False)
                continue
            shown = [
                (
                    _label(r, found),
                    r.joules_per_token or 0.0,
                    r.record["stddev_energy_j"] / r.tokens,
                    _colour(r),
                )
                for r in found
            ]
            _bars(axis, shown, "J a token", f"{model}: {_TITLES[kind]}")
    return figure


Picture = tuple[Callable[[Result], bool], Callable[[Sequence[Result]], Any]]
PICTURES: dict[str, Picture] = {  # by name: which results it takes, and how it is made
    "speed": (lambda r: r.depth == 0, speed),
    "depth": (lambda r: r.depth > 0, depth),
    "first-block": (_has_first_block, first_block),
    "roofline": (_under_roof, roofline),
    "energy": (_has_energy, energy),
}
