"""Decoding replayed as a stated trace: every pass that it would make, over random ids.

A model of random weights says the same few words again and again, and masks that are all alike
choose the same experts, so what it generates by itself reads far fewer experts than a trained model
does. Here each row has an id of its own for as long as its block lasts, decided or not: 32 of them
touch as many experts as the synthetic model was made for. How many positions a step accepts is
stated; which ones, and that they are accepted, costs nothing that is not counted here.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from decode_cases import Measured, Way

from clover_edge import _core

BLOCKS = 6  # of a run: fractions of a step are shared out over them
TOKENS = 96  # of an autoregressive run

Ids = Callable[[int], list[int]]


class Replay:
    """One model, behind a prompt of random ids."""

    def __init__(self, core: _core.Model, ids: Ids, prompt: int) -> None:
        """`ids(n)`: n random ids. `prompt`: how many of them are in front."""
        self._core, self._ids, self._state = core, ids, core.new_state(1 << 16)
        core.commit(self._state, ids(prompt), logits="none")
        self._start = self._state.snapshot()

    def measure(self, ways: list[Way], rounds: int) -> dict[str, Measured]:
        """Every way in turn, round by round; the first round warms."""
        found = {way.name: Measured() for way in ways}
        for number in range(rounds + 1):
            for way in ways:
                counted = Measured()
                self._run(way, counted)
                if number == 0:
                    counted.rounds = []
                    found[way.name] = counted
                else:
                    found[way.name].rounds += counted.rounds
        return found

    def _run(self, way: Way, into: Measured) -> None:
        self._state.restore(self._start)
        before = self._core.counters
        passes = self._tokens() if way.options["mode"] == "ar" else self._blocks(way)
        seconds = 0.0
        for taken, tokens in passes:
            seconds += taken
            into.tokens += tokens
            into.forwards += 1
        after = self._core.counters
        into.rows = after["rows"] - before["rows"]
        into.bytes_read = after["bytes_read"] - before["bytes_read"]
        into.rounds.append(seconds / into.tokens)

    def _tokens(self) -> Iterator[tuple[float, int]]:
        """(seconds, tokens) of each pass."""
        for _ in range(TOKENS):
            yield self._core.time_pass(self._state, self._ids(1), [], head=1), 1

    def _blocks(self, way: Way) -> Iterator[tuple[float, int]]:
        """Every block's first pass commits the block before it, unless commits are apart."""
        width, skip = way.options["block_length"], way.options.get("skip_rows", False)
        coreset = way.options.get("coreset", 0)
        share = way.options.get("coreset_share", 0.0)
        before = self._ids(width)
        for number in range(BLOCKS):
            steps = round((number + 1) * way.steps) - round(number * way.steps)
            block, kept = self._ids(width), _core.Block() if skip or coreset else None
            if not way.options.get("fused_commit", True):
                yield self._core.time_pass(self._state, before, []), 0
                before = []
            for compute, masked in _steps(width, steps, skip):
                seconds = self._core.time_pass(
                    self._state,
                    before,
                    block,
                    head=masked,
                    coreset=coreset,
                    coreset_share=share if masked < width else 0.0,
                    kept=kept,
                    compute=compute,
                )
                before = []
                yield seconds, 0 if compute is not None or masked < width else width
            before = block


def _steps(width: int, steps: int, skip: bool) -> Iterator[tuple[list[int] | None, int]]:
    """(rows computed, None: all; masked ones) of each step of a block. The tokens are shared out,
    the first steps taking one more where they do not divide the block; an accepted row is computed
    once more."""
    order = random.Random(width * 64 + steps).sample(range(width), width)  # of acceptance
    done, accepted = 0, 0
    for step in range(steps):
        rows = sorted(order[done - accepted :]) if skip and step else None
        yield rows, width - done
        accepted = width // steps + (step < width % steps)
        done += accepted
