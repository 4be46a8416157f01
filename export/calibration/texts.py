"""Calibration text: a file that the user names, or a small built-in set."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...errors import ArgumentError, ExportError

Render = Callable[[list[Any]], str]

DEFAULT_TOKENS = 8192
_BUILT_IN = Path(__file__).with_name("builtin.txt")
_SEPARATOR = "\n%%\n"  # between the texts of the built-in set
_LONGEST = 16 << 20  # characters of a file that are read: far more than is used


def read_texts(path: Path | None, render: Render) -> list[str]:
    """The texts of a ``.txt`` file (one text) or of a ``.jsonl`` file, whose lines are objects with
    ``text``, or with ``messages``, which ``render`` makes a text of; None: the built-in set.

    Raises ExportError naming the file, and the line of it that cannot be used.
    """
    if path is None:
        return _BUILT_IN.read_text(encoding="utf-8").strip().split(_SEPARATOR)
    if path.suffix not in (".txt", ".jsonl"):
        raise ExportError(f"{path}: calibration text is a .txt or a .jsonl file")
    try:
        with path.open(encoding="utf-8") as file:
            content = file.read(_LONGEST)
    except OSError as problem:
        raise ExportError(f"{path}: {problem.strerror or problem}") from problem
    except UnicodeDecodeError as problem:
        raise ExportError(f"{path}: is no UTF-8 text ({problem.reason})") from problem
    texts = [content] if path.suffix == ".txt" else _lines(path, content, render)
    texts = [text for text in texts if text.strip()]
    if not texts:
        raise ExportError(f"{path}: holds no text")
    return texts


def _lines(path: Path, content: str, render: Render) -> list[str]:
    lines = content.split("\n")
    if len(content) == _LONGEST:
        lines.pop()  # cut off in its middle
    numbered = [(f"{path}: line {n}", line) for n, line in enumerate(lines, 1) if line.strip()]
    return [_line(where, line, render) for where, line in numbered]


def _line(where: str, line: str, render: Render) -> str:
    try:
        value = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as problem:
        raise ExportError(f"{where}: is no JSON") from problem
    if isinstance(value, dict):
        if isinstance(value.get("text"), str):
            return str(value["text"])
        if isinstance(value.get("messages"), list):
            try:
                return render(value["messages"])
            except ArgumentError as problem:
                raise ExportError(f"{where}: {problem}") from problem
    raise ExportError(f'{where}: has neither a "text" nor "messages"')
