"""A terminal in a few lines: what the live view's bytes leave on a screen."""

from __future__ import annotations

import io
import re

_CONTROL = re.compile(r"\x1b\[([0-9;]*)([A-Za-z])")


class Terminal(io.StringIO):
    """Interprets what is written to it. Only what the live view may use is understood."""

    encoding = "utf-8"

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.columns = columns
        self.rows: list[list[str]] = [[]]
        self.row = self.column = 0
        self.frames: list[list[str]] = []

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        position = 0
        while position < len(text):
            control = _CONTROL.match(text, position)
            if control:
                self._control(control[1], control[2])
                position = control.end()
                continue
            self._character(text[position])
            position += 1
        self.frames.append(self.screen())
        return len(text)

    def screen(self) -> list[str]:
        return ["".join(row).rstrip() for row in self.rows]

    def _character(self, char: str) -> None:
        assert char in "\r\n" or ord(char) >= 32, f"the terminal would obey {char!r}"
        if char == "\r":
            self.column = 0
        elif char == "\n":
            self.row, self.column = self.row + 1, 0
            if self.row == len(self.rows):
                self.rows.append([])
        else:
            assert self.column < self.columns, "a row is wider than the terminal"
            row = self.rows[self.row]
            row.extend(" " * (self.column + 1 - len(row)))
            row[self.column] = char
            self.column += 1

    def _control(self, argument: str, letter: str) -> None:
        if letter == "A":
            self.row -= int(argument or 1)
            assert self.row >= 0, "the cursor leaves the screen"
        elif letter == "K":
            del self.rows[self.row][self.column :]
        elif letter == "J":
            del self.rows[self.row][self.column :]
            del self.rows[self.row + 1 :]
        else:
            assert letter == "m", letter
