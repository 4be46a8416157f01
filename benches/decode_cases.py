"""Ways to decode one model, measured in turns: what each technique buys, and what it changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from clover_edge import _core

Options = Mapping[str, Any]


@dataclass(frozen=True)
class Way:
    """Options of the core, and where a block's steps are stated rather than the model's own: how
    many, on average over blocks (replay.py)."""

    name: str
    options: Options
    steps: float = 0.0


@dataclass
class Measured:
    """Of one way: totals of what was generated, and seconds a token of every round."""

    ids: list[list[int]] = field(default_factory=list)
    tokens: float = 0.0
    forwards: float = 0.0
    rows: float = 0.0
    bytes_read: float = 0.0
    rounds: list[float] = field(default_factory=list)

    @property
    def tokens_per_second(self) -> float:
        return 1 / median(self.rounds)


def measure(
    core: _core.Model, ways: Sequence[Way], prompts: Sequence[Sequence[int]], rounds: int
) -> dict[str, Measured]:
    """Every way through every prompt, round by round; decoding only, behind the prefill."""
    found = {way.name: Measured() for way in ways}
    for number in range(rounds + 1):
        for way in ways:
            seconds = _run(core, way, prompts, found[way.name] if number == 0 else None)
            if number:  # the first round warms
                found[way.name].rounds.append(seconds)
    return found


def _run(
    core: _core.Model, way: Way, prompts: Sequence[Sequence[int]], into: Measured | None
) -> float:
    """Seconds a token."""
    tokens = seconds = 0.0
    options = {"commit_last": False, **way.options}
    for prompt in prompts:
        room = len(prompt) + options["max_new_tokens"] + 2 * options.get("block_length", 32)
        result = core.generate(core.new_state(room), prompt, options)
        counters = result["counters"]
        new = len(result["ids"]) + (result["stop_id"] is not None)
        tokens += new
        seconds += counters["decode_seconds"]
        if into is not None:
            into.ids.append(result["ids"])
            into.tokens += new
            into.forwards += counters["forward_passes"]
            into.rows += counters["rows"]
            into.bytes_read += counters["bytes_read"]
    return seconds / tokens


def speedup(found: Mapping[str, Measured], way: str, over: str) -> float:
    """How many times as many tokens a second: the median over rounds."""
    pairs = zip(found[over].rounds, found[way].rounds, strict=True)
    return median(a / b for a, b in pairs)


def agreement(ids: Sequence[Sequence[int]], want: Sequence[Sequence[int]]) -> float:
    """Share of positions with the same token, over texts as long as the longer one."""
    same = sum(
        sum(a == b for a, b in zip(x, y, strict=False)) for x, y in zip(ids, want, strict=True)
    )
    return same / sum(max(len(x), len(y)) for x, y in zip(ids, want, strict=True))


def ladder(new_tokens: int, width: int, coreset: int, stop_ids: Sequence[int]) -> list[Way]:
    """Autoregressive, plain block diffusion, and each technique on top of those before it."""
    base = {"max_new_tokens": new_tokens, "stop_ids": list(stop_ids)}
    plain = {**base, "mode": "diffusion", "block_length": width, "fused_commit": False}
    fused = {**plain, "fused_commit": True}
    skipped = {**fused, "skip_rows": True}
    ways = [
        Way("autoregressive", {**base, "mode": "ar"}),
        Way(f"block diffusion, {width} wide", plain),
        Way("+ fused commit", fused),
        Way("+ rows skipped", skipped),
    ]
    ways.append(Way("+ 40 % of the experts", {**skipped, "coreset_share": 0.4}))
    if coreset:
        ways.append(Way(f"+ coreset of {coreset}", {**skipped, "coreset": coreset}))
    for narrower in (width // 2, width // 4):
        if narrower > 1:
            ways.append(Way(f"+ {narrower} wide", {**ways[-1].options, "block_length": narrower}))
    for drafted in (width, width // 2):
        ways.append(
            Way(
                f"self-speculation, {drafted} wide",
                {**base, "mode": "speculative", "block_length": drafted},
            )
        )
    return ways


def stated_steps(tokens_per_forward: Mapping[int, float], scale: float) -> dict[int, float]:
    """Steps of a block by its width, its commit being one forward more: as many as a model takes
    whose tokens per forward, commits counted, are these times `scale`."""
    return {w: max(1.0, w / (scale * rate) - 1) for w, rate in tokens_per_forward.items()}
