"""Detokenising: whole code points, no part of a stop string, the same text in any pieces."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_clover import SPECIAL_TOKENS, write_tokenizer

from clover_edge.errors import ArgumentError, ModelFormatError
from clover_edge.text import Detokenizer, TextCodec

ORDINARY = 256  # ids 0..255 are the bytes themselves


@pytest.fixture(scope="module")
def codec(tmp_path_factory: pytest.TempPathFactory) -> TextCodec:
    folder = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(folder, ORDINARY, SPECIAL_TOKENS)
    return TextCodec(folder / "tokenizer.json")


def pushed(codec: TextCodec, ids: list[int], stop: tuple[str, ...] = ()) -> list[str]:
    detokenizer = Detokenizer(codec, stop)
    return [*(detokenizer.push([token]) for token in ids), detokenizer.finish()]


@given(st.text(max_size=20))
def test_pieces_of_valid_text_are_that_text(codec: TextCodec, text: str) -> None:
    pieces = pushed(codec, codec.encode(text))
    assert "".join(pieces) == text
    assert all("\ufffd" not in piece for piece in pieces) or "\ufffd" in text


@given(st.lists(st.integers(0, ORDINARY - 1), max_size=30), st.integers(1, 7))
def test_any_bytes_in_any_pieces(codec: TextCodec, ids: list[int], size: int) -> None:
    """Invalid UTF-8, too: the pieces add up to what decoding at once gives."""
    whole = codec.decode(ids)
    assert "".join(pushed(codec, ids)) == whole
    detokenizer = Detokenizer(codec)
    said = ""
    for start in range(0, len(ids), size):
        said += detokenizer.push(ids[start : start + size])
        assert whole.startswith(said)
    assert said + detokenizer.finish() == whole == detokenizer.text


def test_a_code_point_appears_when_its_last_byte_does(codec: TextCodec) -> None:
    ids = codec.encode("a🙂é")
    assert len(ids) == 1 + 4 + 2
    assert pushed(codec, ids) == ["a", "", "", "", "🙂", "", "é", ""]


def test_an_unfinished_code_point_is_replaced_at_the_end(codec: TextCodec) -> None:
    ids = codec.encode("a🙂")[:-1]
    pieces = pushed(codec, ids)
    assert pieces[:-1] == ["a", "", "", ""]
    assert "a" + pieces[-1] == codec.decode(ids)
    assert set(pieces[-1]) == {"\ufffd"}


@given(
    st.text(alphabet="ab\n🙂", max_size=30),
    st.lists(st.text(alphabet="ab\n🙂", min_size=1, max_size=4), min_size=1, max_size=3),
)
def test_stop_strings(codec: TextCodec, text: str, stop: list[str]) -> None:
    """The text ends in front of the stop string that is complete first; nothing of it is said."""
    ends = [text.find(string) + len(string) for string in stop if string in text]
    cut = min(ends) if ends else None
    want = text
    if cut is not None:
        want = text[: min(text[:cut].find(s) for s in stop if text[:cut].find(s) >= 0)]
    pieces = pushed(codec, codec.encode(text), tuple(stop))
    assert "".join(pieces) == want
    said = ""
    for piece in pieces:
        said += piece
        assert want.startswith(said)


def test_ids_end_with_the_stop_string(codec: TextCodec) -> None:
    detokenizer = Detokenizer(codec, ("END",))
    ids = codec.encode("one END two")
    detokenizer.push(ids)
    assert detokenizer.stopped == "END"
    assert codec.decode(detokenizer.ids) == "one END"
    assert detokenizer.text == "one "
    assert detokenizer.push(ids) == detokenizer.finish() == ""


def test_special_tokens_are_not_text(codec: TextCodec) -> None:
    (end,) = codec.encode("<|im_end|>")
    assert codec.decode([end]) == codec.piece(end) == ""
    assert "".join(pushed(codec, [*codec.encode("a"), end, *codec.encode("b")])) == "ab"


@pytest.mark.parametrize("text", ["\ud800", "ab\udcff", b"ab\xff".decode(errors="surrogateescape")])
def test_invalid_unicode(codec: TextCodec, text: str) -> None:
    with pytest.raises(ArgumentError, match=rf"at character {len(text) - 1} "):
        codec.encode(text)


def test_ids_outside_the_vocabulary(codec: TextCodec) -> None:
    with pytest.raises(ArgumentError, match="ids: 9999 is outside"):
        codec.decode([1, 9999])
    with pytest.raises(ArgumentError, match="ids: -1 is outside"):
        codec.decode([-1])


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "missing"), (b"{}", "cannot be read"), (b"<html>", "cannot be read")],
)
def test_a_file_that_is_no_tokenizer(tmp_path: Path, content: bytes | None, reason: str) -> None:
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelFormatError, match=f"tokenizer.json: tokenizer: .*{reason}"):
        TextCodec(path)
