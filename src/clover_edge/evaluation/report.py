"""What an evaluation found: as data, as Markdown, as files beside a model.

The report holds no time, path or host.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import corpus
from .metrics import LayerTally, Tally

if TYPE_CHECKING:
    from ..model import Model
    from .passes import Passes
    from .tasks import Score

FORMAT_VERSION = 1
STEM = "quality"  # of the files' names
SIDES = ("model", "against")
MODES = ("commit", "preview")
_DIGITS = 6  # significant ones of a figure

Facts = dict[str, Any]


@dataclass(frozen=True)
class Evaluation:
    """Figures of one run; what they mean: docs/evaluate.md.

    `model`, `against`: name, recipe, sizes. `text`: what was measured on. `commit`, `preview`:
    likelihoods of both models, divergence and agreement; `preview` is None where a model has none,
    `commit` with full attention.
    `layers`: by layer and mode, relative errors of the halves and router agreement; empty where
    nothing was compared. `tasks`: by set, the scores of both models.
    """

    model: Facts
    against: Facts | None
    text: Facts
    commit: Facts | None
    preview: Facts | None
    layers: list[Facts]
    tasks: dict[str, Facts]

    @staticmethod
    def of(
        models: Sequence[Model],
        text: Facts,
        walked: Sequence[corpus.Sequence],
        passes: Passes,
        scores: Mapping[str, Sequence[Score]],
    ) -> Evaluation:
        """The figures of what was added up. `models`: the packed one and, if any, the other."""
        nbytes = sum(sequence.nbytes for sequence in walked)
        sides = SIDES[: len(models)]
        commit = preview = None
        if passes.commits:
            commit = _mode(passes.commit, sides, nbytes)
            for side, nll in zip(sides, passes.commit.nll, strict=False):
                commit[side]["perplexity"] = math.exp(min(nll / passes.commit.positions, 700))
        if passes.width is not None:
            place = {"block_length": passes.width, "blocks": passes.blocks}
            preview = {**place, **_mode(passes.preview, sides, nbytes * passes.masks)}
        facts = [_facts(model) for model in models]
        return Evaluation(
            model=facts[0],
            against=facts[1] if len(facts) > 1 else None,
            text={
                **text,
                "tokens": sum(len(each.ids) - each.start for each in walked),
                "bytes": nbytes,
            },
            commit=commit,
            preview=preview,
            layers=_layers(models[0].spec["layer_types"], passes),
            tasks={
                name: {side: score.as_dict() for side, score in zip(sides, pair, strict=True)}
                for name, pair in scores.items()
            },
        )

    @property
    def worst_router_agreement(self) -> dict[str, float]:
        """By mode, the agreement of the layer where it is least; empty without a comparison."""
        found = {}
        for mode in MODES:
            values = [row[mode]["router_agreement"] for row in self.layers if mode in row]
            if chosen := [value for value in values if value is not None]:
                found[mode] = min(chosen)
        return found

    def as_dict(self) -> Facts:
        """Plain values; figures to six significant digits."""
        out: Facts = _rounded({"format_version": FORMAT_VERSION, **asdict(self)})
        return out

    def markdown(self) -> str:
        """The report for a person to read."""
        from .markdown import render

        return render(self)

    def write(self, folder: str | Path) -> list[Path]:
        """Writes quality.json, quality.md and, where layers were compared and matplotlib is
        installed (extra `plot`), quality.png; returns their paths. Raises OSError."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        files = {".json": (json.dumps(self.as_dict(), indent=2) + "\n").encode()}
        files[".md"] = self.markdown().encode()
        if self.layers:
            from .plot import draw

            if (picture := draw(self)) is not None:
                files[".png"] = picture
                files[".md"] += f"\n![Layers]({STEM}.png)\n".encode()
        return [_replace(folder / f"{STEM}{ending}", data) for ending, data in files.items()]


def _replace(path: Path, data: bytes) -> Path:
    """Writes a file whole or not at all."""
    partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
    try:
        partial.write_bytes(data)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def _facts(model: Model) -> Facts:
    info = model.info()
    names = ("family", "recipe", "group_size", "parameters", "bytes")
    return {"name": model.path.resolve().name, **{name: info[name] for name in names}}


def _mode(tally: Tally, sides: Sequence[str], nbytes: int) -> Facts:
    out: Facts = {"positions": tally.positions}
    for side, nll in zip(sides, tally.nll, strict=False):
        out[side] = {"bits_per_byte": nll / math.log(2) / nbytes if nbytes else None}
    if len(sides) > 1:
        out["kl"] = tally.kl / tally.positions
        out["top1_agreement"] = tally.agree / tally.positions
    return out


def _layers(kinds: Sequence[str], passes: Passes) -> list[Facts]:
    tallies = {"commit": passes.commit_layers, "preview": passes.preview_layers}
    return [
        {
            "layer": i,
            "mixer": kinds[i],
            **{mode: _layer(layers[i]) for mode, layers in tallies.items() if layers},
        }
        for i in range(len(passes.commit_layers or passes.preview_layers))
    ]


def _layer(tally: LayerTally) -> Facts:
    return {
        "mixer_error": tally.mixer.relative_error,
        "feed_forward_error": tally.feed_forward.relative_error,
        "router_agreement": tally.router_agreement,
    }


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value
