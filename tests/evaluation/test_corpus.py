"""Files to documents to sequences, and what is refused on the way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import clover_edge
from clover_edge import corpus
from clover_edge.corpus import demo_documents, read_documents, sequences, task_rows
from clover_edge.evaluation.tasks import parse_answer

WILD = "Grüße 🌱🐝, naïve – “quoted”\r\n\ttabs\x00 and 漢字 " * 7


def of(model: clover_edge.Model, *documents: Any, length: int = 16, limit: int = 99) -> Any:
    places = [(f"file: line {i}", document) for i, document in enumerate(documents)]
    return sequences(model, places, length=length, limit=limit)


def test_stretches_cover_the_text(plain: clover_edge.Model) -> None:
    found = of(plain, WILD)
    ids = plain.codec.encode(WILD)
    assert [i for sequence in found for i in sequence.ids] == ids
    assert all(sequence.start == 1 and len(sequence.ids) <= 16 for sequence in found)
    _, nbytes = plain.codec.measured(WILD)
    assert sum(nbytes) == len(WILD.encode())
    assert sum(s.nbytes for s in found) == sum(n for i, n in enumerate(nbytes) if i % 16)


def test_limit_and_short_ends(plain: clover_edge.Model) -> None:
    assert of(plain, WILD, limit=3) == of(plain, WILD)[:3]
    one_over = plain.codec.decode(plain.codec.encode("The meadow lies behind")[:9])
    assert [len(s.ids) for s in of(plain, one_over, length=8)] == [8]  # a lone token says nothing


def test_chats(plain: clover_edge.Model) -> None:
    chat = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hällo there"}]
    (found,) = of(plain, chat, length=99)
    prompt, answer = plain.chat_prompt(chat[:1]), plain.codec.encode("Hällo there")
    assert found.ids == [*prompt, *answer, plain.generation["eos_token_id"][0]]
    assert (found.start, found.nbytes) == (len(prompt), len("Hällo there".encode()))
    cut = len(prompt) + 3
    (shorter,) = of(plain, chat, length=cut)
    assert shorter.ids == found.ids[:cut]
    assert shorter.nbytes == len(plain.codec.decode(answer[:3]).encode())
    with pytest.raises(clover_edge.ArgumentError, match="nothing to predict"):
        of(plain, chat, length=len(prompt))


def test_text_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes("one\ntwö\nthree".encode())
    assert [document for _, document in read_documents(path)] == ["one\ntwö\nthree"]
    monkeypatch.setattr(corpus, "_DOCUMENT_BYTES", 5)
    assert list(read_documents(path)) == [
        (f"{path}: byte 0", "one\ntwö\n"),
        (f"{path}: byte 9", "three"),
    ]
    path = tmp_path / "text.jsonl"
    rows = [{"text": "a"}, {"messages": [{"role": "user", "content": "b"}]}]
    path.write_text("\n\n".join(json.dumps(row) for row in rows) + "\n")
    assert [d for _, d in read_documents(path)] == ["a", rows[1]["messages"]]
    assert [where for where, _ in read_documents(path)] == [f"{path}: line 1", f"{path}: line 3"]


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("a.txt", b"fine\nnot \xff fine", ["a.txt: is not UTF-8 at byte 9 (0xff)"]),
        ("a.txt", b"", ["nothing to predict"]),
        ("a.txt", b"x", ["nothing to predict"]),
        ("a.txt", b"say <|mask|> here", ["a.txt: byte 0", "mask token (id"]),
        ("a.jsonl", b'{"text": "x"}\n{"text": "y"', ["line 2", "not valid JSON"]),
        ("a.jsonl", b'{"text": "\xff"}', ["line 1", "not valid JSON"]),
        ("a.jsonl", b'{"text": "\\ud800 lone"}', ["line 1", "not valid Unicode"]),
        ("a.jsonl", b"[1]", ["line 1", "neither"]),
        ("a.jsonl", b'{"text": 5}', ["line 1", "neither"]),
        ("a.jsonl", b'{"messages": []}', ["line 1", "not the assistant's"]),
        ("a.jsonl", b'{"messages": [7]}', ["line 1", "not the assistant's"]),
        (
            "a.jsonl",
            b'{"messages": [{"role": "user", "content": "x"}]}',
            ["line 1", "not the assistant's"],
        ),
        (
            "a.jsonl",
            b'{"messages": [{"role": "assistant", "content": "x"}]}',
            ["line 1", "messages: the list is empty"],
        ),
        (
            "a.jsonl",
            b'{"messages": [{"role": "user", "content": "x"}, {"role": "assistant"}]}',
            ["line 1", "content is not text"],
        ),
        ("a.jsonl", b"\n\n", ["nothing to predict"]),
    ],
)
def test_malformed_files(
    plain: clover_edge.Model, tmp_path: Path, name: str, data: bytes, words: list[str]
) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(clover_edge.ArgumentError) as caught:
        sequences(plain, read_documents(path), length=32, limit=9)
    for word in words:
        assert word in str(caught.value)


def test_files_that_are_none(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent.txt"):
        with pytest.raises(clover_edge.ArgumentError, match=f"^{path}: "):
            list(read_documents(path))


def test_demo_rows() -> None:
    """What comes with the package can be scored: every wanted answer is exact by its own rule."""
    rows = [row for name in corpus.TASK_SETS for row in task_rows(name)]
    assert len(rows) == 2035
    assert all(parse_answer(row["answer"]) == row["calls"] for row in rows)
    where, document = next(demo_documents())
    assert where == "combinations.jsonl: line 1"
    assert [message["role"] for message in document] == ["user", "assistant"]
    assert len(list(read_documents(corpus.PLAIN_TEXT))) == 1


CALL = (
    "<tool_call>\n<function=call>\n<parameter=who>\nMaya\n</parameter>\n</function>\n</tool_call>"
)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Sure!",
        CALL[:-1],
        CALL + "\nand more",
        CALL + CALL,
        CALL + "\n\n\n" + CALL,
        CALL.replace("</function>", "<parameter=who>\nLeo\n</parameter>\n</function>"),
    ],
)
def test_malformed_answers(text: str) -> None:
    assert parse_answer(text) is None


def test_answers() -> None:
    call = {"name": "call", "arguments": {"who": "Maya"}}
    assert parse_answer(CALL) == parse_answer(f"\n{CALL}\n") == [call]
    assert parse_answer(f"{CALL}\n{CALL}") == [call, call]
    assert parse_answer("No tool fits this request.") == []
