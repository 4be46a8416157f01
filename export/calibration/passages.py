"""Texts to passages of token ids, and which of their tokens a preview finds masked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...errors import ExportError

LENGTH = 512  # tokens of a passage at most
_SHORTEST = 16  # what is left of a text is used from so many tokens on

Encode = Callable[[str], Sequence[int]]


@dataclass(frozen=True)
class Passage:
    """Consecutive tokens of one text. ``masked`` says which of them the previews do not see."""

    ids: NDArray[np.int32]
    masked: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.ids)


def make_passages(
    texts: Sequence[str],
    encode: Encode,
    *,
    block_size: int,
    most_tokens: int,
    forbidden: int = -1,
    seed: int = 0,
) -> list[Passage]:
    """Passages of up to LENGTH tokens, a text's one after the other, texts in turn, until
    ``most_tokens`` are reached.

    Every block of ``block_size`` tokens has a mask ratio of its own; over all blocks they are
    spread evenly over (0, 1]. Texts that hold the id ``forbidden`` (the mask token) are cut there.
    ExportError when no passage comes out.
    """
    cut: list[list[NDArray[np.int32]]] = []
    for text in texts:
        ids = np.array(encode(text[: 8 * most_tokens]), np.int32)
        parts = np.split(ids, np.flatnonzero(ids == forbidden))
        parts = [part[part != forbidden] for part in parts]
        pieces = [part[at : at + LENGTH] for part in parts for at in range(0, len(part), LENGTH)]
        cut.append([piece for piece in pieces if len(piece) >= _SHORTEST])
    chosen, total = [], 0
    for turn in range(max((len(pieces) for pieces in cut), default=0)):
        for pieces in cut:
            if turn < len(pieces) and total < most_tokens:
                chosen.append(pieces[turn][: max(most_tokens - total, _SHORTEST)])
                total += len(chosen[-1])
    if not chosen:
        raise ExportError(f"calibration: no text is as long as {_SHORTEST} tokens")
    return _masked(chosen, block_size, np.random.default_rng(seed))


def _masked(
    pieces: list[NDArray[np.int32]], block_size: int, rng: np.random.Generator
) -> list[Passage]:
    blocks = sum(-(-len(ids) // block_size) for ids in pieces)
    ratios = iter(((np.arange(blocks) + rng.random(blocks)) / blocks)[rng.permutation(blocks)])
    passages = []
    for ids in pieces:
        masked = np.zeros(len(ids), bool)
        for at in range(0, len(ids), block_size):
            block = masked[at : at + block_size]
            count = max(1, round(float(next(ratios)) * len(block)))
            block[rng.permutation(len(block))[:count]] = True
        passages.append(Passage(ids, masked))
    return passages
