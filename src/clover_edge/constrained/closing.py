"""The shortest way to end a text that a grammar has begun.

llguidance says what may come next, not how far the end is. A search finds out: from decision to
decision, and of the states that allow the same tokens it follows those that have wasted and
repeated least, then those of the fewest bytes. Whatever is found is read by a matcher from
beginning to end, so a completion is always valid; that it is the shortest of all is not proven
where two different states look alike.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
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
_PLAIN = bytes(sorted(range(0x20, 0x7F), key=lambda byte: byte not in _SAMPLES)).replace(b"\\", b"")
# Where one is allowed, what else is chosen leads away from the end; in free text just the first.
_CLOSERS = b'"}])>'


@dataclass(frozen=True)
class _Effort:
    """How wide a search is, and how many states it may look at."""

    everything: bool  # all allowed bytes of free text, or else samples
    alike: int  # states followed of those that allow the same
    width: int  # states followed in all
    states: int


_EFFORTS = (_Effort(False, 1, 12, 3_000), _Effort(True, 3, 24, 3_000))


Kind = tuple[bytes, tuple[int, ...]]


@dataclass(eq=False)
class _Node:
    """A state behind a decision and what it forces."""

    matcher: LLMatcher
    tokens: tuple[int, ...]
    size: int  # bytes
    bits: bytes  # of what is allowed
    forced: tuple[int, ...]  # what the decision has forced
    before: _Node | None  # the state that it comes from
    seen: frozenset[Kind]  # on the way here
    repeats: int  # states on the way that looked like one before
    waste: int = 0  # decisions that led back where others led on, or away from the end

    @property
    def kind(self) -> Kind:
        """States of a kind are taken for one."""
        return self.bits, self.forced

    @property
    def order(self) -> tuple[int, int, int]:
        return self.waste, self.repeats, self.size


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
        self._special = np.array(vocabulary.special, dtype=np.int64)
        self._literals = [tuple(vocabulary.tokenizer.tokenize_str(text)) for text in literals]

    def shortest(self, matcher: LLMatcher) -> tuple[int, ...] | None:
        """The fewest tokens that end the text, a stop token the last of them; None where none were
        found. The matcher stays where it is."""
        for effort in _EFFORTS:
            if (tokens := self._search(matcher, effort)) is not None:
                return tokens
        return None

    def _search(self, matcher: LLMatcher, effort: _Effort) -> tuple[int, ...] | None:
        beam, looked = [self._node(matcher.deep_copy(), (), None)], 0
        best: _Node | None = None
        for _ in range(_ROUNDS):
            if not beam or looked > effort.states:
                break
            found: dict[Kind, list[_Node]] = {}
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

    def _node(self, matcher: LLMatcher, tokens: tuple[int, ...], before: _Node | None) -> _Node:
        forced = matcher.compute_ff_tokens()
        if forced and matcher.consume_tokens(forced):
            tokens = (*tokens, *forced)
        size = len(self._vocabulary.tokenizer.decode_bytes(list(tokens)))
        self._fill(matcher, self._bits)
        kind = (self._bits.tobytes(), tuple(forced))
        seen = before.seen if before else frozenset()
        repeats = (before.repeats if before else 0) + (kind in seen)
        return _Node(matcher, tokens, size, *kind, before, seen | {kind}, repeats)

    def _among(self, node: _Node, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of some ids a state allows."""
        words = np.frombuffer(node.bits, dtype=np.int32)
        found: NDArray[np.bool_] = (words[ids >> 5] >> (ids & 31) & 1).astype(np.bool_)
        return found

    def _children(self, node: _Node, everything: bool) -> list[_Node]:
        """The states that one step leads to; of those that look alike the first."""
        before = node.before.kind if node.before else None
        back = {node.kind, before}
        children = self._expanded(node, bytes(range(256)) if everything else _SAMPLES)
        if back.issuperset(children) and before != node.kind:
            children = self._expanded(node, _PLAIN)  # the samples have found no way on
        if not back.issuperset(children):  # else there is no other way
            for child in children.values():
                child.waste += child.kind in back and not child.forced
        return list(children.values())

    def _expanded(self, node: _Node, samples: bytes) -> dict[Kind, _Node]:
        children: dict[Kind, _Node] = {}
        steps = self._steps(node, samples)
        closers = _CLOSERS if len(steps) <= _MANY else _CLOSERS[:1]
        closes = any(byte in closers for byte in steps.values() if byte is not None)
        for tokens, byte in steps.items():
            matcher = node.matcher.deep_copy()
            if matcher.try_consume_tokens(list(tokens)) < len(tokens):
                continue
            child = self._node(matcher, (*node.tokens, *tokens), node)
            child.waste = node.waste + (closes and (byte is None or byte not in closers))
            children.setdefault(child.kind, child)
        return children

    def _steps(self, node: _Node, samples: bytes) -> dict[tuple[int, ...], int | None]:
        """Tokens of one byte, and that; where no such is allowed, the first ones of any kind; where
        text is free, literals and special tokens, too."""
        allowed = self._among(node, self._singles)
        chosen, tokens = self._bytes[allowed].tolist(), self._singles[allowed].tolist()
        single = dict(zip(chosen, tokens, strict=True))
        if not single:
            bits = np.unpackbits(np.frombuffer(node.bits, np.uint8), bitorder="little")
            return dict.fromkeys((token,) for token in np.flatnonzero(bits)[:_MANY].tolist())
        if len(single) > _MANY:
            chosen = [byte for byte in samples if byte in single] or chosen[:_MANY]
        steps: dict[tuple[int, ...], int | None] = {(single[byte],): byte for byte in chosen}
        if len(single) > _MANY:
            steps |= dict.fromkeys(self._literals)
            steps |= dict.fromkeys(zip(self._special[self._among(node, self._special)].tolist()))
        return steps

    def _tokens(self, matcher: LLMatcher, node: _Node) -> tuple[int, ...]:
        """The path without detours, as the tokenizer writes it if the grammar reads that, too."""
        tokenizer = self._vocabulary.tokenizer
        path = _without_detours(matcher.deep_copy(), list(node.tokens))
        canonical = tokenizer.tokenize_bytes(tokenizer.decode_bytes(path))
        if len(canonical) < len(path) and completes(matcher, canonical):
            path = canonical
        return (*path, self._vocabulary.stops[0])


def _without_detours(matcher: LLMatcher, path: list[int]) -> list[int]:
    """Leaves out every stretch of tokens without which the rest of the path still ends the text.

    States that look alike are merged where they differ in what is behind them: a path may hold
    what only seemed to lead on.
    """
    at = 0
    while at < len(path):
        for length in range(min(_DETOUR, len(path) - at), 0, -1):
            if completes(matcher, path[at + length :]):
                del path[at : at + length]
                break
        else:
            matcher.consume_token(path[at])
            at += 1
    return path


def completes(matcher: LLMatcher, tokens: list[int]) -> bool:
    """Whether the text that the matcher has read may end behind `tokens`."""
    if matcher.validate_tokens(tokens) < len(tokens):
        return False
    copy = matcher.deep_copy()
    return bool(copy.consume_tokens(tokens)) and bool(copy.is_accepting())
