"""A tokenizer as llguidance reads it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

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


class Vocabulary:
    """The tokens of one model, `size` ids with padding, which end texts at `stops`."""

    def __init__(self, codec: TextCodec, size: int, stops: Sequence[int]) -> None:
        """Raises ArgumentError where llguidance cannot read the tokenizer."""
        content = json.loads(codec.tokenizer.to_str())
        content |= {"padding": None, "truncation": None}  # would change what it encodes
        try:
            self.tokenizer: llguidance.LLTokenizer = library().LLTokenizer(
                json.dumps(content), n_vocab=size, eos_token=list(stops)
            )
        except ValueError as error:
            raise ArgumentError(
                f"response_format: llguidance cannot read the tokenizer: {error}"
            ) from None
        self.size = size
        self.stops = tuple(stops)
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
