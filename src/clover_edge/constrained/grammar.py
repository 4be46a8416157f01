"""From a response_format to the rule that the core decodes by."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import ArgumentError
from ..text import TextCodec
from .closing import Closer
from .request import ResponseFormat
from .rule import GrammarRule
from .vocabulary import Vocabulary, library, vocabulary_of

if TYPE_CHECKING:
    from llguidance import LLMatcher

# Written as json.dumps writes by default, which models have seen most. Free white space would leave
# nothing forced, and a model that likes it could fill the budget with it.
JSON_STYLE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
_STRICT = {"lenient": False}  # keywords that llguidance does not enforce are errors


class Grammar:
    """A compiled response_format for one vocabulary."""

    def __init__(self, vocabulary: Vocabulary, request: ResponseFormat) -> None:
        """Raises ArgumentError with llguidance's message where it refuses the request."""
        self._vocabulary = vocabulary
        llguidance = library()
        try:
            source = source_of(request)
        except ValueError as error:
            raise ArgumentError(f"response_format: {error}") from None
        limits = llguidance.LLParserLimits(verbose_errors=False)
        failed, messages = llguidance.LLMatcher.validate_grammar_with_warnings(
            source, vocabulary.tokenizer, limits=limits
        )
        if failed or messages:
            raise ArgumentError(f"response_format: {'; '.join(messages)}")
        self._start: LLMatcher = llguidance.LLMatcher(
            vocabulary.tokenizer, source, log_level=0, limits=limits
        )
        if self._start.is_error():
            raise ArgumentError(f"response_format: {self._start.get_error()}")
        self._closer = Closer(vocabulary, literals_of(source))
        self.shortest = self._closer.shortest(self._start)

    def rule(self) -> GrammarRule:
        """A rule for one text, from its beginning."""
        return GrammarRule(self._vocabulary, self._start.deep_copy(), self._closer, self.shortest)


def source_of(request: ResponseFormat) -> str:
    """The request in llguidance's own words."""
    if request.kind == "llguidance":
        return request.source
    matcher = library().LLMatcher
    if request.kind == "json_schema":
        text: str = matcher.grammar_from_json_schema(
            request.source, defaults=JSON_STYLE, overrides=_STRICT
        )
        return text
    if request.kind == "regex":
        text = matcher.grammar_from_regex(request.source)
        return text
    return json.dumps({"grammars": [{"name": "lark", "lark_grammar": request.source}]})


def literals_of(source: str) -> tuple[str, ...]:
    """The texts that Lark rules spell out: one of them may be the only way out of free text."""
    rules = [each.get("lark_grammar") or "" for each in json.loads(source)["grammars"]]
    found = (json.loads(text) for text in _LITERAL.findall("\n".join(rules)))
    return tuple(dict.fromkeys(text for text in found if len(text) > 1))


_LITERAL = re.compile(r'"(?:[^"\\\n]|\\["\\/bfnrtu])*"')
_KEPT = 32  # compiled grammars of one vocabulary


def grammar_of(
    request: ResponseFormat, codec: TextCodec, vocab_size: int, stops: Sequence[int]
) -> Grammar:
    """The grammar of a request for a model; recent ones are kept.

    Raises ArgumentError where llguidance is missing or refuses the request, or nothing ends a text.
    """
    if not stops:
        raise ArgumentError("response_format: the model's generation config names no eos_token_id")
    vocabulary = vocabulary_of(codec, vocab_size, stops)
    kept = vocabulary.grammars
    grammar = kept.pop(request, None) or Grammar(vocabulary, request)
    kept[request] = grammar
    for old in list(kept)[:-_KEPT]:
        kept.pop(old, None)
    return grammar
