"""Answers on stdout: redrawn in place on a terminal, plain text elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from typing import Union

from ..chat import ChatDoneEvent, ChatEvent, ChatResult, ThinkingEvent, ToolCall, ToolCallEvent
from ..results import Counters, DoneEvent, DraftEvent, Event, GenerationResult, TextEvent
from .live import LiveText

Result = Union[GenerationResult, ChatResult]  # noqa: UP007 - evaluated on Python 3.10
AnyEvent = Union[Event, ChatEvent]  # noqa: UP007


class Output:
    """One answer. On a terminal with its thinking (dim), elsewhere without."""

    def __init__(self) -> None:
        self._live = LiveText(sys.stdout) if sys.stdout.isatty() else None
        self._last = "\n"  # what was written ends with
        self._thought = False

    def take(self, event: AnyEvent, *, drafts: bool, pause: float = 0.0) -> None:
        """Shows an event; a draft only on a terminal and with `drafts`, for `pause` seconds."""
        if isinstance(event, TextEvent):
            self._text(event.text)
        elif isinstance(event, ThinkingEvent):
            if self._live:
                self._live.text(event.text, "thinking")
                self._thought, self._last = True, event.text
        elif isinstance(event, ToolCallEvent):
            self._text(("" if self._last.endswith("\n") else "\n") + call_line(event.call) + "\n")
        elif isinstance(event, DraftEvent) and self._live and drafts:
            self._live.draft(event)
            time.sleep(pause)

    def close(self) -> None:
        """Ends the last line."""
        if self._live:
            self._live.close()
        elif not self._last.endswith("\n"):
            sys.stdout.write("\n")
        sys.stdout.flush()

    def _text(self, text: str) -> None:
        if self._live:
            if self._thought:
                text, self._thought = "\n\n" + text.lstrip("\n"), False
            self._live.text(text)
        else:
            sys.stdout.write(encodable(text))
            sys.stdout.flush()
        self._last = text


def show(events: Iterable[AnyEvent], *, drafts: bool, pause: float = 0.0) -> Result:
    """Prints an answer as it comes, and returns its result."""
    output = Output()
    result: Result | None = None
    try:
        for event in events:
            if isinstance(event, (DoneEvent, ChatDoneEvent)):
                result = event.result
            else:
                output.take(event, drafts=drafts, pause=pause)
    finally:
        output.close()
    assert result is not None  # a stream ends with its result or raises
    return result


def silent(events: Iterable[AnyEvent]) -> Result:
    """The result alone."""
    return [event.result for event in events if isinstance(event, (DoneEvent, ChatDoneEvent))][-1]


def call_line(call: ToolCall) -> str:
    """A call in one line."""
    return f"{call.name}({call.arguments})"


def counters_line(counters: Counters) -> str:
    """One line of what a generation cost."""
    kept = f" ({counters.cached_tokens} of them kept)" if counters.cached_tokens else ""
    prefill = f" at {counters.prefill_tps:.0f} tokens/s" if counters.prefill_tps else ""
    return (
        f"{counters.tokens} tokens in {counters.forward_passes} forwards "
        f"({counters.tokens_per_forward:.2f} tokens per forward), "
        f"{counters.decode_tps:.0f} tokens/s after a prompt of {counters.prompt_tokens}"
        f"{kept}{prefill}"
    )


def counters_table(rows: Iterable[Counters]) -> str:
    """A row per answer."""
    lines = [f"{'tokens':>7}{'blocks':>8}{'forwards':>10}{'tokens/forward':>16}{'tokens/s':>10}"]
    for counters in rows:
        lines.append(
            f"{counters.tokens:>7}{counters.blocks:>8}{counters.forward_passes:>10}"
            f"{counters.tokens_per_forward:>16.2f}{counters.decode_tps:>10.0f}"
        )
    return "\n".join(lines)


def is_unicode() -> bool:
    """Whether stdout takes any character."""
    return "utf" in (sys.stdout.encoding or "").lower()


def encodable(text: str) -> str:
    """What an ASCII stdout cannot hold becomes "?", rather than an error in mid-text."""
    if is_unicode():
        return text
    encoding = sys.stdout.encoding or "ascii"
    return text.encode(encoding, errors="replace").decode(encoding)
