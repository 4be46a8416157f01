"""Messages and tools in OpenAI's forms."""

from __future__ import annotations

from typing import Any

import pytest

from clover_edge import ArgumentError
from clover_edge.chat import checked_messages, checked_tools

USER = {"role": "user", "content": "hi"}
CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
CALLING = {"role": "assistant", "content": None, "tool_calls": [CALL]}


def test_what_a_template_gets() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    answer = {"role": "tool", "tool_call_id": "a", "content": parts}
    assert checked_messages([USER, CALLING, answer]) == [
        USER,
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "ab", "name": "f"},
    ]


def test_what_clients_send_back() -> None:
    """The fields that the openai client fills with None, and no arguments as no text."""
    dumped = {"role": "assistant", "content": "x", "refusal": None, "tool_calls": None}
    assert checked_messages([dumped]) == [{"role": "assistant", "content": "x"}]
    empty = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": ""}}]}
    assert checked_messages([empty])[0]["tool_calls"][0]["function"]["arguments"] == {}
    bare = {"role": "assistant", "tool_calls": [{"name": "f", "arguments": {"x": [1]}}]}
    assert checked_messages([bare])[0]["tool_calls"] == [
        {"type": "function", "function": {"name": "f", "arguments": {"x": [1]}}}
    ]


def test_developers_are_systems_where_the_template_knows_none() -> None:
    message = {"role": "developer", "content": "x"}
    assert checked_messages([message])[0]["role"] == "system"
    assert checked_messages([message], developer=True)[0]["role"] == "developer"


def calling(call: Any) -> list[Any]:
    return [{"role": "assistant", "tool_calls": [call]}]


@pytest.mark.parametrize(
    ("messages", "place"),
    [
        ([], "messages: the list is empty"),
        ("hi", "messages: str is no list"),
        ({"role": "user"}, "messages: dict is no list"),
        (["hi"], r"messages\[0\]: is str"),
        ([{"content": "hi"}], r"messages\[0\].role: None"),
        ([USER, {"role": ""}], r"messages\[1\].role: ''"),
        ([{"role": "user"}], r"messages\[0\].content: is missing"),
        ([{"role": "user", "content": 3}], r"messages\[0\].content: int"),
        ([{"role": "user", "content": "a\ud800"}], r"messages\[0\].content: .* at character 1 "),
        ([{"role": "user", "content": ["a"]}], r"messages\[0\].content\[0\]: is str"),
        (
            [{"role": "user", "content": [{"type": "image_url"}]}],
            r"messages\[0\].content\[0\].type: 'image_url'",
        ),
        (
            [{"role": "user", "content": [{"type": "text", "text": 1}]}],
            r"messages\[0\].content\[0\].text: 1",
        ),
        ([{**USER, "tool_calls": [CALL]}], r"messages\[0\].tool_calls: .* 'user'"),
        ([{"role": "assistant", "tool_calls": "f()"}], r"messages\[0\].tool_calls: str"),
        (calling("f()"), r"messages\[0\].tool_calls\[0\]: is str"),
        (calling({"function": "f"}), r"tool_calls\[0\].function: is str"),
        (calling({"function": {}}), r"tool_calls\[0\].function.name: None"),
        (calling({"name": "\ud800"}), r"tool_calls\[0\].name: is not valid Unicode"),
        (calling({"id": 1, "name": "f"}), r"tool_calls\[0\].id: 1"),
        (calling({"name": "f", "arguments": "{"}), r"tool_calls\[0\].arguments: is no JSON: "),
        (calling({"name": "f", "arguments": "[]"}), r"tool_calls\[0\].arguments: is no JSON obj"),
        (calling({"name": "f", "arguments": "[" * 10**5}), r"arguments: is no JSON: "),
        (calling({"name": "f", "arguments": {"x": {1}}}), r"arguments: is no JSON: .*set"),
        ([{"role": "tool", "content": "x", "tool_call_id": "a"}], r"messages\[0\].tool_call_id: "),
    ],
)
def test_messages_that_are_none(messages: Any, place: str) -> None:
    with pytest.raises(ArgumentError, match=place):
        checked_messages(messages)


def test_tools() -> None:
    function = {"name": "f", "parameters": {"type": "object"}}
    wrapped = {"type": "function", "function": function}
    assert checked_tools([function]) == checked_tools([wrapped]) == [wrapped]
    assert checked_tools([{"name": "f", "strict": None}]) == [
        {"type": "function", "function": {"name": "f"}}
    ]


@pytest.mark.parametrize(
    ("tools", "place"),
    [
        ({"name": "f"}, "tools: dict is no list"),
        (["f"], r"tools\[0\]: is str"),
        ([{"type": "web_search"}], r"tools\[0\].type: 'web_search'"),
        ([{"type": "function"}], r"tools\[0\].function.name: None"),
        ([{"type": "function", "function": "f"}], r"tools\[0\].function: is str"),
        ([{"name": "a b"}], r"tools\[0\].name: 'a b'"),
        ([{"name": "f"}, {"name": "f"}], r"tools\[1\].name: 'f' is there twice"),
        ([{"name": "f", "parameters": []}], r"tools\[0\].parameters: list"),
        ([{"name": "f", "parameters": {"x": {1}}}], r"tools\[0\]: is no JSON: .*set"),
        ([{"name": "f", "description": "\udc00"}], r"tools\[0\]: is not valid Unicode"),
    ],
)
def test_tools_that_are_none(tools: Any, place: str) -> None:
    with pytest.raises(ArgumentError, match=place):
        checked_tools(tools)
