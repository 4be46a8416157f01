"""`Session`: a conversation whose turns compute only what is new in them."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..chat.chats import Chats
from ..domains import integer_of
from ..errors import ArgumentError
from ..results import Event, GenerationResult
from .held import Held, common_prefix
from .openings import lasting, lost_openings

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .._core import Model as CoreModel
    from .._core import State as CoreState
    from ..generation import GenerationOptions
    from ..model import Model, Prompt

SNAPSHOT_EVERY = 16  # blocks
MEMORY_LIMIT = 512 << 20  # bytes of snapshots
BLOCK = 32  # tokens of a block of models that have none
FIRST_ROOM = 256  # tokens that a new session has room for


class Session(Chats):
    """A conversation that keeps keys, values and recurrent state between turns.

    Made by `Model.session()` or `Model.load_session()`. Every turn gives the whole text so far:
    what the session already holds of it is kept, and what differs from there on is computed. The
    text is the one that a generation without a session writes.

    Turns run one at a time; a second one, from another thread, waits. An error or a cancelled
    stream in the middle of a turn leaves a session that the next turn can use.
    """

    def __init__(
        self,
        model: Model,
        *,
        capacity: int | None = None,
        snapshot_every: int = SNAPSHOT_EVERY,
        memory_limit: int = MEMORY_LIMIT,
        held: Held | None = None,
    ) -> None:
        """Use `Model.session()`. `held`: what it starts with."""
        most = model.spec["max_positions"]
        self._model = model
        self.capacity = _checked("capacity", most if capacity is None else capacity, 1, most)
        self.snapshot_every = _checked("snapshot_every", snapshot_every, 0, 1 << 30)
        self.memory_limit = _checked("memory_limit", memory_limit, 0, 1 << 62)
        if held is None:
            held = Held(model.spec, model.core.new_state(min(self.capacity, FIRST_ROOM)))
        self._held = held
        self._openings: list[list[int]] | None = None  # of the template, once a turn needs them
        every = self.snapshot_every * (model.spec.get("block_size") or BLOCK)
        held.state.keep_marks(every=every, max_bytes=self.memory_limit)

    @property
    def model(self) -> Model:
        """The model that it belongs to."""
        return self._model

    @property
    def _speaker(self) -> Model:
        return self._model

    @property
    def state(self) -> CoreState:
        """The core's state behind these tokens."""
        return self._held.state

    @property
    def tokens(self) -> tuple[int, ...]:
        """The ids that it holds: the last prompt, what was generated, and the stop token."""
        return tuple(self._held.tokens)

    @property
    def snapshots(self) -> tuple[int, ...]:
        """The lengths, in tokens, that it can go back to; of a model without recurrent layers,
        which can go back to any, none."""
        return tuple(self._held.marks)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it takes."""
        return self._held.nbytes

    def generate(self, prompt: Prompt, **options: Unpack[GenerationOptions]) -> GenerationResult:
        """Text for `prompt`, the whole text so far: a string, token ids or chat messages.

        As `Model.generate` in arguments, result and errors. `counters.cached_tokens` says how many
        of the prompt's tokens were not computed again.
        """
        start = self._model.prepare(prompt, options, session=self)
        with self._model.exclusive():
            return start(None)

    def stream(
        self, prompt: Prompt, **options: Unpack[GenerationOptions]
    ) -> Generator[Event, None, None]:
        """The same turn as events, as `Model.stream` gives them."""
        return self._model.run_stream(self._model.prepare(prompt, options, session=self))

    def rewind(self, tokens: int) -> int:
        """Goes back to the last snapshot at or before that many tokens; returns how many are kept.

        A model without recurrent layers keeps exactly that many, or the blocks before. A turn whose
        prompt differs from what the session holds does it by itself.
        """
        wanted = _checked("tokens", tokens, 0, len(self._held.tokens))
        with self._model.exclusive():
            held = self._held
            held.settle(held.tokens[: held.state.rewind(wanted)])
            return len(held.tokens)

    def reach(self, ids: Sequence[int]) -> int:
        """How many leading tokens of `ids` a turn with them would not compute again."""
        return self._held.reach(ids)

    def follows(self, ids: Sequence[int]) -> bool:
        """Whether `ids` begin as the last turn's prompt did: no more than its answer would be lost
        if they took its place."""
        return common_prefix(self._held.tokens, ids) >= self._held.turn

    def fork(self, tokens: int) -> Session:
        """A new session that starts with a copy of this one, as `rewind(tokens)` would leave it."""
        wanted = _checked("tokens", tokens, 0, len(self._held.tokens))
        with self._model.exclusive():
            held = self._held.fork(self._model.spec, wanted)
        return Session(
            self._model,
            capacity=self.capacity,
            snapshot_every=self.snapshot_every,
            memory_limit=self.memory_limit,
            held=held,
        )

    def save(self, path: str | Path) -> None:
        """Writes all of it, snapshots included, to one file that `Model.load_session` reads.

        The file is written under a temporary name and then takes its place. Raises OSError.
        """
        from .saved import save_session

        with self._model.exclusive():
            save_session(self, self._held, Path(path))

    def resume(self, ids: Sequence[int], needed: int, drafter: CoreModel | None) -> Held:
        """For `Model.prepare`: the state that a turn with `ids` goes on from, with room for
        `needed` tokens."""
        if self._openings is None:
            self._openings = lost_openings(self._model)
        self._held.resume(ids, lasting(ids, self._openings), drafter)
        self._held.make_room(needed, self.capacity, drafter)
        return self._held

    def __repr__(self) -> str:
        return f"<clover_edge.Session of {self._model.path}, {len(self._held.tokens)} tokens>"


def _checked(name: str, value: object, low: int, high: int) -> int:
    integer = integer_of(value)
    if integer is None or not low <= integer <= high:
        raise ArgumentError(f"{name}: {value!r} is not an integer from {low} to {high}")
    return integer
