"""A picture of the layers: relative error and router agreement, commit beside preview."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .report import Evaluation

_ERRORS = (
    ("mixer_error", "mixer", "o", "#0072b2"),
    ("feed_forward_error", "feed-forward", "s", "#d55e00"),
)
_AGREEMENT = "#009e73"
_DPI = 120


def draw(found: Evaluation) -> bytes | None:
    """A PNG; None where matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ImportError:
        return None
    modes = [mode for mode in ("commit", "preview") if mode in found.layers[0]]
    routed = found.worst_router_agreement
    rows = 2 if routed else 1
    size = (0.8 + 4.0 * len(modes), 0.6 + 2.5 * rows)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(rows, len(modes), sharex=True, sharey="row", squeeze=False)
    for column, mode in enumerate(modes):
        _errors(axes[0][column], found, mode)
        axes[0][column].set_title(f"{mode} mode")
        if routed:
            _agreement(axes[1][column], found, mode)
            axes[1][column].yaxis.set_major_formatter(lambda y, _: f"{100 * y:.4g} %")
        axes[-1][column].set_xlabel("layer")
        axes[-1][column].xaxis.set_major_locator(MaxNLocator(integer=True))
    axes[0][0].set_ylim(bottom=0)
    axes[0][0].set_ylabel("relative error (RMS)")
    axes[0][0].legend(frameon=False)
    if routed:
        axes[1][0].set_ylabel("router agreement")
        room = 1.001 - min(routed.values())  # below the worst, for its label
        axes[1][0].set_ylim(1.001 - 1.2 * room, 1 + 0.05 * room)
    against = f" against {found.against['name']}" if found.against else ""
    figure.suptitle(f"{found.model['name']}{against}")
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=_DPI, metadata={"Software": None})
    return out.getvalue()


def _errors(axis: Any, found: Evaluation, mode: str) -> None:
    x = [row["layer"] for row in found.layers]
    for field, label, marker, colour in _ERRORS:
        y = [row[mode][field] for row in found.layers]
        axis.plot(x, y, marker=marker, markersize=4, linewidth=1, color=colour, label=label)
    _frame(axis)


def _agreement(axis: Any, found: Evaluation, mode: str) -> None:
    pairs = [(row["layer"], row[mode]["router_agreement"]) for row in found.layers]
    shown = [(x, y) for x, y in pairs if y is not None]
    x, y = zip(*shown, strict=True)
    axis.plot(x, y, marker="o", markersize=4, linewidth=1, color=_AGREEMENT)
    worst = min(range(len(y)), key=y.__getitem__)
    place = worst / max(1, len(y) - 1)  # a label at an end of the axis grows inwards
    axis.annotate(
        f"worst {100 * y[worst]:.2f} %",
        (x[worst], y[worst]),
        xytext=(0, -14),
        textcoords="offset points",
        ha="left" if place < 0.1 else "right" if place > 0.9 else "center",
        fontsize=8,
    )
    _frame(axis)


def _frame(axis: Any) -> None:
    axis.grid(axis="y", color="#dddddd", linewidth=0.6)
    axis.set_axisbelow(True)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
