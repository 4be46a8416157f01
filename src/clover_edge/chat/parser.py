"""An answer taken apart while it comes: thinking, text, calls."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from ..results import TextEvent
from .calls import CallError, CallFormat, Tools
from .results import ParsedEvent, RefusedCall, ThinkingEvent, ToolCall, ToolCallEvent


@dataclass(frozen=True)
class ThinkingTags:
    """What surrounds thinking. `tokens`: those of it that a tokenizer may hold as special."""

    opening: str
    closing: str
    tokens: tuple[str, ...]


THINK = ThinkingTags("<think>", "</think>", ("<think>", "</think>"))
CHANNEL = ThinkingTags("<|channel>thought", "<channel|>", ("<|channel>", "<channel|>"))


def thinking_of(template: str) -> ThinkingTags:
    """The tags of a chat template; `<think>` where it names none, as reasoning models use."""
    return CHANNEL if CHANNEL.tokens[0] in template else THINK


class AnswerParser:
    """Takes an answer's text in pieces of any size and says what is certain.

    Thinking stands at the answer's start, or is open from the prompt on. Nothing is said that a
    later piece could make part of a tag; white space between text and tags is dropped. A call
    that is malformed or unfinished is text, and `refused_calls` says why.
    """

    def __init__(
        self,
        calls: CallFormat | None,
        tags: ThinkingTags = THINK,
        tools: Tools | None = None,
        *,
        thinking: bool = False,
        id_prefix: str = "call_",
    ) -> None:
        """`thinking`: the prompt has opened it. `tools`: names and schemas, which type values."""
        self._calls = calls
        self._tags = tags
        self._tools = tools or {}
        self._id_prefix = id_prefix
        self._buffer = ""
        self._state: Callable[[bool], bool] = self._in_thinking if thinking else self._at_start
        self._events: list[ParsedEvent] = []
        self._gap = ""  # white space behind the text so far
        self._bare = False  # only white space since thinking or a call ended: no text by itself
        self._read = 0  # how far the buffer has been searched for a closing tag
        self.text = ""
        self.thinking = ""
        self.tool_calls: list[ToolCall] = []
        self.refused_calls: list[RefusedCall] = []

    def push(self, text: str) -> list[ParsedEvent]:
        """Reads on, and returns what has become certain."""
        self._buffer += text
        self._run(final=False)
        return self._taken()

    def finish(self) -> list[ParsedEvent]:
        """The answer is over: what was held back."""
        self._run(final=True)
        if self._gap and not self._bare:
            self._emit_text(self._gap)
        self._gap = ""
        return self._taken()

    def _run(self, *, final: bool) -> None:
        while self._state(final):
            pass

    def _taken(self) -> list[ParsedEvent]:
        """The events so far, neighbours of one kind joined."""
        events, self._events = self._events, []
        joined: list[ParsedEvent] = []
        for event in events:
            last = joined[-1] if joined else None
            if isinstance(event, TextEvent) and isinstance(last, TextEvent):
                joined[-1] = TextEvent(last.text + event.text)
            else:
                joined.append(event)
        return joined

    # Each state reads the buffer as far as it can; True: the next state is to go on.

    def _at_start(self, final: bool) -> bool:
        begun, opening = self._buffer.lstrip(), self._tags.opening
        if begun.startswith(opening):
            self._buffer = begun[len(opening) :]
            self._state = self._in_thinking
            return True
        if opening.startswith(begun) and not final:
            return False
        self._state = self._in_text
        return True

    def _in_thinking(self, final: bool) -> bool:
        if not self.thinking:
            self._buffer = self._buffer.lstrip()
        end = self._buffer.find(self._tags.closing)
        if end < 0:
            certain = len(self._buffer) if final else _certain(self._buffer, self._tags.closing)
            self._think(len(self._buffer[:certain].rstrip()))
            return False
        self._think(len(self._buffer[:end].rstrip()))
        self._buffer = self._buffer.partition(self._tags.closing)[2]
        self._bare = True
        self._state = self._in_text
        return True

    def _think(self, length: int) -> None:
        piece, self._buffer = self._buffer[:length], self._buffer[length:]
        if piece:
            self.thinking += piece
            self._events.append(ThinkingEvent(piece))

    def _in_text(self, final: bool) -> bool:
        opening = self._calls.opening if self._calls else ""
        start = self._buffer.find(opening) if opening else -1
        if start >= 0:
            self._say(start)
            self._state, self._read = self._in_call, len(opening)
            return True
        self._say(_certain(self._buffer, opening) if opening and not final else len(self._buffer))
        return False

    def _say(self, length: int) -> None:
        """Takes text from the buffer; white space at its end waits for what follows."""
        piece, self._buffer = self._gap + self._buffer[:length], self._buffer[length:]
        body = piece.rstrip()
        self._gap = piece[len(body) :]
        if not body:
            return
        if self._bare and not self.text:
            body = body.lstrip()
        self._bare = False
        self._emit_text(body)

    def _emit_text(self, text: str) -> None:
        self.text += text
        self._events.append(TextEvent(text))

    def _in_call(self, final: bool) -> bool:
        assert self._calls is not None  # only a format's opening tag leads here
        closing = self._calls.closing
        try:
            found = None
            if self._buffer.find(closing, self._read) >= 0:
                found = self._calls.read(self._buffer, self._tools)
        except CallError as error:
            self._refuse(str(error))
        else:
            if found is not None:
                self._buffer = self._buffer[found.end :]
                self._bare = True
                for name, arguments in found.calls:
                    self._call(name, arguments)
            elif final:
                self._refuse(f"no {closing} ends the call")
            else:
                self._read = max(self._read, len(self._buffer) - len(closing) + 1)
                return False
        self._state = self._in_text
        return True

    def _call(self, name: str, arguments: dict[str, object]) -> None:
        text = json.dumps(arguments, ensure_ascii=False)
        try:
            text.encode()
        except UnicodeEncodeError:  # half a surrogate pair, which only escapes can say
            text = json.dumps(arguments)
        index = len(self.tool_calls)
        self.tool_calls.append(ToolCall(f"{self._id_prefix}{index}", name, text))
        self._events.append(ToolCallEvent(index, self.tool_calls[-1]))

    def _refuse(self, reason: str) -> None:
        """Turns the call into text, as far as its closing tag or the next call goes."""
        assert self._calls is not None
        end = self._buffer.find(self._calls.closing)
        end = len(self._buffer) if end < 0 else end + len(self._calls.closing)
        inner = self._buffer.rfind(self._calls.opening, 1, end)
        end = end if inner < 0 else inner
        self.refused_calls.append(RefusedCall(self._buffer[:end].strip(), reason))
        self._say(end)


def _certain(text: str, tag: str) -> int:
    """How much of `text` cannot be the beginning of `tag`."""
    for length in range(min(len(tag) - 1, len(text)), 0, -1):
        if text.endswith(tag[:length]):
            return len(text) - length
    return len(text)
