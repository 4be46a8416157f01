"""The shortest way to end a text that a grammar has begun.

llguidance says what may come next, not how far the end is. A search finds out: from decision to
decision, and of the states that allow the same tokens it follows those that have wasted least, then
those of the fewest bytes. Whatever is found is read by a matcher from beginning to end, so a
completion is always valid; that it is the shortest of all is not proven where two different states
look alike.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .vocabulary import Vocabulary, library

if TYPE_CHECKING:
    from llguidance import LLMatcher

_ROUNDS = 512  # decisions of a path at most
_DETOUR = 12  # tokens that are left out at once
_MANY = 16  # bytes: where more are allowed, text is free and a few stand for all
_SAMPLES = b"\"a0}])>' .,:;-/@_A1\n<"
_CLOSERS = frozenset(b'"}])>')  # where one is allowed, what else is chosen leads away from the end


@dataclass(frozen=True)
class _Effort:
    """How wide a search is, and how many states it may look at."""

    everything: bool  # all allowed bytes, or else samples of free text
    alike: int  # states followed of those that allow the same
    width: int  # states followed in all
    states: int


_EFFORTS = (_Effort(False, 1, 12, 3_000), _Effort(True, 3, 48, 9_000))


@dataclass(frozen=True)
class _Node:
    """A state behind a decision and what it forces."""

    matcher: LLMatcher
    tokens: tuple[int, ...]
    size: int  # bytes
    kind: bytes  # bits of what is allowed
    before: bytes  # kind of the state that it comes from
    waste: int = 0  # decisions that led back where others led on, or away from the end

    @property
    def order(self) -> tuple[int, int]:
        return self.waste, self.size


class Closer:
    """Finds completions for the matchers of one vocabulary."""

    def __init__(self, vocabulary: Vocabulary, literals: Iterable[str] = ()) -> None:
        """`literals`: texts that may lead on where any text is allowed."""
        self._vocabulary = vocabulary
        self._bits: NDArray[np.int32] = np.zeros((1, vocabulary.words), np.int32)
        self._fill = library().numpy.fill_next_token_bitmask
        self._stops = np.array(vocabulary.stops)
        self._bytes = np.array(list(vocabulary.single_bytes), dtype=np.int64)
        self._singles = np.array(list(vocabulary.single_bytes.values()), dtype=np.int64)
        self._literals = [tuple(vocabulary.tokenizer.tokenize_str(text)) for text in literals]

    def shortest(self, matcher: LLMatcher) -> tuple[int, ...] | None:
        """The fewest tokens that end the text, a stop token the last of them; None where none were
        found. The matcher stays where it is."""
        for effort in _EFFORTS:
            if (tokens := self._search(matcher, effort)) is not None:
                return tokens
        return None

    def _search(self, matcher: LLMatcher, effort: _Effort) -> tuple[int, ...] | None:
        beam, looked = [self._node(matcher.deep_copy(), (), b"")], 0
        best: _Node | None = None
        for _ in range(_ROUNDS):
            if not beam or looked > effort.states:
                break
            found: dict[bytes, list[_Node]] = {}
            for node in beam:
                if best is not None and node.size >= best.size:
                    continue
                if self._among(node, self._stops).any():
                    best = node
                    continue
                children = self._children(node, effort.everything)
                looked += len(children)
                for child in children:
                    found.setdefault(child.kind, []).append(child)
            beam = []
            for nodes in found.values():
                beam += sorted(nodes, key=lambda node: node.order)[: effort.alike]
            beam = sorted(beam, key=lambda node: node.order)[: effort.width]
        return None if best is None else self._tokens(matcher, best)

    def _node(self, matcher: LLMatcher, tokens: tuple[int, ...], before: bytes) -> _Node:
        forced = matcher.compute_ff_tokens()
        if forced and matcher.consume_tokens(forced):
            tokens = (*tokens, *forced)
        size = len(self._vocabulary.tokenizer.decode_bytes(list(tokens)))
        self._fill(matcher, self._bits)
        return _Node(matcher, tokens, size, self._bits.tobytes(), before)

    def _among(self, node: _Node, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of some ids a state allows."""
        words = np.frombuffer(node.kind, dtype=np.int32)
        return (words[ids >> 5] >> (ids & 31) & 1).astype(np.bool_)

    def _children(self, node: _Node, everything: bool) -> list[_Node]:
        """The states that one step leads to; of those that look alike the first."""
        children: dict[bytes, _Node] = {}
        steps = self._steps(node, everything)
        closes = any(byte in _CLOSERS for byte in steps.values())
        for tokens, byte in steps.items():
            matcher = node.matcher.deep_copy()
            if matcher.try_consume_tokens(list(tokens)) < len(tokens):
                continue
            child = self._node(matcher, (*node.tokens, *tokens), node.kind)
            waste = node.waste + (closes and byte not in _CLOSERS)
            children.setdefault(child.kind, replace(child, waste=waste))
        back = {node.kind, node.before}
        if back.issuperset(children):  # there is no other way
            return list(children.values())
        return [
            replace(child, waste=child.waste + (child.kind in back)) for child in children.values()
        ]

    def _steps(self, node: _Node, everything: bool) -> dict[tuple[int, ...], int | None]:
        """Tokens of one byte, and that; where no such is allowed, the first ones of any kind; where
        text is free, literals, too."""
        allowed = self._among(node, self._singles)
        single = dict(
            zip(self._bytes[allowed].tolist(), self._singles[allowed].tolist(), strict=True)
        )
        if not single:
            bits = np.unpackbits(np.frombuffer(node.kind, np.uint8), bitorder="little")
            return dict.fromkeys((token,) for token in np.flatnonzero(bits)[:_MANY].tolist())
        chosen = list(single)
        if not everything and len(single) > _MANY:
            chosen = [byte for byte in _SAMPLES if byte in single] or chosen[:_MANY]
        steps: dict[tuple[int, ...], int | None] = {(single[byte],): byte for byte in chosen}
        return steps | dict.fromkeys(self._literals) if len(single) > _MANY else steps

    def _tokens(self, matcher: LLMatcher, node: _Node) -> tuple[int, ...]:
        """The path without detours, as the tokenizer writes it where the grammar reads that, too."""
        tokenizer, stop = self._vocabulary.tokenizer, self._vocabulary.stops[0]
        path = _without_detours(matcher.deep_copy(), list(node.tokens), stop)
        canonical = tokenizer.tokenize_bytes(tokenizer.decode_bytes(path))
        if len(canonical) < len(path) and completes(matcher, canonical, stop):
            path = canonical
        return (*path, stop)


def _without_detours(matcher: LLMatcher, path: list[int], stop: int) -> list[int]:
    """Leaves out every stretch of tokens without which the rest of the path still ends the text.

    States that look alike are merged where they differ in what is behind them: a path may hold
    what only seemed to lead on.
    """
    at = 0
    while at < len(path):
        for length in range(min(_DETOUR, len(path) - at), 0, -1):
            if completes(matcher, path[at + length :], stop):
                del path[at : at + length]
                break
        else:
            matcher.consume_token(path[at])
            at += 1
    return path


def completes(matcher: LLMatcher, tokens: list[int], stop: int) -> bool:
    """Whether `tokens` and then a stop token end the text that the matcher has read."""
    whole = [*tokens, stop]
    return matcher.validate_tokens(whole) == len(whole)
