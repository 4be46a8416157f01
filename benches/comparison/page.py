"""docs/benchmarks.md, made of results."""

from __future__ import annotations

from collections.abc import Sequence

from . import tables
from .plots import available
from .results import OURS, Result, ordered

_HEAD = """# Benchmarks

<!-- Made by `python benches/compare.py benches/results/*.jsonl --docs`; changes belong there. -->

Every figure on this page is in a file under `benches/results/`, beside the command that measured it; the page and its pictures are made of those files by
`python benches/compare.py benches/results/*.jsonl --docs` (pictures: extra `plot`). To measure a device of yours and see it beside these:

```
python benches/device.py mine.jsonl --folder DIR    # makes the models in DIR, then measures; 3 GB of disk, about 10 minutes
python benches/compare.py benches/results/*.jsonl mine.jsonl --pictures pictures
```

A model of yours alone: `clover-edge bench MODEL -o jsonl > mine.jsonl` ([fields](cli.md#bench)).

What the tests are: `pp` reads a prompt, `blk` denoises one block in a fixed number of steps, `tg` writes text in the model's own way, `ar` writes it token by token; the number behind
the name counts tokens, "depth" those already read. Models other than `demo` have random weights: their speed is a trained model's, but they are never sure of
a token, so that `tg` takes as many steps as a block has tokens, the most there are; and what they write means nothing. Other runtimes have the autoregressive half of the same shape; their
`blk` makes the same passes over a block without choosing tokens. A figure is the mean over repetitions ± their standard deviation.
"""

_PICTURES = {
    "speed": "Tokens a second, nothing read before",
    "depth": "Tokens a second behind more and more tokens",
    "first-block": "Time until the first block of a text stands",
    "roofline": "Speed over the bytes of weights that a token takes. Where reading memory is all that takes time, points lie on the line; computing keeps them below it, caches above it",
    "energy": "Energy a token",
}


def page(results: Sequence[Result]) -> str:
    """The page's text. It depends on nothing but the results."""
    shown = available(results)
    parts = [_HEAD, "## Devices\n", tables.devices(results) + "\n", _ceilings()]
    parts += ["## Models\n", tables.models(results) + "\n", _models()]
    parts += ["## Tests\n", tables.table(results) + "\n", _tests(results)]
    parts.append("## Pictures\n")
    parts += [f"{_PICTURES[name]}:\n\n![{_PICTURES[name]}](images/{name}.svg)\n" for name in shown]
    left_out = tables.not_measured(results)
    if "energy" not in shown:
        left_out.append("Energy: no device here measures it.")
    if left_out:
        parts += ["## Not measured\n", "\n".join(f"- {line}" for line in left_out) + "\n"]
    parts += ["## Commands\n", f"```\n{_commands(results)}\n```\n"]
    return "\n".join(parts)


def _ceilings() -> str:
    return "What a device does at most is measured, too, by the best of seven runs of a loop that does nothing else; a multiply-add is two operations.\n"


def _models() -> str:
    return "Memory is the process's, weights that are mapped and caches included. Opening is from warm files.\n"


def _tests(results: Sequence[Result]) -> str:
    said = [
        'MB a token are weights, counted by the runtime where it counts them; GB/s are these over time, and "of read" is their share of the device\'s read ceiling.'
    ]
    if len({result.device for result in results if not result.skipped}) == 1:
        said.append(f"Device: {ordered(results)[0].device}.")
    return " ".join(said) + "\n"


def _commands(results: Sequence[Result]) -> str:
    """Every command once; ours first."""
    commands = {
        result.record["command"]: result.runtime != OURS
        for result in results
        if "command" in result.record
    }
    return "\n".join(sorted(commands, key=lambda command: commands[command]))
