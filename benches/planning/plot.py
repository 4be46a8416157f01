"""The picture of a plan: tokens a second over tokens per forward, a panel for each device."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .floors import MOST

_COLUMNS = 3


def plot(found: Mapping[str, Any], path: Path) -> None:
    """Draws every device whose plan has curves. Raises ImportError without matplotlib."""
    from matplotlib.figure import Figure

    rows = [row for row in found["devices"] if row.get("curves")]
    lines = max(1, math.ceil(len(rows) / _COLUMNS))
    columns = min(_COLUMNS, max(1, len(rows)))
    figure = Figure(figsize=(4.2 * columns, 3.3 * lines + 0.6), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False).ravel()
    for panel, row in zip(panels, rows, strict=False):
        _panel(panel, row)
    for panel in panels[len(rows) :]:
        panel.set_axis_off()
    model = found["model"]
    figure.suptitle(
        f"{model['name']}, {model['recipe']}: floors, {found['routing']} routing, "
        f"{found['context']:,} tokens in front",
        fontsize=11,
    )
    figure.savefig(path, dpi=120)


def _panel(panel: Any, row: Mapping[str, Any]) -> None:
    speed = row["autoregressive_tps"]
    panel.axhline(speed, color="black", linewidth=1, linestyle="--", label="autoregressive")
    for width, points in row["curves"].items():
        xs, ys = zip(*points, strict=True)
        (line,) = panel.plot(xs, ys, linewidth=1.6, label=f"blocks of {width}")
        even = row["break_even"][width]
        if even is not None:
            panel.plot([even], [speed], marker="o", markersize=5, color=line.get_color())
    memory = row["memory"]
    title = row["device"]["name"] + ("" if memory["verdict"] == "resident" else "\n")
    if memory["verdict"] != "resident":
        title += f"({memory['verdict']}: floor as if it were resident)"
    panel.set_title(title, fontsize=9)
    panel.set_xlabel("tokens per forward", fontsize=8)
    panel.set_ylabel("tokens a second", fontsize=8)
    panel.tick_params(labelsize=8)
    panel.set_xlim(1, MOST)
    panel.set_ylim(0)
    panel.grid(alpha=0.25)
    panel.legend(fontsize=7, loc="upper left")
