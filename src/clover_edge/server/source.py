"""Where events come from: prompts checked at once, generated later by a session of the store."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Union

from ..chat import ChatEvent, Turn
from ..errors import ContextLengthError
from ..model import Model
from ..results import DoneEvent, Event, TextEvent, TokenLogprob
from ..sessions import PrefixStore


@dataclass(frozen=True)
class LogprobsEvent:
    """What is said of the next tokens, in front of the event that has their text."""

    tokens: tuple[TokenLogprob, ...]


ServedEvent = Union[ChatEvent, DoneEvent, LogprobsEvent]  # noqa: UP007 - evaluated on Python 3.10
Events = Generator[ServedEvent, None, None]
Start = Callable[[], Events]


class Source:
    """One model's generations, which share the prefixes of their prompts."""

    def __init__(self, model: Model, store: PrefixStore) -> None:
        """The store is the model's."""
        self._model = model
        self._store = store

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        options: Mapping[str, Any],
        new_tokens: int | None,
        **choices: Any,
    ) -> Start:
        """A chat's turn, to be started later. `choices`: tools, tool_choice and thinking.

        `new_tokens`: at most so many where `options` do not say, fewer where the context ends.
        Raises what is wrong with the arguments, as Model.chat does.
        """
        turn = Turn(self._model, messages, **choices)
        chosen = self._checked(turn.ids, turn.options(options), new_tokens)
        # What is no text of a generation passes through the turn as it is.
        return lambda: turn.events(self._generated(turn.ids, chosen))  # type: ignore[arg-type]

    def complete(
        self, prompt: str | list[int], options: Mapping[str, Any], new_tokens: int | None
    ) -> Start:
        """A text's continuation, likewise."""
        ids = self._model.tokenize(prompt) if isinstance(prompt, str) else prompt
        chosen = self._checked(ids, options, new_tokens)
        return lambda: self._generated(ids, chosen)

    def _checked(
        self, ids: list[int], options: Mapping[str, Any], new_tokens: int | None
    ) -> dict[str, Any]:
        chosen = dict(options)
        if new_tokens is not None and "max_new_tokens" not in chosen:
            try:
                self._model.prepare(ids, {**chosen, "max_new_tokens": new_tokens})
                return {**chosen, "max_new_tokens": new_tokens}
            except ContextLengthError:
                pass  # nobody has asked for so many: what room there is will do
        self._model.prepare(ids, chosen)
        return chosen

    def _generated(self, ids: list[int], options: Mapping[str, Any]) -> Events:
        with self._store.lease(ids) as session:
            yield from with_logprobs(session.stream(ids, **options))


def with_logprobs(events: Generator[Event, None, None]) -> Events:
    """The same events, log-probabilities in front of the texts that they belong to."""
    said = 0
    with closing(events):
        for event in events:
            tokens: tuple[TokenLogprob, ...] = ()
            if isinstance(event, TextEvent):
                tokens = event.logprobs
            elif isinstance(event, DoneEvent):  # of tokens at the end that have no text
                tokens = (event.result.logprobs or ())[said:]
            said += len(tokens)
            if tokens:
                yield LogprobsEvent(tokens)
            yield event
