"""Answers taken apart, whole and as they come."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from clover_edge import TextEvent, ThinkingEvent, ToolCall, ToolCallEvent
from clover_edge.chat import AnswerParser
from clover_edge.chat.calls import CallFormat, GemmaCalls, JsonCalls, XmlCalls
from clover_edge.chat.parser import CHANNEL, THINK

CALL = "<tool_call>\n<function=f>\n<parameter=a>\n{}\n</parameter>\n</function>\n</tool_call>"
FORMATS = (XmlCalls(), JsonCalls(), GemmaCalls(), None)


def parsed(
    pieces: Sequence[str], calls: CallFormat | None = FORMATS[0], **options: Any
) -> AnswerParser:
    """A parser that has read the pieces. Its events say exactly what it has found, in order."""
    tags = CHANNEL if isinstance(calls, GemmaCalls) else THINK
    parser = AnswerParser(calls, tags, **options)
    events: list[Any] = []
    for piece in pieces:
        events += parser.push(piece)
    events += parser.finish()
    said = {kind: [each for each in events if isinstance(each, kind)] for kind in KINDS}
    assert sum(map(len, said.values())) == len(events)
    assert "".join(event.text for event in said[TextEvent]) == parser.text
    assert "".join(event.text for event in said[ThinkingEvent]) == parser.thinking
    assert [event.call for event in said[ToolCallEvent]] == parser.tool_calls
    assert [event.index for event in said[ToolCallEvent]] == list(range(len(parser.tool_calls)))
    assert all(event.text for kind in (TextEvent, ThinkingEvent) for event in said[kind])
    return parser


KINDS = (TextEvent, ThinkingEvent, ToolCallEvent)


def test_an_answer() -> None:
    parser = parsed(["<think>\nhm\n\nso\n</think>\n\nLet me see.\n\n", CALL.format("x"), "\n"])
    assert (parser.thinking, parser.text) == ("hm\n\nso", "Let me see.")
    assert parser.tool_calls == [ToolCall("call_0", "f", '{"a": "x"}')]
    assert not parser.refused_calls


def test_plain_text_stays_as_it_is() -> None:
    for text in ("", " x ", "\n\nx\n", "a < b", "<thin>", "x <think>y</think>", "</think>"):
        assert parsed([text]).text == text
        assert parsed([text], None).text == text
    assert parsed([CALL.format("x")], None).text == CALL.format("x")


def test_thinking() -> None:
    assert parsed(["  <think> a </think> b "]).thinking == "a"
    assert parsed(["<think></think>b"]).text == "b"
    assert parsed(["a </think>\n b"], thinking=True).text == "b"
    assert parsed(["a </think>\n b"], thinking=True).thinking == "a"
    cut = parsed(["<think>\na </thi"])  # the budget ended inside
    assert (cut.thinking, cut.text) == ("a </thi", "")
    assert parsed(["<thi"]).text == "<thi"
    inside = parsed(["<think>" + CALL.format("x") + "</think>"])  # thinking about calls is none
    assert (inside.tool_calls, inside.text) == ([], "")
    channel = parsed(["<|channel>thought\na<channel|>b"], GemmaCalls())
    assert (channel.thinking, channel.text) == ("a", "b")


def test_calls_and_text_in_turn() -> None:
    parser = parsed(["a\n", CALL.format("1"), "\n", CALL.format("2"), "\nb\n", CALL.format("3")])
    assert [call.arguments for call in parser.tool_calls] == ['{"a": 1}', '{"a": 2}', '{"a": 3}']
    assert [call.id for call in parser.tool_calls] == ["call_0", "call_1", "call_2"]
    assert parser.text.split() == ["a", "b"]
    assert parser.text.startswith("a\n") and parser.text.endswith("b")


def test_values_are_typed_by_the_tool() -> None:
    tools = {"f": {"properties": {"a": {"type": "string"}}}}
    assert parsed([CALL.format("1")], tools=tools).tool_calls[0].arguments == '{"a": "1"}'


def test_arguments_are_text_that_can_be_sent() -> None:
    body = '<tool_call>{"name": "f", "arguments": {"a": "é", "b": "\\ud800"}}</tool_call>'
    arguments = parsed([body], JsonCalls()).tool_calls[0].arguments
    assert arguments.encode() and json.loads(arguments) == {"a": "é", "b": "\ud800"}
    assert '"é"' in parsed([body.replace("\\ud800", "")], JsonCalls()).tool_calls[0].arguments


GOOD = '<tool_call>{"name": "f"}</tool_call>'


@pytest.mark.parametrize(
    ("answer", "refused", "reason", "called"),
    [
        ("x <tool_call>f(1)</tool_call> y", "<tool_call>f(1)</tool_call>", "not JSON", 0),
        ('<tool_call>{"name": "f"', '<tool_call>{"name": "f"', "no </tool_call> ends", 0),
        ("<tool_call>", "<tool_call>", "no </tool_call> ends", 0),
        # what follows a call that is none is read all the same
        ("<tool_call>f(1)</tool_call>" + GOOD, "<tool_call>f(1)</tool_call>", "not JSON", 1),
        ('<tool_call>{"name": "f"\n' + GOOD, '<tool_call>{"name": "f"', "not JSON", 1),
        ('<tool_call>{"name": "f}</tool_call>' + GOOD, '{"name": "f}</tool_call>', "", 1),
    ],
)
def test_a_call_that_is_none(answer: str, refused: str, reason: str, called: int) -> None:
    """It is text, with the reason beside it."""
    parser = parsed([answer], JsonCalls())
    assert [refused in each.text for each in parser.refused_calls] == [True]
    assert reason in parser.refused_calls[0].reason
    assert len(parser.tool_calls) == called
    assert parser.text.strip() == answer.replace(GOOD, "").strip()


def test_an_unclosed_value_takes_no_later_call_with_it() -> None:
    broken = "<tool_call>\n<function=f>\n<parameter=a>\nx\n</tool_call>"
    parser = parsed([broken, "\n", CALL.format("y")])
    assert [call.arguments for call in parser.tool_calls] == ['{"a": "y"}']
    assert [call.text for call in parser.refused_calls] == [broken]
    assert "no </parameter> ends 'a'" in parser.refused_calls[0].reason
    parser = parsed([broken, " and text"])
    assert (parser.text, len(parser.refused_calls)) == (broken + " and text", 1)


@pytest.mark.parametrize("pieces", [["a ", "<to", "ol_", "x"], ["a", " <", "b"]])
def test_nothing_that_may_become_a_tag_is_said(pieces: list[str]) -> None:
    parser = AnswerParser(XmlCalls())
    assert parser.push(pieces[0]) == [TextEvent("a")]
    for piece in pieces[1:-1]:
        assert parser.push(piece) == []
    assert parser.push(pieces[-1]) == [TextEvent("".join(pieces)[1:])]


PARTS = st.sampled_from(
    [
        *("<think>", "</think>", "<tool_call>", "</tool_call>", "<function=f>", "</function>"),
        *("<parameter=a>", "</parameter>", "<parameter=b>", '{"name": "f", "arguments": ', "{}}"),
        *('{"a": "', '"', "\\", "}", "\n", " ", "<", "word", "1", "é🙂"),
        *("<|channel>thought", "<channel|>", "<|tool_call>", "<tool_call|>", '<|"|>', "call:f{"),
        *(CALL.format("</tool_call>"), CALL.format("x"), GOOD, "call:f{a:1}<tool_call|>"),
    ]
)


@given(
    st.lists(PARTS | st.text(max_size=3), max_size=12).map("".join),
    st.lists(st.integers(0, 300), max_size=12),
    st.sampled_from(FORMATS),
    st.booleans(),
)
@settings(deadline=None)
@example(GOOD + GOOD, [1, 2, 3, 25, 26, 27, 40], FORMATS[1], False)
@example('<tool_call>{"name": "f}</tool_call>' + GOOD, [36, 40, 50], FORMATS[1], False)
def test_any_cut_gives_the_same(
    text: str, cuts: list[int], calls: CallFormat | None, thinking: bool
) -> None:
    """Whatever the pieces: no exception, and what the whole text gives."""
    bounds = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[a:b] for a, b in pairwise(bounds)]
    want, found = (parsed(each, calls, thinking=thinking) for each in ([text], pieces))
    letters = parsed(list(text), calls, thinking=thinking)
    for parser in (found, letters):
        assert parser.text == want.text
        assert parser.thinking == want.thinking
        assert parser.tool_calls == want.tool_calls
        assert parser.refused_calls == want.refused_calls
    lost = "".join((want.text + want.thinking).split())
    if not want.tool_calls and THINK.closing not in text and CHANNEL.closing not in text:
        tag = CHANNEL.opening if isinstance(calls, GemmaCalls) else THINK.opening
        assert "".join(text.split()).removeprefix(tag) == lost or thinking
