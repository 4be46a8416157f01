"""What a session holds between turns: the core's states, and the tokens that they stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import OutOfMemoryError

if TYPE_CHECKING:
    from .._core import Model as CoreModel
    from .._core import State as CoreState


class Held:
    """A state of the model, one of its drafter, and the ids that the first of them holds.

    `grid`: where blocks count from the prompt's end, the length of the prompt that the state was
    begun with; what it holds serves prompts alone whose blocks fall into the same places.
    """

    def __init__(
        self,
        spec: Mapping[str, Any],
        state: CoreState,
        tokens: Sequence[int] = (),
        *,
        context: CoreState | None = None,
        grid: int = 0,
    ) -> None:
        self._whole_texts = spec.get("mask") == "full"  # each token sees those behind it
        self._block = spec["block_size"] if spec.get("mask") == "block" else 1
        self._from_ends = self._block > 1 and spec.get("block_origin") != "absolute"
        self.state = state
        self.context = context
        self.grid = grid
        self.tokens = list(tokens)
        self.marks: list[int] = state.marks
        self.mark = 0  # where the next prompt's mark shall be; 0: nowhere
        self.turn = 0  # tokens in front of the last turn's answer

    @property
    def nbytes(self) -> int:
        """Bytes of the states, marks and spare rows included."""
        return self.state.nbytes + (0 if self.context is None else self.context.nbytes)

    def common(self, ids: Sequence[int]) -> int:
        """Leading tokens of `ids` whose rows are here, as a pass over all of `ids` makes them."""
        if self._whole_texts:
            return 0
        common = common_prefix(self.tokens, ids)
        if self._from_ends:
            if (len(ids) - self.grid) % self._block:
                return 0
            common = max(0, common - (common - self.grid) % self._block)
        return common

    def reach(self, ids: Sequence[int]) -> int:
        """How many leading tokens of `ids` a turn with them would not compute again."""
        common = self.common(ids)
        if common == self.state.position:
            return common
        if self.state.cuttable:
            return common // self._block * self._block
        return max((mark for mark in self.marks if mark <= common), default=0)

    def resume(self, ids: Sequence[int], mark: int, drafter: CoreModel | None) -> None:
        """Goes back to what `ids` begin with, so that decoding can go on from there.

        `mark`: where the prompt's mark shall be. `drafter`: drafts in this turn; its context can
        only go on where it was left.
        """
        common = self.common(ids)
        if drafter is not None:
            common = min(common, 0 if self.context is None else self.context.position)
        self.state.rewind(common)
        if self.state.position == len(ids) and not self.state.decided:
            self.state.rewind(len(ids) - 1)  # its last token's output is computed again
        if self.state.position == 0:
            self.grid = len(ids)
        if self.context is not None:
            self.context.rewind(self.state.position)
        del self.tokens[self.state.position :]
        self.turn = mark
        self.mark = 0 if self.state.cuttable else len(ids) if self._from_ends else mark

    def make_room(self, needed: int, most: int, drafter: CoreModel | None) -> None:
        """Room for `needed` tokens, and for more, up to `most`, where there is memory."""
        extend(self.state, needed, most)
        if drafter is None:
            return
        if self.context is None:
            self.context = drafter.new_state(needed)
        extend(self.context, needed, most)

    def settle(self, known: Sequence[int]) -> None:
        """After a generation, however it ended: `known` are the prompt and what was written."""
        self.state.rewind(min(len(known), self.state.position))  # also behind a half commit
        self.tokens = list(known[: self.state.position])
        self.marks = self.state.marks

    def fork(self, spec: Mapping[str, Any], position: int) -> Held:
        """A copy of what stands in front of `position`."""
        state = self.state.fork(position)
        at = state.position
        context = None if self.context is None else self.context.fork(at)
        return Held(spec, state, self.tokens[:at], context=context, grid=self.grid)


def extend(state: CoreState, needed: int, most: int) -> None:
    """Capacity for `needed` tokens; half as many again, up to `most`, where memory allows."""
    if needed <= state.capacity:
        return
    try:
        state.extend(max(needed, min(most, needed + needed // 2)))
    except OutOfMemoryError:
        state.extend(needed)


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """How many leading ids are the same."""
    for at, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return at
    return min(len(one), len(other))
