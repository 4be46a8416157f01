"""`clover-edge run`: one prompt through one model."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable
from typing import Any

from ..errors import ArgumentError
from ..results import Counters, DoneEvent, DraftEvent, Event, GenerationResult, TextEvent
from .live import LiveText
from .options import add_generation_options, add_runtime_options, generation_options


def add_parser(commands: Any) -> None:
    """Adds the command to the command line."""
    parser = commands.add_parser("run", help="generate from a prompt", description=__doc__)
    parser.add_argument("model", metavar="MODEL", help="a packed folder (clover-export makes one)")
    parser.add_argument("prompt", metavar="PROMPT", help="the text, or - to read it from stdin")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--chat", action="store_true", help="PROMPT is a user's message")
    form.add_argument(
        "--raw",
        action="store_true",
        help="PROMPT is continued as it is (default: --chat where the model has a chat template)",
    )
    parser.add_argument("--system", metavar="TEXT", help="a system message in front of PROMPT")
    parser.add_argument("--show", action="store_true", help="on a terminal: show blocks denoise")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    parser.add_argument("-q", "--quiet", action="store_true", help="no counters on stderr")
    parser.add_argument(
        "--drafter", metavar="FOLDER", help="a packed drafter for MODEL: the same text, sooner"
    )
    add_generation_options(parser)
    add_runtime_options(parser)
    parser.set_defaults(handler=_handle)


def _handle(arguments: argparse.Namespace) -> int:
    from ..model import load

    text = _read_stdin() if arguments.prompt == "-" else arguments.prompt
    if arguments.raw and arguments.system is not None:
        raise ArgumentError("--system: needs a chat template, and --raw uses none")
    with load(
        arguments.model,
        threads=arguments.threads,
        isa=arguments.isa,
        kv=arguments.kv,
        drafter=arguments.drafter,
    ) as model:
        prompt: Any = text
        if not arguments.raw and (arguments.chat or arguments.system or model.has_chat_template):
            if arguments.prompt == "-":  # the line end that echo adds is no part of a message
                text = text.removesuffix("\n").removesuffix("\r")
            prompt = [{"role": "user", "content": text}]
            if arguments.system is not None:
                prompt.insert(0, {"role": "system", "content": arguments.system})
        events = model.stream(prompt, **generation_options(arguments))
        if arguments.json:
            result = silent(events)
            print(json.dumps(result.to_dict(), ensure_ascii=not _is_unicode()))
        else:
            result = show(events, drafts=arguments.show)
    if not arguments.quiet:
        print(counters_line(result.counters), file=sys.stderr)
    return 0


def show(events: Iterable[Event], *, drafts: bool, pause: float = 0.0) -> GenerationResult:
    """Prints final text as it comes; on a terminal and with `drafts`, the block as it changes,
    each state of it for `pause` seconds at least."""
    live = LiveText(sys.stdout) if sys.stdout.isatty() else None
    result: GenerationResult | None = None
    try:
        for event in events:
            if isinstance(event, DoneEvent):
                result = event.result
            elif isinstance(event, TextEvent):
                if live:
                    live.text(event.text)
                else:
                    sys.stdout.write(_encodable(event.text))
                    sys.stdout.flush()
            elif isinstance(event, DraftEvent) and live and drafts:
                live.draft(event)
                time.sleep(pause)
    finally:
        if live:
            live.close()
    assert result is not None  # a stream ends with DoneEvent or raises
    if not live and not result.text.endswith("\n"):
        sys.stdout.write("\n")
    return result


def silent(events: Iterable[Event]) -> GenerationResult:
    """The result alone."""
    results = [event.result for event in events if isinstance(event, DoneEvent)]
    return results[-1]


def counters_line(counters: Counters) -> str:
    """One line of what a generation cost."""
    prefill = f" at {counters.prefill_tps:.0f} tokens/s" if counters.prefill_tps else ""
    return (
        f"{counters.tokens} tokens in {counters.forward_passes} forwards "
        f"({counters.tokens_per_forward:.2f} tokens per forward), "
        f"{counters.decode_tps:.0f} tokens/s after a prompt of {counters.prompt_tokens}{prefill}"
    )


def _read_stdin() -> str:
    data = sys.stdin.buffer.read()
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ArgumentError(
            f"stdin: is not UTF-8 at byte {error.start} (0x{data[error.start]:02x})"
        ) from None


def _is_unicode() -> bool:
    return "utf" in (sys.stdout.encoding or "").lower()


def _encodable(text: str) -> str:
    """What an ASCII stdout cannot hold becomes "?", rather than an error in mid-text."""
    if _is_unicode():
        return text
    encoding = sys.stdout.encoding or "ascii"
    return text.encode(encoding, errors="replace").decode(encoding)
