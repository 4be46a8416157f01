"""The block redrawn in place, as a terminal shows it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from terminal import Terminal

import clover_edge
from clover_edge import DraftEvent, TextEvent
from clover_edge.cli.live import LiveText, cell_width, printable


@pytest.fixture(autouse=True)
def size(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("LINES", "24")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    yield


def draft(step: int, *cells: tuple[str, str]) -> DraftEvent:
    states, pieces = zip(*cells, strict=True)
    return DraftEvent(0, step, states, pieces, tuple(range(len(cells))))


MASKED = draft(0, ("masked", ""), ("masked", ""), ("masked", ""), ("masked", ""))
FIRST = draft(1, ("accepted", "one"), ("drafted", " tw"), ("drafted", "o\n"), ("masked", ""))
SECOND = draft(2, ("accepted", "one"), ("drafted", " to"), ("accepted", "\n"), ("accepted", ""))


def test_three_kinds_of_position() -> None:
    """Told apart by glyphs, so without colour, too."""
    terminal = Terminal(40)
    live = LiveText(terminal)
    live.draft(MASKED)
    assert terminal.screen() == ["░░░░"]
    live.draft(FIRST)
    assert terminal.screen() == ["one‹ two⏎›░"]
    live.draft(SECOND)
    assert terminal.screen() == ["one‹ to›", "∎"]
    live.text("one to\n")
    live.draft(MASKED)
    assert terminal.screen() == ["one to", "░░░░"]
    live.text("end")
    live.close()
    assert terminal.screen() == ["one to", "end", ""]


def test_styles(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    terminal = Terminal(40)
    monkeypatch.setattr(terminal, "write", written.append)
    LiveText(terminal).draft(FIRST)
    assert written[-1].count("\x1b[") == 2 + 2 * 3  # to the end of row and screen; three styles
    LiveText(terminal).text("x", "thinking")
    assert "\x1b[2mx\x1b[0m" in written[-1]
    monkeypatch.setenv("NO_COLOR", "1")
    LiveText(terminal).draft(FIRST)
    assert "m" not in written[-1].replace("one", "")
    assert "one‹ two⏎›░" in written[-1]


def test_thinking_is_text_that_stays() -> None:
    terminal = Terminal(40)
    live = LiveText(terminal)
    live.text("hm ", "thinking")
    live.draft(FIRST)
    assert terminal.screen() == ["hm one‹ two⏎›░"]
    live.text("so\n\n", "thinking")
    live.text("yes")
    live.draft(MASKED)
    live.close()
    assert terminal.screen() == ["hm so", "", "yes", ""]


def test_one_write_a_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is erased and drawn again in two writes: that would flicker."""
    terminal = Terminal(40)
    live = LiveText(terminal)
    for event in (MASKED, FIRST, SECOND):
        before = len(terminal.frames)
        live.draft(event)
        assert len(terminal.frames) == before + 1


def test_a_terminal_without_unicode() -> None:
    terminal = Terminal(40)
    terminal.encoding = "ascii"
    LiveText(terminal).draft(FIRST)
    assert terminal.screen() == [r"one< two\n>_"]


@given(
    st.lists(st.text(alphabet="ab \n\t界é🙂\x1b\x07", max_size=60), max_size=6),
    st.integers(10, 60),
)
def test_the_final_text_is_what_stays(pieces: list[str], columns: int) -> None:
    """Whatever was drafted meanwhile: the final text, wrapped at the width."""
    os.environ["COLUMNS"] = str(columns)
    terminal = Terminal(columns)
    live = LiveText(terminal)
    for step, piece in enumerate(pieces):
        live.draft(
            draft(step, *[("drafted", "界 draft"), ("masked", "")] * step, ("accepted", "x"))
        )
        live.text(piece)
        live.draft(MASKED)
    live.close()
    want: list[str] = []
    for line in printable("".join(pieces)).split("\n"):
        want.append("")
        used = 0
        for char in line:
            if used + cell_width(char) > columns - 1:
                want.append("")
                used = 0
            want[-1] += char
            used += cell_width(char)
    assert [row.rstrip() for row in want] == terminal.screen()[: len(want)]
    assert "".join(terminal.screen()[len(want) :]) == ""


def test_a_narrower_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows drawn before are taken for as many as the narrower terminal has made of them."""
    terminal = Terminal(40)
    live = LiveText(terminal)
    live.draft(draft(1, *[("accepted", "0123456789")] * 3))
    assert terminal.screen() == ["0123456789" * 3]
    monkeypatch.setenv("COLUMNS", "16")
    terminal.rows = [list("0123456789012345"), list("67890123456789")]
    terminal.row, terminal.column, terminal.columns = 1, 14, 16
    live.draft(draft(2, *[("accepted", "abcdefghij")] * 3))
    assert terminal.screen() == ["abcdefghijabcde", "fghijabcdefghij"]


def test_a_draft_higher_than_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINES", "4")
    terminal = Terminal(40)
    live = LiveText(terminal)
    live.text("kept\n")
    live.draft(draft(1, *[("accepted", f"{i}\n") for i in range(10)]))
    assert terminal.screen() == ["kept", "0", "1", "2"]
    live.text("".join(f"{i}\n" for i in range(10)))
    live.close()
    assert terminal.screen() == ["kept", *map(str, range(10)), "", ""]


def test_a_model_on_a_terminal(model: clover_edge.Model) -> None:
    """Noise with control characters in it: nothing of it is obeyed, and the text is complete."""
    options = {"temperature": 1.0, "threshold": 0.05, "max_new_tokens": 96, "seed": 3}
    terminal = Terminal(40)
    live = LiveText(terminal)
    for event in model.stream("x", **options):
        if isinstance(event, TextEvent):
            live.text(event.text)
        elif isinstance(event, DraftEvent):
            live.draft(event)
    live.close()
    text = printable(model.generate("x", **options).text)
    shown = "".join(terminal.screen())
    assert shown.replace(" ", "") == text.replace("\n", "").replace(" ", "")
