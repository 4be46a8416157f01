"""`clover-edge run`: one prompt through one model."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from ..errors import ArgumentError
from .options import (
    add_chat_options,
    add_generation_options,
    add_model_options,
    add_runtime_options,
    generation_options,
    open_model,
    read_tools,
)
from .output import counters_line, is_unicode, show, silent


def add_parser(commands: Any) -> None:
    """Adds the command to the command line."""
    parser = commands.add_parser("run", help="generate from a prompt", description=__doc__)
    parser.add_argument("model", metavar="MODEL", help="a packed folder (clover-export makes one)")
    parser.add_argument(
        "prompt", metavar="PROMPT", nargs="?", help="the text, or - to read it from stdin"
    )
    parser.add_argument("--file", type=Path, metavar="FILE", help="read PROMPT from a file")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--chat", action="store_true", help="PROMPT is a user's message")
    form.add_argument(
        "--raw",
        action="store_true",
        help="PROMPT is continued as it is (default: --chat where the model has a chat template)",
    )
    add_chat_options(parser)
    parser.add_argument("--show", action="store_true", help="on a terminal: show blocks denoise")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    parser.add_argument("-q", "--quiet", action="store_true", help="no counters on stderr")
    add_model_options(parser)
    add_generation_options(parser)
    add_runtime_options(parser)
    parser.set_defaults(handler=_handle)


def _handle(arguments: argparse.Namespace) -> int:
    for_chat = {name: getattr(arguments, name) for name in ("system", "tools", "thinking")}
    for name, value in for_chat.items():
        if arguments.raw and value is not None:
            raise ArgumentError(f"--{name}: needs a chat template, and --raw uses none")
    asked = arguments.chat or any(value is not None for value in for_chat.values())
    text, tools = _prompt(arguments), read_tools(arguments.tools)
    with open_model(arguments, arguments.model) as model:
        options = generation_options(arguments)
        events: Any
        if not arguments.raw and (asked or model.has_chat_template):
            messages = [{"role": "user", "content": _message(arguments, text)}]
            if arguments.system is not None:
                messages.insert(0, {"role": "system", "content": arguments.system})
            thinking = arguments.thinking
            events = model.chat_stream(messages, tools=tools, thinking=thinking, **options)
        else:
            events = model.stream(text, **options)
        if arguments.json:
            result = silent(events)
            print(json.dumps(result.to_dict(), ensure_ascii=not is_unicode()))
        else:
            result = show(events, drafts=arguments.show)
    if not arguments.quiet:
        print(counters_line(result.counters), file=sys.stderr)
    return 0


def _prompt(arguments: argparse.Namespace) -> str:
    """The prompt's text, from where it is asked to come."""
    if (arguments.prompt is None) == (arguments.file is None):
        raise ArgumentError("PROMPT, --file: one of them is needed, and only one")
    if arguments.file is not None:
        try:
            return _decoded(str(arguments.file), arguments.file.read_bytes())
        except OSError as error:
            raise ArgumentError(f"file: {arguments.file}: {error.strerror or error}") from None
    if arguments.prompt == "-":
        return _decoded("stdin", sys.stdin.buffer.read())
    return str(arguments.prompt)


def _message(arguments: argparse.Namespace, text: str) -> str:
    """A prompt as a message, of which the line end that files and echo have is no part."""
    if arguments.file is None and arguments.prompt != "-":
        return text
    return text.removesuffix("\n").removesuffix("\r")


def _decoded(source: str, data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ArgumentError(
            f"{source}: is not UTF-8 at byte {error.start} (0x{data[error.start]:02x})"
        ) from None
