"""A turn of a chat: the prompt that the template makes, and the answer taken apart."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, Literal, Union

from ..constrained.request import format_of
from ..errors import ArgumentError
from ..results import DoneEvent, Event, GenerationResult, TextEvent
from .forced import calls_of, forced_tools, with_thinking
from .messages import checked_tools
from .parser import AnswerParser
from .results import ChatDoneEvent, ChatEvent, ChatResult

if TYPE_CHECKING:
    from ..model import Model

Thinking = Union[bool, Literal["auto"], None]  # noqa: UP007 - evaluated on Python 3.10
ToolChoice = Union[str, Mapping[str, Any]]  # noqa: UP007


class Turn:
    """One turn: `ids` is the prompt; `events` and `result` read what is generated from it."""

    def __init__(
        self,
        model: Model,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        tool_choice: ToolChoice = "auto",
        thinking: Thinking = None,
    ) -> None:
        """Raises ArgumentError naming what is wrong with messages, tools or choices, and when the
        model has no chat template."""
        template = model.template
        if template is None:
            raise ArgumentError(f"messages: {model.path} has no chat template; give text instead")
        if thinking is not None and thinking != "auto" and type(thinking) is not bool:
            raise ArgumentError(f'thinking: {thinking!r} is neither True, False nor "auto"')
        self.tools = checked_tools(tools or ())
        self._forced = forced_tools(self.tools, tool_choice)
        if tool_choice == "none":  # the model sees no tools, and what it writes is text
            self.tools = []
        variables = {"enable_thinking": thinking} if isinstance(thinking, bool) else {}
        text = template.render(messages, tools=self.tools, **variables)
        self.ids = model.codec.encode(text)
        self.calls = None if tool_choice == "none" else template.calls
        self._tags = template.thinking
        self._opened = text.rstrip().endswith(self._tags.opening)
        self._position = len(messages)  # of the answer in the conversation

    def options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Generation options with the response_format that forced calls and open thinking need.

        Raises ArgumentError where calls cannot be forced, or another format is asked for, too.
        """
        options = dict(given)
        request = format_of(options.get("response_format") or {"type": "text"})
        if self._forced:
            if request is not None:
                raise ArgumentError("response_format: is not for use with forced tool calls")
            request = calls_of(self._forced, self.calls)
        if request is not None:
            thought = self._opened and self._tags.closing
            options["response_format"] = with_thinking(request, thought) if thought else request
        return options

    def parser(self) -> AnswerParser:
        """A fresh parser of this turn's answer."""
        functions = [tool["function"] for tool in self.tools]
        return AnswerParser(
            self.calls,
            self._tags,
            {each["name"]: each.get("parameters", {}) for each in functions},
            thinking=self._opened,
            id_prefix=f"call_{self._position}_",
        )

    def events(self, events: Generator[Event, None, None]) -> Generator[ChatEvent, None, None]:
        """The events of a generation, its text taken apart. Closing this closes that."""
        parser = self.parser()
        with closing(events):
            for event in events:
                if isinstance(event, TextEvent):
                    yield from parser.push(event.text)
                elif isinstance(event, DoneEvent):
                    yield from parser.finish()
                    yield ChatDoneEvent(_result(parser, event.result))
                else:
                    yield event

    def result(self, generated: GenerationResult) -> ChatResult:
        """A whole answer, taken apart."""
        parser = self.parser()
        parser.push(generated.text)
        parser.finish()
        return _result(parser, generated)


def _result(parser: AnswerParser, generated: GenerationResult) -> ChatResult:
    reason = generated.finish_reason
    return ChatResult(
        text=parser.text,
        thinking=parser.thinking,
        tool_calls=tuple(parser.tool_calls),
        refused_calls=tuple(parser.refused_calls),
        finish_reason="tool_calls" if reason == "stop" and parser.tool_calls else reason,
        token_ids=generated.token_ids,
        counters=generated.counters,
    )
