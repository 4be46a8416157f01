"""Tool calls that an answer must consist of: `tool_choice` beyond "auto" and "none"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..constrained.request import ResponseFormat
from ..errors import ArgumentError
from .calls import CallFormat, JsonCalls, XmlCalls

Tool = Mapping[str, Any]


def forced_tools(tools: Sequence[Tool], choice: Any) -> list[Tool]:
    """The tools of which each call takes one; none where calls are not forced.

    `choice`: "auto", "none", "required" or {"type": "function", "function": {"name": …}}. Raises
    ArgumentError where it is none of these, or names a tool that is not there.
    """
    if choice in ("auto", "none"):
        return []
    if choice == "required":
        if not tools:
            raise ArgumentError('tool_choice: "required" needs tools')
        return list(tools)
    name = _name_of(choice)
    named = [tool for tool in tools if tool["function"]["name"] == name]
    if not named:
        raise ArgumentError(f"tool_choice: {name!r} is none of the tools")
    return named


def _name_of(choice: Any) -> str:
    function = choice.get("function") if isinstance(choice, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str) or choice.get("type") != "function":
        raise ArgumentError(
            f'tool_choice: {choice!r} is none of "auto", "none", "required", '
            '{"type": "function", "function": {"name": ...}}'
        )
    return name


def calls_of(tools: Sequence[Tool], calls: CallFormat | None) -> ResponseFormat:
    """The grammar of calls in a template's form; ArgumentError where none is known for it."""
    from ..constrained.calls import json_calls, xml_calls

    if isinstance(calls, XmlCalls):
        return xml_calls(tools)
    if isinstance(calls, JsonCalls):
        return json_calls(tools, (calls.opening, calls.closing))
    raise ArgumentError("tool_choice: calls in the form of this chat template cannot be forced")


def with_thinking(request: ResponseFormat, closing: str) -> ResponseFormat:
    """The same behind thinking that the prompt has opened."""
    from ..constrained.calls import behind_thinking

    try:
        return behind_thinking(request, closing)
    except ValueError as error:  # llguidance's, about a schema
        raise ArgumentError(f"response_format: {error}") from None
