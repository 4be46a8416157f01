"""Text to measure and calibrate with: files of the user's, or what comes with the package.

A document is running text or a chat; a `Sequence` is a stretch of its tokens that fits one pass
over a model's context.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from .errors import ArgumentError

if TYPE_CHECKING:
    from .model import Model

CORPORA = Path(__file__).parent / "corpora"
PLAIN_TEXT = CORPORA / "meadow.txt"
TASK_SETS = ("combinations", "wordings", "made_up")  # of the demo model, held out of its training

_DOCUMENT_BYTES = 1 << 16  # of a text file that is tokenised at once

Document = Union[str, list[Mapping[str, Any]]]  # noqa: UP007 - evaluated on Python 3.10


@dataclass(frozen=True)
class Sequence:
    """Token ids of which those from `start` (at least 1) on are to be predicted.

    `nbytes`: UTF-8 bytes of their text; a stop token has none.
    """

    ids: list[int]
    start: int
    nbytes: int


def task_rows(name: str) -> list[dict[str, Any]]:
    """A held-out set of the demo model's task: rows of request, calls, answer."""
    text = (CORPORA / f"{name}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def demo_documents() -> Iterator[tuple[str, Document]]:
    """The demo model's held-out requests and answers as chats, a row of each set in turn."""
    for place, rows in enumerate(zip(*(task_rows(name) for name in TASK_SETS), strict=False)):
        for name, row in zip(TASK_SETS, rows, strict=True):
            request = {"role": "user", "content": row["request"]}
            answer = {"role": "assistant", "content": row["answer"]}
            yield f"{name}.jsonl: line {place + 1}", [request, answer]


def read_documents(path: str | Path) -> Iterator[tuple[str, Document]]:
    """(where, document) of each document of a file, read as they are asked for.

    `.jsonl`: an object a line, its "text" or its "messages" (the last one the assistant's). Any
    other file is plain UTF-8 text, cut at line ends into documents of some 64 KB. Raises
    ArgumentError naming file and line (or byte) of what is not valid.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            lines = _json_lines(path, file) if path.suffix == ".jsonl" else _stretches(path, file)
            yield from lines
    except OSError as problem:
        raise ArgumentError(f"{path}: {problem.strerror or problem}") from problem


def sequences(
    model: Model, documents: Iterable[tuple[str, Document]], *, length: int, limit: int
) -> list[Sequence]:
    """The first `limit` sequences of at most `length` tokens.

    Running text: consecutive stretches, the first token of each only read. A chat: what the
    template makes of all messages but the last, then the last one and the stop token, which are
    predicted; cut to `length`, and left out where the prompt alone is longer. Raises ArgumentError
    naming the document that the model cannot take, or when no sequence is left.
    """
    made = chain.from_iterable(
        _stretch(model, where, document, length)
        if isinstance(document, str)
        else _chat(model, where, document, length)
        for where, document in documents
    )
    found = list(islice(made, limit))
    if not found:
        raise ArgumentError(f"text: holds nothing to predict in sequences of {length} tokens")
    return found


def _json_lines(path: Path, lines: Iterable[bytes]) -> Iterator[tuple[str, Document]]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"{path}: line {number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as problem:
            raise ArgumentError(f"{where}: is not valid JSON: {problem}") from problem
        if isinstance(row, dict) and isinstance(row.get("text"), str):
            yield where, row["text"]
        elif isinstance(row, dict) and isinstance(row.get("messages"), list):
            yield where, row["messages"]
        else:
            raise ArgumentError(f'{where}: has neither a "text" nor a list of "messages"')


def _stretches(path: Path, lines: Iterable[bytes]) -> Iterator[tuple[str, Document]]:
    begin = size = 0
    parts: list[bytes] = []
    for line in chain(lines, [b""]):
        parts.append(line)
        size += len(line)
        if size >= _DOCUMENT_BYTES or not line:
            data = b"".join(parts)
            try:
                text = data.decode("utf-8")
            except UnicodeDecodeError as problem:
                place = f"byte {begin + problem.start} (0x{data[problem.start]:02x})"
                raise ArgumentError(f"{path}: is not UTF-8 at {place}") from None
            if text:
                yield f"{path}: byte {begin}", text
            begin, size, parts = begin + size, 0, []


def _stretch(model: Model, where: str, text: str, length: int) -> Iterator[Sequence]:
    try:
        ids, nbytes = model.codec.measured(text)
    except ArgumentError as problem:
        raise ArgumentError(f"{where}: {problem}") from problem
    _check_ids(model, where, ids)
    for first in range(0, len(ids) - 1, length):
        piece = ids[first : first + length]
        if len(piece) > 1:
            yield Sequence(piece, 1, sum(nbytes[first + 1 : first + length]))


def _chat(
    model: Model, where: str, messages: list[Mapping[str, Any]], length: int
) -> Iterator[Sequence]:
    *prompt, last = messages or [{}]
    content = last.get("content") if isinstance(last, Mapping) else None
    if not isinstance(last, Mapping) or last.get("role") != "assistant":
        raise ArgumentError(f"{where}: the last message is not the assistant's")
    if not isinstance(content, str):
        raise ArgumentError(f"{where}: the assistant's content is not text")
    try:
        ids = model.chat_prompt(prompt)
        start = len(ids)
        ids += model.codec.encode(content) + model.generation["eos_token_id"][:1]
    except ArgumentError as problem:
        raise ArgumentError(f"{where}: {problem}") from problem
    _check_ids(model, where, ids)
    if start < min(length, len(ids)):
        cut = ids[:length]
        text = content if len(cut) == len(ids) else model.codec.decode(cut[start:])
        yield Sequence(cut, start, len(text.encode()))


def _check_ids(model: Model, where: str, ids: list[int]) -> None:
    mask = model.spec.get("mask_token_id")  # a model without previews may have none
    if mask in ids:
        raise ArgumentError(f"{where}: holds the mask token (id {mask})")
