"""Chat templates: messages to a prompt, in a sandbox, with Hugging Face's conventions."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import TemplateError, TemplateSyntaxError, meta
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ..errors import ArgumentError, ModelFormatError
from ..export.files import read_json
from .calls import CallFormat, format_of
from .messages import checked_messages, checked_tools
from .parser import ThinkingTags, thinking_of


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
            names = meta.find_undeclared_variables(environment.parse(source))
        except TemplateSyntaxError as error:
            raise ModelFormatError(
                path, "chat_template", f"line {error.lineno}: {error.message}"
            ) from error
        self._special_tokens = dict(special_tokens)
        self._takes_tools = "tools" in names
        self._developer = "developer" in source
        self._path = path
        self.calls: CallFormat | None = format_of(source)  # how the model writes calls
        self.thinking: ThinkingTags = thinking_of(source)

    @property
    def markers(self) -> tuple[str, ...]:
        """Texts around thinking and calls. A tokenizer may hold them as special tokens, which
        decoding must not drop."""
        return (*self.thinking.tokens, *(self.calls.markers if self.calls else ()))

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> str:
        """The prompt's text; ArgumentError when messages or tools do not fit the template.

        They may have OpenAI's forms: see `checked_messages` and `checked_tools`.
        """
        ready = checked_messages(messages, developer=self._developer)
        functions = checked_tools(tools) if tools else None
        if functions and not self._takes_tools:
            raise ArgumentError(f"tools: {self._path} has no place for them")
        try:
            return self._template.render(
                messages=ready,
                tools=functions,
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
