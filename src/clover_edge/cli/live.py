"""A block redrawn in place while it denoises.

The text that is final stays on the terminal; below it, one region of rows is redrawn in a single
write per step (no flicker). Rows are cut to the terminal's width, so that the terminal itself
never wraps and the number of rows to move up is known, also after a resize.
"""

from __future__ import annotations

import os
import shutil
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TextIO

from ..results import DraftEvent

TAB = "    "
FINAL = ("", "thinking")  # states of text that stays
KEPT = "\n\u200c\u200d"  # line ends, and the joiners that emoji and scripts are made with


@dataclass(frozen=True)
class Look:
    """How the three kinds of position are told apart: by glyphs, and by style where allowed."""

    masked: str  # one masked position
    opening: str  # around a run of drafted positions
    closing: str
    ended: str  # an accepted special token: the text has ended here
    line_end: str  # a drafted one; only accepted ones break the row, else the rows would jump
    styles: dict[str, str]  # state -> SGR codes
    reset: str


def look(stream: TextIO) -> Look:
    """The look for a terminal: plain ASCII where its encoding is, no colour under NO_COLOR."""
    colour = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    styles = {"masked": "\x1b[2m", "drafted": "\x1b[3;33m", "accepted": "\x1b[1;32m"}
    styles["thinking"] = "\x1b[2m"
    unicode = "utf" in (stream.encoding or "").lower()
    glyphs = ("░", "‹", "›", "∎", "⏎") if unicode else ("_", "<", ">", "|", "\\n")
    return Look(*glyphs, styles if colour else {}, "\x1b[0m" if colour else "")


class LiveText:
    """Final text and the current draft on one terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._look = look(stream)
        self._tail: list[tuple[str, str]] = []  # final: (state, text) of the last, unfinished row
        self._cells: list[tuple[str, str]] = []  # the draft: likewise
        self._drawn: list[int] = []  # widths of the rows on the terminal

    def text(self, text: str, state: Literal["", "thinking"] = "") -> None:
        """Adds final text."""
        self._tail.append((state, printable(text)))
        self._cells = []
        self._draw()

    def draft(self, event: DraftEvent) -> None:
        """Shows a block."""
        self._cells = list(_cells(event, self._look))
        self._draw()

    def close(self) -> None:
        """Leaves the final text alone on the terminal, the cursor below it."""
        self._cells = []
        self._draw()
        if self._tail or self._drawn:
            self._stream.write("\n")
            self._stream.flush()
        self._tail, self._drawn = [], []

    def _draw(self) -> None:
        columns, lines = shutil.get_terminal_size()
        width = max(columns - 1, 8)  # the last column would leave the cursor's row undefined
        rows, final = _rows(self._tail, self._cells, width)
        # What is final stays; a draft higher than the terminal is cut at its bottom.
        rows = rows[: final + max(lines - 1, 1)]
        out = [self._to_top(columns)]
        for number, row in enumerate(rows):
            out.append("".join(self._styled(state, char) for state, char in _runs(row)))
            out.append("\x1b[K" + ("\n" if number + 1 < len(rows) else ""))
        out.append("\x1b[J")
        self._stream.write("".join(out))
        self._stream.flush()
        self._tail = [cell for cell in _runs(rows[final]) if cell[0] in FINAL]
        self._drawn = [sum(cell_width(char) for _, char in row) for row in rows[final:]]

    def _to_top(self, columns: int) -> str:
        # A terminal made narrower has wrapped the rows it holds.
        height = sum(max(1, -(-width // columns)) for width in self._drawn)
        return "\r" + (f"\x1b[{height - 1}A" if height > 1 else "")

    def _styled(self, state: str, text: str) -> str:
        style = self._look.styles.get(state, "")
        return f"{style}{text}{self._look.reset}" if style else text


Row = list[tuple[str, str]]  # (state, character)


def _rows(tail: Row, cells: Row, width: int) -> tuple[list[Row], int]:
    """Rows of at most `width` columns, and how many of them hold finished final text only."""
    rows: list[Row] = [[]]
    used = final = 0
    for state, text in (*tail, *cells):
        for char in text:
            if char == "\n" or used + cell_width(char) > width:
                rows.append([])
                used = 0
                if state in FINAL:
                    final = len(rows) - 1
            if char != "\n":
                rows[-1].append((state, char))
                used += cell_width(char)
    return rows, final


def _runs(row: Row) -> Iterator[tuple[str, str]]:
    """Neighbouring characters of one state together."""
    run: list[str] = []
    current = ""
    for state, char in row:
        if state != current and run:
            yield current, "".join(run)
            run = []
        current = state
        run.append(char)
    if run:
        yield current, "".join(run)


def _cells(event: DraftEvent, look: Look) -> Iterator[tuple[str, str]]:
    """The block's positions as text, a run of drafted ones in one pair of marks."""
    previous = ""
    for state, piece in zip(event.states, event.pieces, strict=True):
        if previous == "drafted" and state != "drafted":
            yield "drafted", look.closing
        if state == "masked":
            yield state, look.masked
        elif state == "drafted":
            text = printable(piece).replace("\n", look.line_end)
            yield state, text if previous == state else look.opening + text
        else:
            yield state, printable(piece) or look.ended
        previous = state
    if previous == "drafted":
        yield "drafted", look.closing


def printable(text: str) -> str:
    """`text` without what a terminal would obey: control characters become U+FFFD."""
    text = text.replace("\r\n", "\n").replace("\t", TAB)
    return "".join("\ufffd" if _obeyed(char) else char for char in text)


def _obeyed(char: str) -> bool:
    return unicodedata.category(char) in ("Cc", "Cf", "Cs") and char not in KEPT


def cell_width(char: str) -> int:
    """Terminal columns of a character."""
    if unicodedata.combining(char) or char in KEPT:
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
