"""`clover-edge chat`: a conversation in the terminal.

A line is a message; end it in \\ to go on in the next line, or put several between \"\"\".
Ctrl-C cancels an answer and keeps the conversation, Ctrl-D leaves. /help lists the commands.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ..chat import ChatDoneEvent, ChatResult
from ..errors import ArgumentError, CloverError
from ..results import TextEvent
from .conversation import Conversation, Message
from .lines import Lines
from .options import (
    add_chat_options,
    add_generation_options,
    add_model_options,
    add_runtime_options,
    generation_options,
    open_model,
    read_tools,
)
from .output import Output, counters_line, counters_table


def add_parser(commands: Any) -> None:
    """Adds the command to the command line."""
    parser = commands.add_parser(
        "chat",
        help="a conversation in the terminal",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "model",
        metavar="MODEL",
        nargs="?",
        help="a packed folder (default: CLOVER_MODEL, else the demo)",
    )
    add_chat_options(parser)
    parser.add_argument(
        "--show",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="on a terminal, show the blocks denoise",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="no counters on stderr")
    add_model_options(parser)
    add_generation_options(parser)
    add_runtime_options(parser)
    parser.set_defaults(handler=_handle)


def _handle(arguments: argparse.Namespace) -> int:
    from ..default_model import located

    tools = read_tools(arguments.tools)
    with ExitStack() as stack:
        path, bundled = stack.enter_context(located(arguments.model))
        if bundled:
            _note("no model named: the bundled demo model, which turns requests into tool calls")
        model = stack.enter_context(open_model(arguments, path))
        if not model.has_chat_template:
            raise ArgumentError(f"{model.path}: has no chat template (clover-edge run needs none)")
        options = generation_options(arguments)
        conversation = Conversation(model, arguments.system, tools, arguments.thinking, options)
        Chat(conversation, drafts=arguments.show, counters=not arguments.quiet).run()
    return 0


class Chat:
    """Reads messages and commands, and shows answers."""

    def __init__(self, conversation: Conversation, *, drafts: bool, counters: bool) -> None:
        self._conversation = conversation
        self._drafts = drafts
        self._counters = counters
        self._commands: dict[str, tuple[Callable[[str], None], str]] = {
            "/save": (self._save, "FILE: write the conversation to a file"),
            "/load": (self._load, "FILE: go on with that of a file"),
            "/reset": (self._reset, "forget the messages"),
            "/tools": (self._tools, "[FILE]: list the tools, or take those of a file"),
            "/stats": (self._stats, "what the answers cost"),
            "/help": (self._help, "this list"),
            "/quit": (self._quit, "leave (or Ctrl-D)"),
        }
        self._lines = Lines(tuple(self._commands))
        if hasattr(sys.stdin, "reconfigure"):  # what is not UTF-8 is refused with its message
            sys.stdin.reconfigure(errors="surrogateescape")

    def run(self) -> None:
        """Until the input ends or /quit."""
        if self._lines.interactive:
            _note("/help lists the commands, Ctrl-D leaves")
        with self._lines.history():
            while True:
                try:
                    text = self._lines.text("> ")
                    if not text.strip():
                        continue
                    if _is_command(text):
                        self._command(text)
                    else:
                        self._ask([{"role": "user", "content": _said(text)}])
                except KeyboardInterrupt:
                    _note("")  # the line so far is given up
                except EOFError:
                    if self._lines.interactive:
                        _note("")
                    return

    def _ask(self, asked: list[Message]) -> None:
        """One answer, and as long as it calls tools, their results and the next one."""
        while asked:
            result = self._answer(asked)
            asked = [] if result is None else self._results(result)

    def _answer(self, asked: list[Message]) -> ChatResult | None:
        """Shows an answer; None where there is none to go on from."""
        result, said, output = None, "", Output()
        try:
            for event in self._conversation.ask(asked):
                if isinstance(event, ChatDoneEvent):
                    result = event.result
                else:
                    said += event.text if isinstance(event, TextEvent) else ""
                    output.take(event, drafts=self._drafts)
        except KeyboardInterrupt:
            output.close()
            self._conversation.interrupted(asked, said.rstrip())
            _note("(cancelled)")
            return None
        except CloverError as error:
            output.close()
            _note(f"error: {error}")
            return None
        output.close()
        assert result is not None  # a stream ends with its result or raises
        self._conversation.answered(asked, result)
        for refused in result.refused_calls:
            _note(f"(no call: {refused.reason})")
        if result.finish_reason == "length":
            _note("(cut: --max-new-tokens)")
        if self._counters:
            _note(counters_line(result.counters))
        return result

    def _results(self, result: ChatResult) -> list[Message]:
        """What the called tools say: the user is asked, nothing is run. An empty line or a command
        leaves the calls without results."""
        results: list[Message] = []
        for call in result.tool_calls:
            text = self._lines.text(f"result of {call.name} (empty: none)> ")
            if not text.strip():
                return []
            if _is_command(text):
                self._command(text)
                return []
            results.append({"role": "tool", "tool_call_id": call.id, "content": _said(text)})
        return results

    def _command(self, line: str) -> None:
        name, _, rest = line.partition(" ")
        try:
            command, _ = self._commands[name]
        except KeyError:
            _note(f"error: {name}: is no command (/help lists them; // begins a message with /)")
            return
        try:
            command(rest.strip())
        except (ArgumentError, OSError) as error:
            _note(f"error: {error}")

    def _save(self, argument: str) -> None:
        path = _path(argument)
        self._conversation.save(path)
        _note(f"wrote {len(self._conversation.messages)} messages to {path}")

    def _load(self, argument: str) -> None:
        path = _path(argument)
        if reason := self._conversation.load(path):
            _note(f"(the messages are read anew: {reason})")
        _note(f"read {len(self._conversation.messages)} messages from {path}")

    def _reset(self, _: str) -> None:
        self._conversation.reset()
        _note("the messages are forgotten")

    def _tools(self, argument: str) -> None:
        if argument:
            self._conversation.tools = read_tools(Path(argument).expanduser())
        for tool in self._conversation.tools:
            function = tool["function"]
            _note(f"{function['name']}: {function.get('description', '(no description)')}")
        if not self._conversation.tools:
            _note("there are no tools (/tools FILE reads some)")

    def _stats(self, _: str) -> None:
        rows = self._conversation.counters
        if not rows:
            _note("nothing has been answered yet")
            return
        used = rows[-1].prompt_tokens + rows[-1].tokens
        _note(counters_table(rows))
        _note(f"{used} of {self._conversation.context} tokens of context are in use")

    def _help(self, _: str) -> None:
        for name, (_command, text) in self._commands.items():
            _note(f"{name:<8}{text}")
        _note('A line ending in \\ goes on in the next one; """ begins and ends several lines.')

    def _quit(self, _: str) -> None:
        raise EOFError


def _path(argument: str) -> Path:
    if not argument:
        raise ArgumentError("a file's name is missing")
    return Path(argument).expanduser()


def _note(line: str) -> None:
    """A line on stderr: stdout holds answers alone."""
    print(line.encode(errors="replace").decode(), file=sys.stderr, flush=True)


def _is_command(text: str) -> bool:
    return text.startswith("/") and not text.startswith("//")


def _said(text: str) -> str:
    """A message or result as it was meant: `//` stands for `/`."""
    return text[1:] if text.startswith("//") else text
