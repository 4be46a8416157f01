"""What a person types: lines with editing and history, several of them as one text."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

QUOTES = '"""'
HISTORY = 1000  # lines kept


class Lines:
    """Reads texts from stdin. A line that ends in a backslash goes on in the next one; one that
    begins with three quotes starts a text that goes up to three quotes at a line's end."""

    def __init__(self, words: Sequence[str] = ()) -> None:
        """`words`: what the tabulator key completes at a line's beginning."""
        self.interactive = sys.stdin.isatty()
        self._words = tuple(words)

    def text(self, prompt: str) -> str:
        """The next text; EOFError at the end of the input."""
        first = self._line(prompt)
        if first.startswith(QUOTES):
            return self._quoted(first[len(QUOTES) :])
        lines = [first]
        while lines[-1].endswith("\\"):
            lines[-1] = lines[-1][:-1]
            lines.append(self._line("… " if _unicode() else ". "))
        return "\n".join(lines)

    def _quoted(self, line: str) -> str:
        lines = [line]
        while not lines[-1].rstrip().endswith(QUOTES):
            lines.append(self._line("… " if _unicode() else ". "))
        lines[-1] = lines[-1].rstrip().removesuffix(QUOTES)
        return "\n".join(lines).strip("\n")

    def _line(self, prompt: str) -> str:
        if self.interactive and sys.stdout.isatty():
            return input(prompt)
        if self.interactive:  # stdout is data
            print(prompt, end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.removesuffix("\n").removesuffix("\r")

    @contextlib.contextmanager
    def history(self) -> Iterator[None]:
        """Line editing, and the lines of earlier runs: kept in the user's state folder."""
        try:
            import readline
        except ImportError:  # not on every system
            yield
            return
        if not self.interactive:
            yield
            return
        readline.parse_and_bind("tab: complete")
        readline.set_completer_delims("\n")
        readline.set_completer(self._complete)
        readline.set_history_length(HISTORY)
        path = history_file()
        with contextlib.suppress(OSError):
            readline.read_history_file(path)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # a full or read-only disk costs the history only
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                readline.write_history_file(path)
                path.chmod(0o600)

    def _complete(self, text: str, number: int) -> str | None:
        matching = [word for word in self._words if word.startswith(text)]
        return matching[number] if number < len(matching) else None


def history_file() -> Path:
    """Where the lines are kept: under XDG_STATE_HOME."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "clover-edge" / "chat_history"


def _unicode() -> bool:
    return "utf" in (sys.stdout.encoding or "").lower()
