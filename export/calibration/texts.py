"""Calibration text: a file that the user names, or a small built-in set."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...corpus import read_documents
from ...errors import ArgumentError, ExportError

Render = Callable[[list[Any]], str]

DEFAULT_TOKENS = 8192
_BUILT_IN = Path(__file__).with_name("builtin.txt")
_SEPARATOR = "\n%%\n"  # between the texts of the built-in set
_LONGEST = 16 << 20  # characters of a file that are read: far more than is used


def read_texts(path: Path | None, render: Render) -> list[str]:
    """The documents of a file (``corpus.read_documents``), chats as ``render`` makes texts of them;
    None: the built-in set.

    Raises ExportError naming the file, and the line of it that cannot be used.
    """
    if path is None:
        return _BUILT_IN.read_text(encoding="utf-8").strip().split(_SEPARATOR)
    if path.suffix not in (".txt", ".jsonl"):
        raise ExportError(f"{path}: calibration text is a .txt or a .jsonl file")
    texts: list[str] = []
    try:
        for where, document in read_documents(path):
            if sum(map(len, texts)) > _LONGEST:
                break
            texts.append(
                document if isinstance(document, str) else _render(where, document, render)
            )
    except ArgumentError as problem:
        raise ExportError(str(problem)) from problem
    texts = [text for text in texts if text.strip()]
    if not texts:
        raise ExportError(f"{path}: holds no text")
    return texts


def _render(where: str, messages: list[Any], render: Render) -> str:
    try:
        return render(messages)
    except ArgumentError as problem:
        raise ExportError(f"{where}: {problem}") from problem
