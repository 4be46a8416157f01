"""Grammars of forced tool calls, in the two forms that chat templates ask for, and of answers that
come behind thinking."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from .grammar import JSON_STYLE, source_of
from .request import ResponseFormat, schema_text

_NO_ARGUMENTS = {"type": "object"}
_CLOSING = "</parameter>"  # of a value in the XML form, which cannot hold it
_VALUE = rf"""
VALUE: TEXT {json.dumps(_CLOSING)}
TEXT: /(?s:.*)\n/ & ~/(?s:.*){re.escape(_CLOSING).replace("/", chr(92) + "/")}(?s:.*)/"""


def xml_calls(tools: Sequence[Mapping[str, Any]], special: Mapping[str, int]) -> ResponseFormat:
    """One call or several: `<tool_call>`, `<function=NAME>`, a `<parameter=KEY>` for each argument.

    `tools`: OpenAI's objects, of which each call takes one. A parameter of type string is the text
    between its tags, of which `enum` and `const` are enforced; all others are JSON of their schema.
    `special`: special tokens and their ids, which are no bytes for a grammar.
    """
    rules, names = [], []
    for i, tool in enumerate(tools):
        function = tool["function"]
        schema = function.get("parameters") or {}
        required = schema.get("required", ())
        sequence = [_literal(f"{function['name']}>\n", special)]
        for j, (key, value) in enumerate(schema.get("properties", {}).items()):
            sequence.append(f"p{i}_{j}" + ("" if key in required else "?"))
            opening = _literal(f"<parameter={key}>\n", special)
            rules.append(f"p{i}_{j}: {opening} {_xml_value(value, schema, special)}")
        rules.append(f"f{i}: {' '.join(sequence)}")
        names.append(f"f{i}")
    opening = _literal("<tool_call>\n<function=", special)
    closing = _literal("</function>\n</tool_call>", special)
    start = f"start: call ({_literal(chr(10), special)} call)*"
    call = f"call: {opening} ({' | '.join(names)}) {closing}"
    return ResponseFormat("lark", "\n".join([start, call, *rules]) + _VALUE)


def json_calls(
    tools: Sequence[Mapping[str, Any]],
    special: Mapping[str, int],
    tags: tuple[str, str] = ("<tool_call>", "</tool_call>"),
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
    opening, closing = (_literal(text, special) for text in (f"{tags[0]}\n", f"\n{tags[1]}"))
    start = f"start: call ({_literal(chr(10), special)} call)*"
    call = f"call: {opening} ({' | '.join(names)}) {closing}"
    return ResponseFormat("lark", "\n".join([start, call, *rules]))


def behind_thinking(
    request: ResponseFormat, closing: str, special: Mapping[str, int]
) -> ResponseFormat:
    """The request for an answer whose beginning is thinking, up to `closing` and an empty line."""
    if closing in special:
        thinking = f"/(?s:.*)/ {_literal(closing, special)}"
        rules = f"start: {thinking} {json.dumps(chr(10) * 2)} @answer"
    else:
        rules = f"start: thinking {json.dumps(chr(10) * 2)} @answer\n"
        rules += f"thinking[lazy]: THINKING\nTHINKING: /(?s:.*)/ {json.dumps(closing)}"
    answer = json.loads(source_of(request))["grammars"]
    answer[0]["name"] = "answer"
    source = {"grammars": [{"name": "thinking", "lark_grammar": rules}, *answer]}
    return ResponseFormat("llguidance", json.dumps(source))


def _xml_value(schema: Any, parent: Mapping[str, Any], special: Mapping[str, int]) -> str:
    """What stands between the tags of a parameter, with the closing one."""
    schema = schema if isinstance(schema, Mapping) else {}
    end = _literal(f"\n{_CLOSING}\n", special)
    words = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(words, list) and words and all(isinstance(word, str) for word in words):
        return f"({' | '.join(_literal(word, special) for word in words)}) {end}"
    if schema.get("type") == "string":
        return f"VALUE {json.dumps(chr(10))}"
    shared = {key: parent[key] for key in ("$defs", "definitions") if key in parent}
    return f"{_json({**schema, **shared})} {end}"


def _json(schema: Mapping[str, Any]) -> str:
    return f"%json {schema_text({**schema, 'x-guidance': JSON_STYLE}, 'tools')}"


def _literal(text: str, special: Mapping[str, int]) -> str:
    """A sequence of Lark items that spells `text`; special tokens by their numbers."""
    held = sorted((token for token in special if token), key=len, reverse=True)
    pieces = re.split(f"({'|'.join(map(re.escape, held))})", text) if held else [text]
    return (
        " ".join(
            f"<[{special[piece]}]>" if piece in special else json.dumps(piece, ensure_ascii=False)
            for piece in pieces
            if piece
        )
        or '""'
    )
