"""Events of a generation as OpenAI's objects: one whole, or the chunks of a stream."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from typing import Any

from ..results import DoneEvent, DraftEvent, Event, GenerationResult, TextEvent
from .requests import ChatRequest, CompletionRequest
from .responses import (
    AssistantMessage,
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatCompletion,
    Completion,
    CompletionChoice,
    Cost,
    Delta,
    FinishReason,
    Progress,
    Usage,
)
from .streams import result_of


class _Answer:
    def __init__(self, prefix: str, model: str, request: ChatRequest | CompletionRequest) -> None:
        self.id = f"{prefix}-{secrets.token_hex(12)}"
        self._head: dict[str, Any] = {"id": self.id, "created": int(time.time()), "model": model}
        self._costs = request.clover is not None
        self._usage = request.wants_usage

    def _end(self, result: GenerationResult) -> dict[str, Any]:
        return {"clover": Cost.of(result.counters)} if self._costs else {}


def finish_of(result: GenerationResult) -> FinishReason:
    """OpenAI's word; a cancelled generation has no answer."""
    return "length" if result.finish_reason == "length" else "stop"


class ChatAnswer(_Answer):
    """The answer to a chat completion."""

    def __init__(self, model: str, request: ChatRequest) -> None:
        """`model` is the served model's id."""
        super().__init__("chatcmpl", model, request)
        self._head["object"] = "chat.completion.chunk" if request.stream else "chat.completion"
        self._begun = False

    def whole(self, events: Sequence[Event]) -> ChatCompletion:
        """From all events."""
        result = result_of(events)
        message = AssistantMessage(role="assistant", content=result.text, refusal=None)
        choice = ChatChoice(
            index=0, message=message, logprobs=None, finish_reason=finish_of(result)
        )
        usage = Usage.of(result.counters)
        return ChatCompletion(**self._head, choices=[choice], usage=usage, **self._end(result))

    def chunks(self, event: Event) -> Iterator[bytes]:
        """The chunks of one event."""
        if not self._begun:
            self._begun = True
            yield self._chunk(Delta(role="assistant", content=""))
        if isinstance(event, TextEvent):
            yield self._chunk(Delta(content=event.text))
        elif isinstance(event, DraftEvent):
            yield self._chunk(Delta(), clover=Progress.of(event))
        elif isinstance(event, DoneEvent):
            result = event.result
            yield self._chunk(Delta(), finish_of(result), **self._end(result))
            if self._usage:
                usage = Usage.of(result.counters)
                yield ChatChunk(**self._head, choices=[], usage=usage).json_bytes()

    def _chunk(self, delta: Delta, finish: FinishReason | None = None, **fields: Any) -> bytes:
        choice = ChatChunkChoice(index=0, delta=delta, logprobs=None, finish_reason=finish)
        if self._usage:
            fields["usage"] = None
        return ChatChunk(**self._head, choices=[choice], **fields).json_bytes()


class CompletionAnswer(_Answer):
    """The answer to a plain completion."""

    def __init__(self, model: str, request: CompletionRequest) -> None:
        """`model` is the served model's id."""
        super().__init__("cmpl", model, request)
        self._head["object"] = "text_completion"

    def whole(self, events: Sequence[Event]) -> Completion:
        """From all events."""
        result = result_of(events)
        usage = Usage.of(result.counters)
        return self._completion(result.text, finish_of(result), usage=usage, **self._end(result))

    def chunks(self, event: Event) -> Iterator[bytes]:
        """The chunks of one event."""
        usage: dict[str, Any] = {"usage": None} if self._usage else {}
        if isinstance(event, TextEvent):
            yield self._completion(event.text, None, **usage).json_bytes()
        elif isinstance(event, DraftEvent):
            yield self._completion("", None, clover=Progress.of(event), **usage).json_bytes()
        elif isinstance(event, DoneEvent):
            result = event.result
            end = self._completion("", finish_of(result), **usage, **self._end(result))
            yield end.json_bytes()
            if self._usage:
                last = Completion(**self._head, choices=[], usage=Usage.of(result.counters))
                yield last.json_bytes()

    def _completion(self, text: str, finish: FinishReason | None, **fields: Any) -> Completion:
        choice = CompletionChoice(index=0, text=text, logprobs=None, finish_reason=finish)
        return Completion(**self._head, choices=[choice], **fields)
