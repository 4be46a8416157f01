"""Seconds that a trace would take, from what passes cost: no model is run."""

from __future__ import annotations

from .costs import Costs
from .traces import Trace


def autoregressive(trace: Trace, costs: Costs) -> float:
    """Every token of the trace by a pass of one row."""
    return trace.tokens * (costs.forward(1, 0) + costs.reduce(1))


def speculative(trace: Trace, costs: Costs) -> float:
    """Every round previews its draft and commits it; both read the head."""
    width = trace.width
    once = costs.forward(0, width) + costs.forward(width, 0)
    once += costs.reduce(width - 1) + costs.reduce(width)
    return once * sum(len(text) for text in trace.texts)


def diffusion(
    trace: Trace, costs: Costs, *, first: Costs, skip_rows: bool, refresh: int, fused: bool
) -> float:
    """Every step previews all rows, or those that are masked or were accepted the step before; a
    block is committed in the next one's first pass, or in a pass of its own. The last one of a
    text is not. `first`: costs of a block's first step."""
    seconds, width = 0.0, trace.width
    for text in trace.texts:
        for number, block in enumerate(text):
            if number and not fused:
                seconds += costs.forward(width, 0)
            masked, rows = width, width
            for step, accepted in enumerate(block):
                everything = not skip_rows or step == 0 or (refresh and step % refresh == 0)
                committed = width if fused and number and step == 0 else 0
                passes = costs if step else first
                seconds += passes.forward(committed, width if everything else rows)
                seconds += costs.reduce(masked)
                rows, masked = masked, masked - accepted  # accepted rows are computed once more
    return seconds
