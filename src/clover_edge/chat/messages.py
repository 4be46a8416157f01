"""Chat messages and tool definitions: OpenAI's forms, checked, as chat templates take them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import ArgumentError
from ..text import check_unicode

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def checked_messages(
    messages: Sequence[Mapping[str, Any]], *, developer: bool = False
) -> list[dict[str, Any]]:
    """The messages for a template: contents as one text, arguments of calls as mappings.

    `developer`: the template knows that role, which is otherwise called system. What a message
    holds beside role, content and calls is left as it is, but for None, which is left out.
    Raises ArgumentError naming the message and field that is wrong.
    """
    if isinstance(messages, (str, bytes)) or not isinstance(messages, Sequence):
        raise ArgumentError(f"messages: {type(messages).__name__} is no list of messages")
    checked: list[dict[str, Any]] = []
    called: dict[str, str] = {}  # ids of the calls so far, and the names of their tools
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        if not isinstance(message, Mapping):
            raise ArgumentError(f"{where}: is {type(message).__name__}, not a mapping")
        ready = {name: value for name, value in message.items() if value is not None}
        role = message.get("role")
        if not isinstance(role, str) or not role:
            raise ArgumentError(f"{where}.role: {role!r} is not a role name")
        if role == "developer" and not developer:
            ready["role"] = "system"
        if ready.get("tool_calls"):
            if role != "assistant":
                raise ArgumentError(f"{where}.tool_calls: a message of role {role!r} makes no call")
            ready["tool_calls"] = _calls(f"{where}.tool_calls", ready["tool_calls"], called)
        else:
            ready.pop("tool_calls", None)
        ready["content"] = _content(f"{where}.content", ready)
        if role == "tool" and "tool_call_id" in ready:
            name = _answered(f"{where}.tool_call_id", ready["tool_call_id"], called)
            ready.setdefault("name", name)
        checked.append(ready)
    if not checked:
        raise ArgumentError("messages: the list is empty")
    return checked


def checked_tools(tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Tool definitions as OpenAI has them; bare functions are wrapped.

    Raises ArgumentError naming the tool and field that is wrong.
    """
    if isinstance(tools, (str, bytes)) or not isinstance(tools, Sequence):
        raise ArgumentError(f"tools: {type(tools).__name__} is no list of tools")
    checked: list[dict[str, Any]] = []
    for index, tool in enumerate(tools):
        where = f"tools[{index}]"
        if not isinstance(tool, Mapping):
            raise ArgumentError(f"{where}: is {type(tool).__name__}, not a mapping")
        if "function" in tool or "type" in tool:
            if tool.get("type", "function") != "function":
                raise ArgumentError(f'{where}.type: {tool["type"]!r} is not "function"')
            where, tool = f"{where}.function", tool.get("function", {})
            if not isinstance(tool, Mapping):
                raise ArgumentError(f"{where}: is {type(tool).__name__}, not a mapping")
        function = {name: value for name, value in tool.items() if value is not None}
        _check_function(where, function)
        if any(function["name"] == each["function"]["name"] for each in checked):
            raise ArgumentError(f"{where}.name: {function['name']!r} is there twice")
        checked.append({"type": "function", "function": function})
    return checked


def _check_function(where: str, function: Mapping[str, Any]) -> None:
    name = function.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ArgumentError(
            f"{where}.name: {name!r} is not a name of 1 to 64 letters, digits, _, - and ."
        )
    parameters = function.get("parameters", {})
    if not isinstance(parameters, Mapping):
        raise ArgumentError(
            f"{where}.parameters: {type(parameters).__name__} is no JSON schema of an object"
        )
    try:
        text = json.dumps(function, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ArgumentError(f"{where}: is no JSON: {error}") from None
    check_unicode(where, text)


def _content(where: str, message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if content is None:
        if "tool_calls" not in message:
            raise ArgumentError(f"{where}: is missing")
        return ""
    if isinstance(content, str):
        check_unicode(where, content)
        return content
    if not isinstance(content, (list, tuple)):
        raise ArgumentError(
            f"{where}: {type(content).__name__} is neither text nor a list of parts"
        )
    return "".join(_part(f"{where}[{index}]", part) for index, part in enumerate(content))


def _part(where: str, part: Any) -> str:
    if not isinstance(part, Mapping):
        raise ArgumentError(f"{where}: is {type(part).__name__}, not a mapping")
    kind, text = part.get("type", "text"), part.get("text")
    if kind != "text":
        raise ArgumentError(f'{where}.type: {kind!r} is not "text", all that is read here')
    if not isinstance(text, str):
        raise ArgumentError(f"{where}.text: {text!r} is no text")
    check_unicode(f"{where}.text", text)
    return text


def _calls(where: str, calls: Any, called: dict[str, str]) -> list[dict[str, Any]]:
    if not isinstance(calls, (list, tuple)):
        raise ArgumentError(f"{where}: {type(calls).__name__} is no list of calls")
    return [_call(f"{where}[{index}]", call, called) for index, call in enumerate(calls)]


def _call(where: str, call: Any, called: dict[str, str]) -> dict[str, Any]:
    if not isinstance(call, Mapping):
        raise ArgumentError(f"{where}: is {type(call).__name__}, not a mapping")
    inner = f"{where}.function" if "function" in call else where
    function = call.get("function", call)
    if not isinstance(function, Mapping):
        raise ArgumentError(f"{inner}: is {type(function).__name__}, not a mapping")
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise ArgumentError(f"{inner}.name: {name!r} is not the name of a function")
    check_unicode(f"{inner}.name", name)
    ready = {
        "type": "function",
        "function": {
            "name": name,
            "arguments": _arguments(f"{inner}.arguments", function.get("arguments")),
        },
    }
    if call.get("id") is not None:
        if not isinstance(call["id"], str):
            raise ArgumentError(f"{where}.id: {call['id']!r} is no text")
        called[call["id"]] = name
        ready["id"] = call["id"]
    return ready


def _arguments(where: str, arguments: Any) -> dict[str, Any]:
    if arguments is None or arguments == "":  # how clients write that there are none
        return {}
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError) as error:
            raise ArgumentError(f"{where}: is no JSON: {error}") from None
    if not isinstance(arguments, Mapping):
        raise ArgumentError(f"{where}: is no JSON object")
    try:
        check_unicode(where, json.dumps(arguments, ensure_ascii=False))
    except (TypeError, RecursionError) as error:
        raise ArgumentError(f"{where}: is no JSON: {error}") from None
    return dict(arguments)


def _answered(where: str, call_id: Any, called: Mapping[str, str]) -> str:
    if not isinstance(call_id, str) or call_id not in called:
        raise ArgumentError(f"{where}: {call_id!r} is the id of no earlier call")
    return called[call_id]
