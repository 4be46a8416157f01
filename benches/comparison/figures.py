"""What all pictures share. Colours (Okabe and Ito's) tell runtimes apart, markers devices, and
every bar or line says what it is in words, so that no picture depends on either."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .results import OURS, Result

COLOURS = {
    OURS: "#0072b2",
    "llama.cpp": "#e69f00",
    "onnxruntime": "#009e73",
    "pytorch": "#cc79a7",
}
_OTHER = "#56b4e9"
MARKERS = "osD^vPX*"
TITLES = {
    "pp": "read a prompt",
    "blk": "denoise a block",
    "tg": "write by blocks",
    "ar": "write token by token",
}


def colour(result: Result) -> str:
    return COLOURS.get(result.runtime, _OTHER)


def marker(device: str, devices: Sequence[str]) -> str:
    return MARKERS[devices.index(device) % len(MARKERS)]


def label(result: Result, among: Sequence[Result]) -> str:
    """What tells a result from the others: its device where there are several, its runtime where
    there are several or nothing else is said, its weights where one runtime has several of a
    model."""
    parts = []
    if len({each.device for each in among}) > 1:
        parts.append(result.device)
    if not parts or len({each.runtime for each in among}) > 1:
        parts.append(result.runtime)
    same = (each for each in among if (each.runtime, each.model) == (result.runtime, result.model))
    if len({each.record["quant"] for each in same}) > 1:
        parts.append(result.record["quant"])
    return ", ".join(parts)


def distinct(values: Sequence[Result], of: Callable[[Result], str]) -> list[str]:
    """Each value once, in their order."""
    return list(dict.fromkeys(map(of, values)))


def frame(axis: Any, grid: str) -> None:
    """A grid along "x", "y" or "both", and no lines above and to the right."""
    axis.grid(axis=grid, color="#dddddd", linewidth=0.6)
    axis.set_axisbelow(True)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


def count_in_thousands(axis: Any, most: int = 5) -> None:
    """At most so many ticks, with separators: they stay apart."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(most))
    axis.set_major_formatter(lambda value, _: f"{value:,.10g}")
