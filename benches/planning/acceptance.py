"""What steps accept: stated, in the shape that the demo model gives it by width, or measured."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from clover_edge import demo
from clover_edge.model import Model, load
from clover_edge.tuning.planner import Settings, Traces, measure_traces
from clover_edge.tuning.stored import core_options, prompt_ids
from clover_edge.tuning.traces import Trace

from .floors import forwards

BLOCKS = 64  # of a stated trace: fractions of a step are shared out over them
TOKENS_PER_FORWARD = 3.64  # LLaDA2.1-flash in its quality mode, over its report's benchmarks


def measured(model: Model, settings: Settings) -> Traces:
    """Of a model that runs here, on the package's prompts."""
    with model.exclusive():
        ids = prompt_ids(model)
        return measure_traces(model.core, settings, ids, core_options(model))


@cache
def demo_rates(widths: tuple[int, ...]) -> dict[int, float]:
    """Tokens that a step of the demo model accepts, by width; of wider blocks than it has, as of
    its widest."""
    handle = demo.pack()
    with handle, load(demo.packed_path(handle)) as model:
        own = model.spec["block_size"]
        known = tuple(sorted({min(width, own) for width in widths}))
        settings = Settings(("diffusion",), known, ((False, 0),), ((0, 0.0),), True)
        found = measured(model, settings)
    rates = {width: _accepted(trace) for (_, width), trace in found.items()}
    return {width: rates[min(width, own)] for width in widths}


def stated(
    settings: Settings, tokens_per_forward: float, rates: Mapping[int, float]
) -> dict[tuple[str, int], Trace]:
    """Traces of blocks whose widest accept `tokens_per_forward`, previews and separate commits
    counted, and the others as many fewer as `rates` say. None of self-speculation: no number of
    steps states how much of a draft stands."""
    widest = max(settings.widths)
    found: dict[tuple[str, int], Trace] = {}
    for mode in settings.modes:
        if mode == "ar":
            found[mode, 1] = Trace(1, (), BLOCKS * widest)
        elif mode == "diffusion":
            for width in settings.widths:
                rate = tokens_per_forward * rates[width] / rates[widest]
                commit = forwards(0, fused=settings.fused)
                steps = min(float(width), max(1.0, width / rate - commit))
                found[mode, width] = even_trace(width, steps)
    return found


def even_trace(width: int, steps: float) -> Trace:
    """Blocks of so many steps on average, each of which accepts its share."""
    blocks = []
    for number in range(BLOCKS):
        count = round((number + 1) * steps) - round(number * steps)
        blocks.append(tuple(width // count + (i < width % count) for i in range(count)))
    return Trace(width, (tuple(blocks),), BLOCKS * width)


def _accepted(trace: Trace) -> float:
    blocks = [block for text in trace.texts for block in text]
    return sum(map(sum, blocks)) / sum(map(len, blocks))
