"""Tool calls in every form: what templates write is read back, and what is none is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from chat_templates import GEMMA, JSON, XML
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from clover_edge.chat import ChatTemplate
from clover_edge.chat.calls import BracketCalls, CallError, GemmaCalls, JsonCalls, XmlCalls

USER = {"role": "user", "content": "hi"}
NAMES = st.text("abcXYZ_09-", min_size=1, max_size=8)
TRICKY = st.sampled_from(
    [
        "</parameter>",
        "\n</parameter>\n",
        "<parameter=x>",
        "</function>",
        "</tool_call>",
        "<tool_call>\n<function=f>",
        "\n</parameter>\n</function>",
        "<think>",
        "\n\n",
        '"',
        "\\",
        "{}",
        "é界🙂",
    ]
)
TEXTS = st.lists(TRICKY | st.text(max_size=5), max_size=6).map("".join)
VALUES = st.recursive(
    TEXTS
    | st.integers(-(10**9), 10**9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(NAMES, VALUES, max_size=3)
TEMPLATES = {source: ChatTemplate(source, "", {}) for source in (XML, JSON, GEMMA)}


def rendered(source: str, name: str, arguments: dict[str, Any]) -> str:
    """The call as the template writes it."""
    call = {"name": name, "arguments": arguments}
    prompt = TEMPLATES[source].render(
        [USER, {"role": "assistant", "tool_calls": [call]}], add_generation_prompt=False
    )
    opening = "<|tool_call>" if source == GEMMA else "<tool_call>"
    return prompt[prompt.index(opening) :]


def schema_of(arguments: dict[str, Any]) -> dict[str, Any]:
    types = {str: "string", bool: "boolean", int: "integer", float: "number"}
    types |= {list: "array", dict: "object"}
    properties = {key: {"type": types[type(value)]} for key, value in arguments.items()}
    return {"type": "object", "properties": properties}


def ambiguous(value: Any) -> bool:
    """Whether the XML form cannot tell where the value ends."""
    text = "" if not isinstance(value, str) else "".join(value.split())
    ends = ("</parameter><parameter=", "</parameter></function></tool_call>")
    return any(end in text for end in (*ends, "</tool_call><tool_call><function="))


@settings(deadline=None)
@given(NAMES, ARGUMENTS)
def test_xml(name: str, arguments: dict[str, Any]) -> None:
    assume(not any(map(ambiguous, arguments.values())))
    text = rendered(XML, name, arguments)
    found = XmlCalls().read(text, {name: schema_of(arguments)})
    assert found is not None
    assert found.calls == ((name, arguments),)
    assert text[found.end :] == "<|im_end|>\n"


@settings(deadline=None)
@given(NAMES, ARGUMENTS)
def test_json(name: str, arguments: dict[str, Any]) -> None:
    text = rendered(JSON, name, arguments)
    found = JsonCalls().read(text, {})
    assert found is not None
    assert found.calls == ((name, arguments),)
    assert text[found.end :] == "<|im_end|>\n"


@settings(deadline=None)
@given(NAMES, ARGUMENTS)
def test_gemma(name: str, arguments: dict[str, Any]) -> None:
    text = rendered(GEMMA, name, arguments)
    found = GemmaCalls().read(text, {})
    assert found is not None
    assert found.calls == ((name, arguments),)
    assert text[found.end :] == "<turn|>\n"


def test_loosely_written() -> None:
    """What models write that no template shows, and that can only be meant in one way."""
    found = XmlCalls().read(
        "<tool_call><function=f><parameter=a>1</parameter> <parameter=b>\nx\ny\n</parameter>"
        "</function></tool_call>",
        {},
    )
    assert found and found.calls == (("f", {"a": 1, "b": "x\ny"}),)
    for body, calls in (
        ('{"name": "f"}', (("f", {}),)),
        ('{"name": "f", "parameters": {"a": 1}}', (("f", {"a": 1}),)),
        (r'{"name": "f", "arguments": "{\"a\": 1}"}', (("f", {"a": 1}),)),
        ('{"name": "f", "arguments": {"a": "x\ny"}}', (("f", {"a": "x\ny"}),)),
    ):
        found = JsonCalls().read(f"<tool_call>{body}</tool_call>", {})
        assert found and found.calls == calls
    listed = '<TOOLCALL>[{"name": "f"}, {"name": "g"}]</TOOLCALL> more'
    found = BracketCalls().read(listed, {})
    assert found and found.calls == (("f", {}), ("g", {})) and listed[found.end :] == " more"
    found = GemmaCalls().read('<|tool_call>call:f{a:None,"b c":[True]}<tool_call|>', {})
    assert found and found.calls == (("f", {"a": None, "b c": [True]}),)


def test_a_closing_tag_inside_a_value() -> None:
    """It may close the call only where no value is open."""
    text = '<tool_call>{"name": "f", "arguments": {"a": "</tool_call>'
    assert JsonCalls().read(text, {}) is None
    text = "<tool_call><function=f><parameter=a></tool_call></function>"
    assert XmlCalls().read(text, {}) is None
    assert GemmaCalls().read('<|tool_call>call:f{a:<|"|><tool_call|>', {}) is None


@pytest.mark.parametrize(
    ("kind", "body", "reason"),
    [
        (XmlCalls, "f(1)", "no <function=NAME>"),
        (XmlCalls, "<function=f", "no <function=NAME>"),
        (XmlCalls, "<function= ></function>", "no name"),
        (XmlCalls, "<function=f>", "neither <parameter=KEY> nor </function>"),
        (
            XmlCalls,
            "<function=f><parameter=a>1</parameter><parameter=a>2</parameter></function>",
            "'a' is there twice",
        ),
        (JsonCalls, "f(1)", "not JSON: Expecting value at character 0"),
        (JsonCalls, '{"name": "f"', "not JSON: "),
        (JsonCalls, '"f"', "no JSON object"),
        (JsonCalls, "[]", "empty"),
        (JsonCalls, "{}", '"name" is no text'),
        (JsonCalls, '{"name": 1}', '"name" is no text'),
        (JsonCalls, '{"name": "f", "arguments": [1]}', '"arguments" is no JSON object'),
        (JsonCalls, '{"name": "f", "arguments": "x"}', "not JSON: "),
        (JsonCalls, '{"name": "f", "arguments": {"x": NaN}}', "NaN is no number"),
        (JsonCalls, '{"name": "f", "arguments": {"x": -1e999}}', "too large a number"),
        (JsonCalls, '{"name": "f", "arguments": ' + "[" * 10**5, "nested too deeply"),
        (JsonCalls, "9" * 5000, "not JSON that can be read"),
        (GemmaCalls, "f(1)", "no call:NAME{…}"),
        (GemmaCalls, "call:f{a}", "not JSON: "),
        (GemmaCalls, "call:f{a:b}", "not JSON: "),
    ],
)
def test_refused(kind: Any, body: str, reason: str) -> None:
    calls = kind()
    with pytest.raises(CallError, match=reason.replace("{", r"\{")):
        calls.read(f"{calls.opening}{body}{calls.closing}", {})


@settings(deadline=None)
@given(
    st.lists(
        TRICKY
        | st.sampled_from(["<|tool_call>", "<tool_call|>", '<|"|>', "call:f{", "}", ":", ","])
        | st.sampled_from(["<function=f>", "<parameter=a>", "<TOOLCALL>", '{"name": "f"', "\n"])
        | st.text(max_size=3),
        max_size=12,
    ).map("".join)
)
def test_garbage_is_refused_or_a_call(body: str) -> None:
    """Never another exception; and arguments are always JSON."""
    for calls in (XmlCalls(), JsonCalls(), BracketCalls(), GemmaCalls()):
        try:
            found = calls.read(calls.opening + body + calls.closing, {})
        except CallError as error:
            assert str(error)
        else:
            for _, arguments in found.calls if found else ():
                json.dumps(arguments, allow_nan=False)
