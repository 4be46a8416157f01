"""Pictures with lines: speed over depth, and speed over bytes under the roofline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .figures import TITLES, colour, count_in_thousands, distinct, frame, label, marker
from .results import Result
from .tables import significant

_KINDS = {"blk": "#0072b2", "tg": "#d55e00", "ar": "#009e73"}
_STYLES = ("-", "--", "-.", ":")
_CLOSE = 1.25  # two names would touch where their heights differ by less than this factor


def depth(results: Sequence[Result]) -> Any:
    """Tokens a second behind more and more tokens: a row a model, a column a test."""
    from matplotlib.figure import Figure

    key = lambda r: (r.model, r.test, r.device, r.runtime, r.record["quant"])  # noqa: E731
    deep = {key(result) for result in results if result.depth}
    kept = [result for result in results if key(result) in deep]
    rows = {
        model: distinct([r for r in kept if r.model == model], lambda r: r.test)
        for model in distinct(kept, lambda r: r.model)
    }
    most = max(map(len, rows.values()))
    lines = len(distinct(kept, lambda r: label(r, kept)))
    height = 2.4 * len(rows) + 0.2 * (lines // 2)
    figure = Figure(figsize=(2.6 * most, height), layout="constrained")
    axes = figure.subplots(len(rows), most, squeeze=False)
    for row, (model, tests) in zip(axes, rows.items(), strict=True):
        for axis in row[len(tests) :]:
            axis.set_visible(False)
        for axis, test in zip(row, tests, strict=False):
            found = [r for r in kept if (r.model, r.test) == (model, test)]
            _lines(axis, found, kept)
            axis.set_title(f"{model}, {test}", fontsize=9, loc="left")
    _legend(figure, axes)
    return figure


def _lines(axis: Any, found: Sequence[Result], among: Sequence[Result]) -> None:
    """A line a device and runtime over depths, which are drawn equally far apart."""
    depths = sorted({result.depth for result in found})
    devices = distinct(among, lambda r: r.device)
    lines: dict[str, list[Result]] = {}
    for result in found:
        lines.setdefault(label(result, among), []).append(result)
    for name, line in lines.items():
        axis.errorbar(
            [depths.index(result.depth) for result in line],
            [result.record["avg_ts"] for result in line],
            [result.record["stddev_ts"] for result in line],
            color=colour(line[0]),
            marker=marker(line[0].device, devices),
            linestyle=_STYLES[devices.index(line[0].device) % len(_STYLES)],
            markersize=4.5,
            linewidth=1.2,
            capsize=2,
            label=name,
        )
    axis.set_xticks(range(len(depths)), [f"{depth:,}" for depth in depths])
    axis.set_xlim(-0.3, len(depths) - 0.7)
    axis.set_ylim(bottom=0)
    count_in_thousands(axis.yaxis)
    axis.set_xlabel("tokens in front")
    axis.set_ylabel("tokens/s")
    frame(axis, "y")


def _legend(figure: Any, axes: Any) -> None:
    """One for all panels, below them."""
    handles: dict[str, Any] = {}
    for axis in axes.flat:
        for handle, name in zip(*axis.get_legend_handles_labels(), strict=True):
            handles.setdefault(name, handle)
    figure.legend(
        handles.values(), handles.keys(), loc="outside lower center", ncols=2, frameon=False
    )


def under_roof(result: Result) -> bool:
    return result.depth == 0 and bool(result.bytes_per_token and result.read_ceiling)


def roofline(results: Sequence[Result]) -> Any:
    """Speed over the bytes of weights a token takes; what reading memory alone would allow is a
    line for each device."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    found = [result for result in results if under_roof(result)]
    devices = distinct(found, lambda r: r.device)
    figure = Figure(figsize=(7.4, 4.8 + 0.2 * len(devices)), layout="constrained")
    axis = figure.subplots()
    nbytes = [_megabytes(result) for result in found]
    ends = min(nbytes) / 1.6, max(nbytes) * 3.0
    handles = []
    for number, device in enumerate(devices):
        rate = max(r.read_ceiling or 0.0 for r in found if r.device == device)
        style = {"color": "#444444", "lw": 1, "linestyle": _STYLES[number % len(_STYLES)]}
        axis.plot(ends, [rate / 1e6 / end for end in ends], **style)
        name = f"{device}: reads {significant(rate / 1e9)} GB/s"
        handles.append(Line2D([], [], marker=marker(device, devices), label=name, **style))
    for result, x in zip(found, nbytes, strict=True):
        axis.plot(
            x,
            result.record["avg_ts"],
            linestyle="",
            marker=marker(result.device, devices),
            color=_KINDS[result.kind],
        )
    for kind in (k for k in _KINDS if any(r.kind == k for r in found)):
        square = {"linestyle": "", "marker": "s", "color": _KINDS[kind]}
        handles.append(Line2D([], [], label=f"{kind}: {TITLES[kind]}", **square))
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlim(*ends)
    _name_points(axis, found)
    axis.set_xlabel("MB of weights read for a token")
    axis.set_ylabel("tokens/s")
    for each in (axis.xaxis, axis.yaxis):
        each.set_major_formatter(lambda value, _: f"{value:,.10g}")
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    frame(axis, "both")
    return figure


def _megabytes(result: Result) -> float:
    return (result.bytes_per_token or 0.0) / 1e6


def _name_points(axis: Any, found: Sequence[Result]) -> None:
    """Model and test beside the fastest device's point; names that would touch are moved apart."""
    fastest: dict[str, Result] = {}
    for result in sorted(found, key=lambda r: -r.record["avg_ts"]):
        fastest.setdefault(f"{result.model} {result.test}", result)
    taken: list[tuple[float, float]] = []
    for name, result in fastest.items():
        x, y = _megabytes(result), result.record["avg_ts"]
        place = y
        while any(
            0.3 < x / other < 3.3 and 1 / _CLOSE < place / at < _CLOSE for other, at in taken
        ):
            place /= _CLOSE
        taken.append((x, place))
        behind = {"facecolor": "white", "edgecolor": "none", "pad": 0.5, "alpha": 0.85}
        where = {"xytext": (7, -3), "textcoords": "offset points"}
        axis.annotate(name, (x, place), fontsize=8, bbox=behind, **where)
