"""Pictures of results: which there are, and their files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from . import bars, curves
from .results import Result, ordered

_DPI = 110
_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "clover-edge",  # the same file for the same results
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "sans-serif"],
    "font.size": 9,
}


class NoPlots(Exception):
    """matplotlib is not installed."""


Picture = tuple[Callable[[Result], bool], Callable[[Sequence[Result]], Any]]
PICTURES: dict[str, Picture] = {  # by name: which results it needs one of, and how it is made
    "speed": (lambda r: r.depth == 0, bars.speed),
    "depth": (lambda r: r.depth > 0, curves.depth),
    "first-block": (bars.has_first_block, bars.first_block),
    "roofline": (curves.under_roof, curves.roofline),
    "energy": (bars.has_energy, bars.energy),
}


def available(results: Sequence[Result]) -> list[str]:
    """Pictures that there are figures for."""
    found = ordered(results)
    return [name for name, (needs, _) in PICTURES.items() if any(map(needs, found))]


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
            figure.savefig(path, format=form, dpi=_DPI, facecolor="white", metadata=metadata)
            written.append(path)
    return written
