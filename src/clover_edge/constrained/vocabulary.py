"""A tokenizer as llguidance reads it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from tokenizers import Tokenizer

from ..errors import ArgumentError
from ..text import TextCodec

if TYPE_CHECKING:
    import llguidance

    from .grammar import Grammar
    from .request import ResponseFormat


def library() -> Any:
    """The llguidance package; ArgumentError naming the extra where it is not installed."""
    try:
        import llguidance
        import llguidance.numpy
    except ImportError:
        raise ArgumentError(
            "response_format: needs the llguidance package (pip install 'clover-edge[grammar]')"
        ) from None
    return llguidance


class _Tokens:
    """A tokenizer in the words of llguidance's TokenizerWrapper.

    Read from a tokenizer.json, llguidance takes every added token of the form <...> for a special
    one, which no text can hold. `</tool_call>` is none, unless the tokenizer says so.
    """

    bos_token_id = None

    def __init__(self, codec: TextCodec, size: int, stops: Sequence[int]) -> None:
        content = json.loads(codec.tokenizer.to_str())
        content |= {"padding": None, "truncation": None}  # would change what it encodes
        text = json.dumps(content)
        self._tokenizer = Tokenizer.from_str(text)
        self._tokenizer.encode_special_tokens = True  # the text of a special token is no token
        read = library().LLTokenizer(text, n_vocab=size, eos_token=list(stops))
        self.eos_token_id = stops[0]
        self.tokens: list[bytes] = [read.decode_bytes([token]) for token in range(size)]
        known = set(codec.tokens().values())
        self.special_token_ids = sorted(
            codec.special_ids | {token for token in range(size) if token not in known}
        )

    def __call__(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids


class Vocabulary:
    """The tokens of one model, `size` ids with padding, which end texts at `stops`."""

    def __init__(self, codec: TextCodec, size: int, stops: Sequence[int]) -> None:
        """Raises ArgumentError where llguidance cannot read the tokenizer."""
        try:
            tokens = _Tokens(codec, size, stops)
            self.tokenizer: llguidance.LLTokenizer = library().LLTokenizer(
                library().TokenizerWrapper(tokens), n_vocab=size, eos_token=list(stops)
            )
        except ValueError as error:
            raise ArgumentError(
                f"response_format: llguidance cannot read the tokenizer: {error}"
            ) from None
        self.size = size
        self.stops = tuple(stops)
        self.special = tuple(token for token in sorted(codec.special_ids) if token not in stops)
        self.grammars: dict[ResponseFormat, Grammar] = {}  # compiled lately

    @property
    def words(self) -> int:
        """32-bit words of a mask of its ids."""
        return (self.size + 31) // 32

    @cached_property
    def single_bytes(self) -> dict[int, int]:
        """Bytes that are tokens by themselves: {byte: id}."""
        found = {}
        for byte in range(256):
            ids = self.tokenizer.tokenize_bytes(bytes([byte]))
            if len(ids) == 1 and self.tokenizer.decode_bytes(ids) == bytes([byte]):
                found[byte] = ids[0]
        return found


_known: WeakKeyDictionary[TextCodec, dict[Any, Vocabulary]] = WeakKeyDictionary()


def vocabulary_of(codec: TextCodec, size: int, stops: Sequence[int]) -> Vocabulary:
    """The vocabulary of a tokenizer, made once: a large one takes a second."""
    known = _known.setdefault(codec, {})
    key = (size, tuple(stops))
    if key not in known:
        known[key] = Vocabulary(codec, size, stops)
    return known[key]
