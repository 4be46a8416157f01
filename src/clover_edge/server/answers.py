"""Events of a generation as OpenAI's objects: one whole, or the chunks of a stream."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from typing import Any

from ..chat import ChatDoneEvent, ChatResult, ThinkingEvent, ToolCallEvent
from ..results import DoneEvent, DraftEvent, GenerationResult, PrefillEvent, TextEvent, TokenLogprob
from ..text import TextCodec
from .logprobs import chat_logprobs, completion_logprobs
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
    Reading,
    ToolCall,
    ToolCallDelta,
    Usage,
)
from .source import LogprobsEvent, ServedEvent


class _Answer:
    def __init__(
        self, prefix: str, model: str, codec: TextCodec, request: ChatRequest | CompletionRequest
    ) -> None:
        self.id = f"{prefix}-{secrets.token_hex(12)}"
        self._head: dict[str, Any] = {"id": self.id, "created": int(time.time()), "model": model}
        self._codec = codec
        self._costs = request.clover is not None
        self._usage = request.wants_usage
        self._tokens: list[TokenLogprob] = []  # whose log-probabilities no chunk has said yet
        self._logprobs = bool(request.logprobs_options().get("logprobs"))

    def _cost(self, result: GenerationResult | ChatResult) -> dict[str, Any]:
        return {"clover": Cost.of(result.counters)} if self._costs else {}

    def _taken(self) -> list[TokenLogprob]:
        tokens, self._tokens = self._tokens, []
        return tokens


def finish_of(result: GenerationResult | ChatResult) -> FinishReason:
    """OpenAI's word; a cancelled generation has no answer."""
    if result.finish_reason == "tool_calls":
        return "tool_calls"
    return "length" if result.finish_reason == "length" else "stop"


class ChatAnswer(_Answer):
    """The answer to a chat completion."""

    def __init__(self, model: str, codec: TextCodec, request: ChatRequest) -> None:
        """`model` is the served model's id."""
        super().__init__("chatcmpl", model, codec, request)
        self._head["object"] = "chat.completion.chunk" if request.stream else "chat.completion"
        self._begun = False

    def whole(self, events: Sequence[ServedEvent]) -> ChatCompletion:
        """From all events."""
        last = events[-1]
        assert isinstance(last, ChatDoneEvent)
        result = last.result
        calls = [ToolCall.model_validate(call.to_dict()) for call in result.tool_calls]
        optional: dict[str, Any] = {"tool_calls": calls} if calls else {}
        if result.thinking:
            optional["reasoning_content"] = result.thinking
        content = None if calls and not result.text else result.text
        message = AssistantMessage(role="assistant", content=content, refusal=None, **optional)
        tokens = [token for e in events if isinstance(e, LogprobsEvent) for token in e.tokens]
        said = chat_logprobs(self._codec, tokens) if self._logprobs else None
        choice = ChatChoice(
            index=0, message=message, logprobs=said, finish_reason=finish_of(result)
        )
        usage = Usage.of(result.counters)
        return ChatCompletion(**self._head, choices=[choice], usage=usage, **self._cost(result))

    def chunks(self, event: ServedEvent) -> Iterator[bytes]:
        """The chunks of one event."""
        if not self._begun:
            self._begun = True
            yield self._chunk(Delta(role="assistant", content=""))
        if isinstance(event, LogprobsEvent):
            self._tokens += event.tokens
        elif isinstance(event, TextEvent):
            yield self._chunk(Delta(content=event.text))
        elif isinstance(event, ThinkingEvent):
            yield self._chunk(Delta(reasoning_content=event.text))
        elif isinstance(event, ToolCallEvent):
            call = ToolCallDelta(index=event.index, **event.call.to_dict())
            yield self._chunk(Delta(tool_calls=[call]))
        elif isinstance(event, DraftEvent):
            yield self._chunk(Delta(), clover=Progress.of(event))
        elif isinstance(event, PrefillEvent):
            yield self._chunk(Delta(), clover=Reading.of(event))
        elif isinstance(event, ChatDoneEvent):
            result = event.result
            yield self._chunk(Delta(), finish_of(result), **self._cost(result))
            if self._usage:
                usage = Usage.of(result.counters)
                yield ChatChunk(**self._head, choices=[], usage=usage).json_bytes()

    def _chunk(self, delta: Delta, finish: FinishReason | None = None, **fields: Any) -> bytes:
        tokens = self._taken()
        said = chat_logprobs(self._codec, tokens) if tokens else None
        choice = ChatChunkChoice(index=0, delta=delta, logprobs=said, finish_reason=finish)
        if self._usage:
            fields["usage"] = None
        return ChatChunk(**self._head, choices=[choice], **fields).json_bytes()


class CompletionAnswer(_Answer):
    """The answer to a plain completion."""

    def __init__(self, model: str, codec: TextCodec, request: CompletionRequest) -> None:
        """`model` is the served model's id."""
        super().__init__("cmpl", model, codec, request)
        self._head["object"] = "text_completion"
        self._offset = 0  # characters that log-probabilities have been said of

    def whole(self, events: Sequence[ServedEvent]) -> Completion:
        """From all events."""
        last = events[-1]
        assert isinstance(last, DoneEvent)
        result = last.result
        self._tokens = [token for e in events if isinstance(e, LogprobsEvent) for token in e.tokens]
        usage = Usage.of(result.counters)
        return self._completion(result.text, finish_of(result), usage=usage, **self._cost(result))

    def chunks(self, event: ServedEvent) -> Iterator[bytes]:
        """The chunks of one event."""
        usage: dict[str, Any] = {"usage": None} if self._usage else {}
        if isinstance(event, LogprobsEvent):
            self._tokens += event.tokens
        elif isinstance(event, TextEvent):
            yield self._completion(event.text, None, **usage).json_bytes()
        elif isinstance(event, DraftEvent):
            yield self._completion("", None, clover=Progress.of(event), **usage).json_bytes()
        elif isinstance(event, PrefillEvent):
            yield self._completion("", None, clover=Reading.of(event), **usage).json_bytes()
        elif isinstance(event, DoneEvent):
            result = event.result
            end = self._completion("", finish_of(result), **usage, **self._cost(result))
            yield end.json_bytes()
            if self._usage:
                last = Completion(**self._head, choices=[], usage=Usage.of(result.counters))
                yield last.json_bytes()

    def _completion(self, text: str, finish: FinishReason | None, **fields: Any) -> Completion:
        said = None
        if tokens := self._taken():
            said = completion_logprobs(self._codec, tokens, self._offset)
            self._offset += sum(map(len, said.tokens))
        choice = CompletionChoice(index=0, text=text, logprobs=said, finish_reason=finish)
        return Completion(**self._head, choices=[choice], **fields)
