"""What an answer holds once it is taken apart, and its events on the way."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Union

from ..results import Counters, DraftEvent, PrefillEvent, TextEvent


@dataclass(frozen=True)
class ToolCall:
    """One call that the model asks for."""

    id: str  # unique in the conversation: the message's and the call's position
    name: str
    arguments: str  # JSON text of an object

    def to_dict(self) -> dict[str, Any]:
        """The call as OpenAI's API has it."""
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "function": function}


@dataclass(frozen=True)
class RefusedCall:
    """What begins like a call and is none; the answer's `text` holds it, too."""

    text: str
    reason: str


@dataclass(frozen=True)
class ChatResult:
    """An answer. `text` is what is neither thinking nor a call.

    `token_ids` are those of the whole answer; `finish_reason` is "tool_calls" where the answer is
    complete and calls a tool.
    """

    text: str
    thinking: str
    tool_calls: tuple[ToolCall, ...]
    refused_calls: tuple[RefusedCall, ...]
    finish_reason: str  # "stop" | "tool_calls" | "length" | "cancelled"
    token_ids: tuple[int, ...]
    counters: Counters

    def message(self) -> dict[str, Any]:
        """The assistant's message, to append to the messages of the next turn."""
        message: dict[str, Any] = {"role": "assistant", "content": self.text}
        if self.thinking:
            message["reasoning_content"] = self.thinking
        if self.tool_calls:
            message["tool_calls"] = [call.to_dict() for call in self.tool_calls]
        return message

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        plain = {name: getattr(self, name) for name in ("text", "thinking", "finish_reason")}
        return {
            **plain,
            "tool_calls": [call.to_dict() for call in self.tool_calls],
            "refused_calls": [asdict(call) for call in self.refused_calls],
            "token_ids": list(self.token_ids),
            "counters": asdict(self.counters),
        }


@dataclass(frozen=True)
class ThinkingEvent:
    """Thinking that is final: all such texts concatenated are the result's `thinking`."""

    text: str


@dataclass(frozen=True)
class ToolCallEvent:
    """A call, complete. `index` counts the answer's calls from 0."""

    index: int
    call: ToolCall


@dataclass(frozen=True)
class ChatDoneEvent:
    """The last event of a chat's stream."""

    result: ChatResult


ParsedEvent = Union[ThinkingEvent, TextEvent, ToolCallEvent]  # noqa: UP007 - evaluated on Python 3.10
ChatEvent = Union[ParsedEvent, DraftEvent, PrefillEvent, ChatDoneEvent]  # noqa: UP007
