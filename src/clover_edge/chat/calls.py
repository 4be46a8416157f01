"""The forms in which chat templates have models write tool calls: one small reader each."""

from __future__ import annotations

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

from .values import typed

Call = tuple[str, dict[str, Any]]  # name, arguments
Tools = Mapping[str, Mapping[str, Any]]  # a tool's name -> the JSON schema of its parameters


class CallError(Exception):
    """A call that is none; the message says why."""


@dataclass(frozen=True)
class Found:
    """The calls between one pair of tags, and where the closing tag ends."""

    calls: tuple[Call, ...]
    end: int


class CallFormat(ABC):
    """How one family of templates writes calls."""

    opening: ClassVar[str]
    closing: ClassVar[str]

    @property
    def markers(self) -> tuple[str, ...]:
        """Texts that a tokenizer may hold as special tokens, and that must not be lost."""
        return (self.opening, self.closing)

    @abstractmethod
    def read(self, text: str, tools: Tools) -> Found | None:
        """The call at the start of `text`, which holds opening and closing tag.

        None: it may still go on, since the closing tag can be part of a value. What is decided
        stays so whatever text follows. Raises CallError.
        """


class XmlCalls(CallFormat):
    """`<function=NAME>` with a `<parameter=KEY>` for each argument: Qwen3.5, Qwen3-Coder, Clover.

    A value goes up to the first `</parameter>` that another parameter or the call's end follows,
    so it may hold tags of its own, but not a call's end with the next one's beginning.
    """

    opening = "<tool_call>"
    closing = "</tool_call>"
    _function = re.compile(r"\s*<function=([^<>\n]*)>")
    _parameter = re.compile(r"\s*<parameter=([^<>\n]*)>")
    _call_end = re.compile(r"\s*</function>\s*</tool_call>")
    _value_end = re.compile(
        r"</parameter>(?=\s*(?:<parameter=[^<>\n]*>|</function>\s*</tool_call>))"
    )
    _next_call = re.compile(r"</tool_call>\s*<tool_call>\s*<function=")

    def read(self, text: str, tools: Tools) -> Found | None:
        head = self._function.match(text, len(self.opening))
        if head is None:
            raise CallError("no <function=NAME> follows <tool_call>")
        name = head[1].strip()
        if not name:
            raise CallError("the function has no name")
        properties = tools.get(name, {}).get("properties")
        schemas = properties if isinstance(properties, Mapping) else {}
        arguments: dict[str, Any] = {}
        at = head.end()
        while (end := self._call_end.match(text, at)) is None:
            parameter = self._parameter.match(text, at)
            if parameter is None:
                raise CallError("neither <parameter=KEY> nor </function> follows <function=NAME>")
            key = parameter[1].strip()
            value = self._value_end.search(text, parameter.end())
            limit = len(text) if value is None else value.start()
            if self._next_call.search(text, parameter.end(), limit):
                raise CallError(f"no </parameter> ends {key!r} in front of the next call")
            if value is None:
                return None
            if key in arguments:
                raise CallError(f"parameter {key!r} is there twice")
            inner = text[parameter.end() : value.start()]
            inner = inner.removeprefix("\n").removesuffix("\n")
            arguments[key] = typed(inner, schemas.get(key))
            at = value.end()
        return Found(((name, arguments),), end.end())


class _QuotedCalls(CallFormat):
    """Calls in which the closing tag counts only outside of strings."""

    string: ClassVar[str]  # pattern of a string, to its end (group "whole") or as far as it goes

    def __init__(self) -> None:
        closing = f"(?P<end>{re.escape(self.closing)})"
        self._parts = re.compile(f"{self.string}|{closing}", re.DOTALL)

    def read(self, text: str, tools: Tools) -> Found | None:
        for part in self._parts.finditer(text, len(self.opening)):
            if part["end"]:
                calls = self._calls(text[len(self.opening) : part.start()])
                return Found(calls, part.end())
            if not part["whole"]:
                break
        return None

    @abstractmethod
    def _calls(self, body: str) -> tuple[Call, ...]:
        """The calls that stand between the tags."""


class JsonCalls(_QuotedCalls):
    """`{"name": …, "arguments": {…}}` between tags, or a list of such objects.

    The Hermes form, of Qwen2.5, Qwen3, LLaDA2, SDAR, Dream and many others.
    """

    opening = "<tool_call>"
    closing = "</tool_call>"
    string = r'"(?:[^"\\]|\\.)*(?:(?P<whole>")|\\?\Z)'

    def _calls(self, body: str) -> tuple[Call, ...]:
        value = _json(body)
        if value == []:
            raise CallError("the list of calls is empty")
        return tuple(map(_call_of, value if isinstance(value, list) else [value]))


class BracketCalls(JsonCalls):
    """The same between `<TOOLCALL>` tags: Nemotron."""

    opening = "<TOOLCALL>"
    closing = "</TOOLCALL>"


class GemmaCalls(_QuotedCalls):
    """`call:NAME{key:value,…}` with strings between `<|"|>`: Gemma 4 and DiffusionGemma."""

    opening = "<|tool_call>"
    closing = "<tool_call|>"
    quote = '<|"|>'
    string = r'<\|"\|>.*?(?:(?P<whole><\|"\|>)|\Z)'
    _head = re.compile(r"\s*call:\s*([^\s{}<>]+)\s*(?=\{)")
    _token = re.compile(
        r'<\|"\|>(?P<text>.*?)<\|"\|>|"(?:[^"\\]|\\.)*"|(?P<word>[^\s,:{}\[\]<>"]+)(?P<key>\s*:)?',
        re.DOTALL,
    )
    _words: ClassVar[Mapping[str, str]] = {"True": "true", "False": "false", "None": "null"}

    @property
    def markers(self) -> tuple[str, ...]:
        return (self.opening, self.closing, self.quote)

    def _calls(self, body: str) -> tuple[Call, ...]:
        head = self._head.match(body)
        if head is None:
            raise CallError(f"no call:NAME{{…}} follows {self.opening}")
        arguments = _json(self._token.sub(self._as_json, body[head.end() :]))
        if not isinstance(arguments, dict):
            raise CallError("the arguments are no object")
        return ((head[1], arguments),)

    def _as_json(self, token: re.Match[str]) -> str:
        if token["text"] is not None:
            return json.dumps(token["text"])
        if token["key"]:
            return json.dumps(token["word"]) + token["key"]
        return self._words.get(token["word"], token[0]) if token["word"] else token[0]


def format_of(template: str) -> CallFormat | None:
    """The form that a chat template asks for; None where it knows no calls that we can read."""
    if "<function=" in template:
        return XmlCalls()
    for calls in (GemmaCalls, BracketCalls, JsonCalls):
        if calls.opening in template:
            return calls()
    return None


def _json(text: str) -> Any:
    """JSON, line ends inside strings allowed; CallError saying what is wrong with it."""
    try:
        return json.loads(text, strict=False, parse_constant=_refuse, parse_float=_finite)
    except json.JSONDecodeError as error:
        raise CallError(f"not JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise CallError("not JSON that can be read: nested too deeply") from None
    except ValueError as error:  # an integer of thousands of digits
        raise CallError(f"not JSON that can be read: {error}") from None


def _refuse(constant: str) -> NoReturn:
    raise CallError(f"not JSON: {constant} is no number")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise CallError(f"{text[:20]} is too large a number")
    return value


def _call_of(value: Any) -> Call:
    if not isinstance(value, dict):
        raise CallError("the call is no JSON object")
    name = value.get("name")
    if not isinstance(name, str) or not name:
        raise CallError('"name" is no text')
    arguments = value.get("arguments", value.get("parameters"))
    if isinstance(arguments, str):
        arguments = _json(arguments)
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        raise CallError('"arguments" is no JSON object')
    return name, arguments
