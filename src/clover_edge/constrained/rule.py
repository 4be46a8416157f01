"""A grammar as the core's decoding loops ask it: what may come next, and what must."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..errors import CloverError
from .closing import Closer, completes
from .vocabulary import Vocabulary, library

if TYPE_CHECKING:
    from llguidance import LLMatcher

_NEAR = 64  # tokens, and four times the shortest text: where the end of the budget is minded


class GrammarRule:
    """What the grammar says of one text, told token by token. Not for two generations.

    The core calls force, allowed and advance; `bits` is where allowed() leaves its answer. `room`
    counts the tokens that the budget leaves, the stop token among them. Near the end of the budget
    the rule keeps a completion at hand and lets nothing come next behind which none would fit; once
    just that fits, it is forced.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        matcher: LLMatcher,
        closer: Closer,
        shortest: tuple[int, ...] | None,
    ) -> None:
        """`shortest`: text of the grammar, if it is known."""
        self._vocabulary = vocabulary
        self._matcher = matcher
        self._closer = closer
        self._fill = library().numpy.fill_next_token_bitmask
        self._near = None if shortest is None else _NEAR + 4 * len(shortest)
        self._closing: tuple[int, ...] | None = None  # a completion, where the end is near
        self._ends = False  # nothing but the completion may follow
        self.bits: NDArray[np.int32] = np.zeros((1, vocabulary.words), np.int32)

    def force(self, most: int, room: int) -> list[int]:
        """The tokens that must come next, at most `most`; they count as told."""
        self._watch(room)
        if self._closing is not None and not self._ends and len(self._closing) >= room:
            self._shorten()
            self._ends = len(self._closing) >= room
        if self._ends and self._closing is not None:
            rest = list(self._closing[:most])
            self._closing = self._closing[len(rest) :]
            self._consume(rest if self._closing else rest[:-1])  # the last is a stop token
            return rest
        if self._matcher.is_stopped():
            self._check()
            return [self._vocabulary.stops[0]]  # the grammar is at its end
        tokens: list[int] = self._matcher.compute_ff_tokens()[:most]
        if tokens:
            self._consume(tokens)
            if not self._keep_closing(tokens, room - len(tokens)):
                self._matcher.rollback(len(tokens))
                return self.force(most, room)
        return tokens

    def allowed(self) -> None:
        """Fills `bits`: one for each id that may come next."""
        self._fill(self._matcher, self.bits)
        self._check()

    def advance(self, token: int, room: int) -> bool:
        """Tells of an allowed token. False: it is not taken, as its completion has no room."""
        if token in self._vocabulary.stops:
            return True
        self._consume([token])
        if self._keep_closing([token], room):
            return True
        self._matcher.rollback(1)
        return False

    def _watch(self, room: int) -> None:
        """From near the end of the budget on there is a completion, if one fits."""
        if self._closing is not None or self._near is None or room > self._near:
            return
        self._near = room * 3 // 4  # where none fits, another look is worth it only later
        closing = self._closer.shortest(self._matcher)
        if closing is not None and len(closing) <= room:
            self._closing = closing

    def _keep_closing(self, told: list[int], room: int) -> bool:
        """A completion for the text with `told`; False where none fits, and the old one must."""
        old = self._closing
        if old is None:
            return True
        if old[: len(told)] == tuple(told):
            self._closing = old[len(told) :]
            return True
        body = list(old[:-1])
        for skipped in range(min(len(body), 2) + 1):  # what is still to come may be the same
            if len(old) - skipped <= room and completes(self._matcher, body[skipped:]):
                self._closing = old[skipped:]
                return True
        new = self._closer.shortest(self._matcher)
        if new is None or len(new) > room:
            self._ends = True
            return False
        self._closing = new
        return True

    def _shorten(self) -> None:
        """The completion at hand was valid, not the shortest."""
        new = self._closer.shortest(self._matcher)
        if new is not None and self._closing is not None and len(new) < len(self._closing):
            self._closing = new

    def _consume(self, tokens: list[int]) -> None:
        if not self._matcher.consume_tokens(tokens):
            self._check()
            raise CloverError(f"response_format: the grammar does not take tokens {tokens}")

    def _check(self) -> None:
        if self._matcher.is_error():
            raise CloverError(f"response_format: {self._matcher.get_error()}")
