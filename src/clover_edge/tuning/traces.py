"""How many tokens a model accepts in each step, measured on prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .._core import Model as CoreModel


@dataclass(frozen=True)
class Trace:
    """Blocks of generations, by the positions that each of their steps accepted.

    `texts`: one list of blocks each. Under `speculative` a block is a round and has one step,
    the tokens that it kept. `tokens`: generated in all.
    """

    width: int
    texts: tuple[tuple[tuple[int, ...], ...], ...]
    tokens: int


def measure_trace(
    core: CoreModel,
    prompts: Sequence[Sequence[int]],
    width: int,
    options: Mapping[str, Any],
) -> Trace:
    """One generation for each prompt. `options`: of `_core.Model.generate`, with
    max_new_tokens."""
    texts, tokens = [], 0
    for prompt in prompts:
        blocks: list[list[int]] = []

        def listen(event: dict[str, Any], blocks: list[list[int]] = blocks) -> None:
            if event["type"] == "step":
                if event["block"] == len(blocks):
                    blocks.append([])
                blocks[-1].append(sum(event["accepted"]))

        room = len(prompt) + options["max_new_tokens"] + 2 * width
        state = core.new_state(room)
        result = core.generate(state, prompt, {**options, "block_length": width}, listen)
        tokens += len(result["ids"]) + (result["stop_id"] is not None)
        texts.append(tuple(map(tuple, blocks)))
    return Trace(width, tuple(texts), tokens)
