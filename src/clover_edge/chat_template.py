"""Chat templates: messages to a prompt, in a sandbox, with Hugging Face's conventions."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import TemplateError, TemplateSyntaxError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from .errors import ArgumentError, ModelFormatError
from .export.files import read_json
from .text import check_unicode


class ChatTemplate:
    """A model folder's `chat_template.jinja`, compiled once."""

    def __init__(self, source: str, path: str, special_tokens: Mapping[str, str]) -> None:
        """Raises ModelFormatError with the line when the template does not compile."""
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = _strftime_now
        try:
            self._template = environment.from_string(source)
        except TemplateSyntaxError as error:
            raise ModelFormatError(
                path, "chat_template", f"line {error.lineno}: {error.message}"
            ) from error
        self._special_tokens = dict(special_tokens)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> str:
        """The prompt's text; ArgumentError when the messages do not fit the template."""
        check_messages(messages)
        try:
            return self._template.render(
                messages=[dict(message) for message in messages],
                tools=list(tools) if tools is not None else None,
                add_generation_prompt=add_generation_prompt,
                **self._special_tokens,
                **variables,
            )
        except TemplateError as error:
            raise ArgumentError(f"messages: the chat template refused them: {error}") from error
        except Exception as error:  # whatever the template's own code ran into
            raise ArgumentError(f"messages: the chat template failed on them: {error}") from error


def read_template(folder: Path, special_tokens: Mapping[str, str]) -> ChatTemplate | None:
    """The folder's template, from its own file or tokenizer_config.json; None without one."""
    path = folder / "chat_template.jinja"
    if path.is_file():
        try:
            return ChatTemplate(path.read_text(encoding="utf-8"), str(path), special_tokens)
        except UnicodeDecodeError as error:
            raise ModelFormatError(str(path), "chat_template", f"not UTF-8: {error}") from error
    path = folder / "tokenizer_config.json"
    source = read_json(path, ModelFormatError).get("chat_template") if path.is_file() else None
    return ChatTemplate(source, str(path), special_tokens) if isinstance(source, str) else None


def check_messages(messages: Sequence[Mapping[str, Any]]) -> None:
    """ArgumentError naming the message and field that is not a chat message."""
    if not messages:
        raise ArgumentError("messages: the list is empty")
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        if not isinstance(message, Mapping):
            raise ArgumentError(f"{where}: is {type(message).__name__}, not a mapping")
        role = message.get("role")
        if not isinstance(role, str) or not role:
            raise ArgumentError(f"{where}.role: {role!r} is not a role name")
        content = message.get("content")
        if isinstance(content, str):
            check_unicode(f"{where}.content", content)
        elif content is None and "tool_calls" not in message:
            raise ArgumentError(f"{where}.content: is missing")
        elif content is not None and not isinstance(content, list):
            raise ArgumentError(
                f"{where}.content: {type(content).__name__} is neither text nor a list of parts"
            )


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # jinja2's own filter escapes <, > and &, which models were not trained on.
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.datetime.now().strftime(form)
