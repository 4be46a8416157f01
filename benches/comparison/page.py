"""docs/benchmarks.md, made of results."""

from __future__ import annotations

from collections.abc import Sequence

from . import tables
from .plots import available
from .results import OURS, Result, ordered

_COMMAND = "python benches/compare.py benches/results/*.jsonl --docs"
_HEAD = f"""# Benchmarks

This page and its pictures are made by `{_COMMAND}`
(pictures: extra `plot`) of the records in `benches/results/`; edit those or `benches/comparison/`,
not this page. Each record holds the command that measured it; [all of them](#commands) are below.

To measure a device of yours and see it beside these:

```
python benches/device.py mine.jsonl --folder DIR   # makes the models in DIR (5 GB), then measures
python benches/compare.py benches/results/*.jsonl mine.jsonl --pictures pictures
```

A model of yours alone: `clover-edge bench MODEL -o jsonl > mine.jsonl` ([fields](cli.md#bench)).

| test | what it does |
| --- | --- |
| `ppN` | reads a prompt of N tokens |
| `blkN` | denoises one block of N tokens in 8 steps |
| `tgN` | writes N tokens in the model's own way, by blocks |
| `arN` | writes N tokens one by one |

"Depth" counts the tokens that a test stands behind. Figures are means over repetitions, with their
standard deviation where one follows the ±.

Models other than `demo` have random weights. Their forwards are as fast as a trained model's, but
they are never sure of a token: `tg` takes a step for each token, which is the most there can be.
`blk`, at 4 tokens a forward, is nearer to a trained model. Other runtimes run the autoregressive
half of the same shape with weights of their own format; their `blk` makes the same passes
over a block and chooses no tokens.
"""

_PICTURES = {
    "speed": "Tokens a second, nothing read before",
    "depth": "Tokens a second behind more and more tokens",
    "first-block": "Time until the first block of a text stands",
    "roofline": "Speed over the bytes of weights that a token takes. The line is what reading "
    "memory allows; computing keeps points below it, weights in caches lift them above it",
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
    return (
        "What a device does at most is measured by each command of ours: the best of seven runs of "
        "a loop\nthat does nothing else; a multiply-add is two operations. Where ceilings differ "
        "from command to command,\nthe device is shared or throttled, and so do all speeds.\n"
    )


def _models() -> str:
    return (
        "Memory is the process's, weights that are mapped and caches included. Opening is from "
        "warm files.\n"
    )


def _tests(results: Sequence[Result]) -> str:
    said = [
        "MB a token are bytes of weights, where the runtime counts them; GB/s are these over time,",
        'and "of read" is their share of the read ceiling that the same command measured.',
    ]
    if len({result.device for result in results if not result.skipped}) == 1:
        said.append(f"Device: {ordered(results)[0].device}.")
    return "\n".join(said) + "\n"


def _commands(results: Sequence[Result]) -> str:
    """Every command once; ours first."""
    commands = {
        result.record["command"]: result.runtime != OURS
        for result in results
        if "command" in result.record
    }
    return "\n".join(sorted(commands, key=lambda command: commands[command]))
