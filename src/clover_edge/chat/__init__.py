"""Chat: templates, messages and tools in; thinking, text and tool calls out."""

from .answer import Thinking, ToolChoice, Turn
from .calls import CallFormat, format_of
from .messages import checked_messages, checked_tools
from .parser import AnswerParser
from .results import (
    ChatDoneEvent,
    ChatEvent,
    ChatResult,
    RefusedCall,
    ThinkingEvent,
    ToolCall,
    ToolCallEvent,
)
from .template import ChatTemplate, read_template

__all__ = [
    "AnswerParser",
    "CallFormat",
    "ChatDoneEvent",
    "ChatEvent",
    "ChatResult",
    "ChatTemplate",
    "RefusedCall",
    "Thinking",
    "ThinkingEvent",
    "ToolCall",
    "ToolCallEvent",
    "ToolChoice",
    "Turn",
    "checked_messages",
    "checked_tools",
    "format_of",
    "read_template",
]
