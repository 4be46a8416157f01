"""Grammars of forced tool calls, in the two forms that chat templates ask for, and of answers that
come behind thinking."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from .grammar import JSON_STYLE, source_of
from .request import ResponseFormat, schema_text

_NO_ARGUMENTS = {"type": "object"}
# The text of a parameter goes up to the first closing tag, in front of which a line ends.
_VALUE = r"""
VALUE: TEXT "</parameter>\n"
TEXT: /(?s:.*)\n/ & ~/(?s:.*)<\/parameter>(?s:.*)/"""


def xml_calls(tools: Sequence[Mapping[str, Any]]) -> ResponseFormat:
    """One call or several: `<tool_call>`, `<function=NAME>`, a `<parameter=KEY>` for each argument.

    `tools`: OpenAI's objects, of which each call takes one. A parameter of type string is the text
    between its tags, of which `enum` and `const` are enforced; all others are JSON of their schema.
    """
    rules, names = [], []
    for i, tool in enumerate(tools):
        function = tool["function"]
        schema = function.get("parameters") or {}
        sequence = [_literal(f"{function['name']}>\n")]
        for j, (key, value) in enumerate(schema.get("properties", {}).items()):
            optional = "" if key in schema.get("required", ()) else "?"
            sequence.append(f"p{i}_{j}{optional}")
            opening = _literal(f"<parameter={key}>\n")
            rules.append(f"p{i}_{j}: {opening} {_xml_value(value, schema)}")
        rules.append(f"f{i}: {' '.join(sequence)}")
        names.append(f"f{i}")
    tags = ("<tool_call>\n<function=", "</function>\n</tool_call>")
    return _calls(names, rules, tags, _VALUE)


def json_calls(
    tools: Sequence[Mapping[str, Any]], tags: tuple[str, str] = ("<tool_call>", "</tool_call>")
) -> ResponseFormat:
    """One call or several: `{"name": …, "arguments": {…}}` between tags, a line each (Hermes).

    Arguments that the schema does not name are left out, unless it asks for additional ones.
    """
    rules, names = [], []
    for i, tool in enumerate(tools):
        function = tool["function"]
        arguments = {"additionalProperties": False, **(function.get("parameters") or _NO_ARGUMENTS)}
        schema = {
            "type": "object",
            "properties": {"name": {"const": function["name"]}, "arguments": arguments},
            "required": ["name", "arguments"],
            "additionalProperties": False,
            **{key: arguments.pop(key) for key in ("$defs", "definitions") if key in arguments},
        }
        rules.append(f"f{i}: {_json(schema)}")
        names.append(f"f{i}")
    return _calls(names, rules, (f"{tags[0]}\n", f"\n{tags[1]}"))


def behind_thinking(request: ResponseFormat, closing: str) -> ResponseFormat:
    """The request for an answer that begins inside of thinking, which `closing` ends, and an empty
    line. Raises ArgumentError and ValueError as compiling it would."""
    rules = f"start: thinking {_literal(chr(10) * 2)} @answer\n"
    rules += f"thinking[lazy]: THINKING\nTHINKING: /(?s:.*)/ {_literal(closing)}"
    answer = json.loads(source_of(request))["grammars"]
    answer[0]["name"] = "answer"
    source = {"grammars": [{"name": "thinking", "lark_grammar": rules}, *answer]}
    return ResponseFormat("llguidance", json.dumps(source))


def _calls(
    names: list[str], rules: list[str], tags: tuple[str, str], terminals: str = ""
) -> ResponseFormat:
    start = f"start: call ({_literal(chr(10))} call)*"
    call = f"call: {_literal(tags[0])} ({' | '.join(names)}) {_literal(tags[1])}"
    return ResponseFormat("lark", "\n".join([start, call, *rules]) + terminals)


def _xml_value(schema: Any, parent: Mapping[str, Any]) -> str:
    """What stands between the tags of a parameter, with the closing one."""
    schema = schema if isinstance(schema, Mapping) else {}
    end = _literal("\n</parameter>\n")
    words = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(words, list) and words and all(isinstance(word, str) for word in words):
        return f"({' | '.join(map(_literal, words))}) {end}"
    if schema.get("type") == "string":
        return "VALUE"
    shared = {key: parent[key] for key in ("$defs", "definitions") if key in parent}
    return f"{_json({**schema, **shared})} {end}"


def _json(schema: Mapping[str, Any]) -> str:
    return f"%json {schema_text({**schema, 'x-guidance': JSON_STYLE}, 'tools')}"


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
