"""Text in, text out: the tokenizer, and a detokeniser that only ever says final text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from .errors import ArgumentError, ModelFormatError
from .export.files import read_json


class TextCodec:
    """A `tokenizer.json` with the checks that keep bad text out of the core."""

    def __init__(self, path: Path, shown: Sequence[str] = ()) -> None:
        """`shown`: special tokens that texts are to hold all the same, as far as there are such.

        Raises ModelFormatError when the file is missing or is no tokenizer.
        """
        if not path.is_file():
            raise ModelFormatError(str(path), "tokenizer", "the file is missing")
        try:
            self.tokenizer = Tokenizer.from_file(str(path))
            if any(token in shown for token in self._special_tokens().values()):
                self.tokenizer = Tokenizer.from_str(_with_plain_tokens(path, shown))
        except Exception as error:  # the library raises bare Exception
            raise ModelFormatError(str(path), "tokenizer", f"cannot be read: {error}") from error
        self._special = set(self._special_tokens())

    def _special_tokens(self) -> dict[int, str]:
        tokens = self.tokenizer.get_added_tokens_decoder().items()
        return {token_id: token.content for token_id, token in tokens if token.special}

    @property
    def special_ids(self) -> set[int]:
        """Tokens that are no text."""
        return set(self._special)

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        """Token ids of `text`; ArgumentError where it is not valid Unicode."""
        check_unicode("prompt", text)
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        return ids

    def measured(self, text: str) -> tuple[list[int], list[int]]:
        """The ids of a whole text, special tokens added, and how many of its UTF-8 bytes each one
        brings; the first of several tokens of one character brings it. Errors: encode()."""
        check_unicode("text", text)
        encoding = self.tokenizer.encode(text, add_special_tokens=True)
        nbytes, read = [], 0
        for _, end in encoding.offsets:
            nbytes.append(len(text[read:end].encode()))
            read = max(read, end)
        return encoding.ids, nbytes

    def tokens(self) -> dict[str, int]:
        """Every token and its id, added ones included."""
        tokens: dict[str, int] = self.tokenizer.get_vocab(with_added_tokens=True)
        return tokens

    def decode(self, ids: Sequence[int]) -> str:
        """The whole text of `ids`, special tokens left out; ArgumentError on an unknown id."""
        size = self.tokenizer.get_vocab_size()
        for token_id in ids:
            if not 0 <= token_id < size:
                raise ArgumentError(f"ids: {token_id} is outside the vocabulary of {size}")
        text: str = self.tokenizer.decode(list(ids), skip_special_tokens=True)
        return text

    def piece(self, token_id: int) -> str:
        """One token alone, for drafts; "" for a special token, U+FFFD inside a code point."""
        if token_id in self._special:
            return ""
        text: str = self.tokenizer.decode([token_id], skip_special_tokens=False)
        return text


class Detokenizer:
    """Ids in, append-only final text out.

    Never emits part of a code point, nor text that may yet turn out to begin a stop string.
    `text` is everything emitted; `stopped` is the stop string that ended it, if one did.
    """

    def __init__(self, codec: TextCodec, stop: Sequence[str] = ()) -> None:
        self._codec = codec
        self._stop = tuple(stop)
        self._stream = DecodeStream(skip_special_tokens=True)
        self._decoded = ""  # all that the ids say so far
        self._ids: list[int] = []
        self.text = ""
        self.stopped: str | None = None

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids read, up to the one that completed a stop string."""
        return tuple(self._ids)

    def push(self, ids: Iterable[int]) -> str:
        """Reads ids and returns the new final text; reads nothing after a stop string."""
        before = len(self.text)
        for token_id in ids:
            if self.stopped is not None:
                break
            self._ids.append(token_id)
            piece = self._stream.step(self._codec.tokenizer, token_id)
            if piece:
                self._decoded += piece
                self._release(final=False)
        return self.text[before:]

    def finish(self) -> str:
        """The end of the text: what was held back, an unfinished code point as U+FFFD."""
        before = len(self.text)
        if self.stopped is None:
            whole: str = self._codec.tokenizer.decode(self._ids, skip_special_tokens=True)
            if whole.startswith(self._decoded):
                self._decoded = whole
            self._release(final=True)
        return self.text[before:]

    def _release(self, *, final: bool) -> None:
        tail = self._decoded[len(self.text) :]
        found = [(at, stop) for stop in self._stop if (at := tail.find(stop)) >= 0]
        if found:
            at, self.stopped = min(found)
            self.text += tail[:at]
        elif final:
            self.text += tail
        else:
            self.text += tail[: len(tail) - self._held(tail)]

    def _held(self, tail: str) -> int:
        """Length of the longest end of `tail` that begins a stop string."""
        longest = max((len(stop) for stop in self._stop), default=1) - 1
        for length in range(min(longest, len(tail)), 0, -1):
            if any(stop.startswith(tail[-length:]) for stop in self._stop):
                return length
        return 0


def check_unicode(name: str, text: str) -> None:
    """ArgumentError, with the position, where `text` holds a lone surrogate (invalid UTF-8)."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ArgumentError(
            f"{name}: is not valid Unicode at character {error.start} "
            f"(lone surrogate U+{ord(text[error.start]):04X}; was it read from invalid UTF-8?)"
        ) from None


def special_tokens(folder: Path) -> dict[str, str]:
    """The tokens that tokenizer_config.json names (`eos_token` …), for chat templates."""
    path = folder / "tokenizer_config.json"
    if not path.is_file():
        return {}
    config = read_json(path, ModelFormatError)
    tokens = {}
    for name in ("bos_token", "eos_token", "pad_token", "unk_token"):
        value = config.get(name)
        if isinstance(value, dict):
            value = value.get("content")
        if isinstance(value, str):
            tokens[name] = value
    return tokens


def _with_plain_tokens(path: Path, tokens: Sequence[str]) -> str:
    """The tokenizer's file, in which `tokens` are not special: encoding stays the same, decoding
    keeps them."""
    file = json.loads(path.read_text(encoding="utf-8"))
    for token in file["added_tokens"]:
        if token["content"] in tokens:
            token["special"] = False
    return json.dumps(file)
