"""Log-probabilities as the two interfaces have them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..results import TokenLogprob
from ..text import TextCodec
from .responses import ChatLogprobs, CompletionLogprobs, ContentLogprob, TopLogprob

LEAST = -9999.0  # JSON has no infinity; OpenAI's word for a token that cannot be
CUT = "\ufffd"  # in the text of a token that is part of a code point


def chat_logprobs(codec: TextCodec, tokens: Iterable[TokenLogprob]) -> ChatLogprobs:
    """With each token's own text; its bytes where it holds whole characters."""
    content = []
    for token in tokens:
        top = [_named(codec, *pair) for pair in token.top]
        own = _named(codec, token.token_id, token.logprob)
        content.append(ContentLogprob(**own.model_dump(), top_logprobs=top))
    return ChatLogprobs(content=content)


def completion_logprobs(
    codec: TextCodec, tokens: Sequence[TokenLogprob], offset: int
) -> CompletionLogprobs:
    """`offset`: characters of the text in front of these tokens."""
    texts = [codec.piece(token.token_id) for token in tokens]
    offsets = [offset + sum(map(len, texts[:n])) for n in range(len(texts))]
    return CompletionLogprobs(
        tokens=texts,
        token_logprobs=[_finite(token.logprob) for token in tokens],
        top_logprobs=[
            {codec.piece(token_id): _finite(value) for token_id, value in token.top}
            for token in tokens
        ],
        text_offset=offsets,
    )


def _named(codec: TextCodec, token_id: int, logprob: float | None) -> TopLogprob:
    text = codec.piece(token_id)
    whole = None if CUT in text else list(text.encode())
    return TopLogprob(token=text, logprob=_finite(logprob), bytes=whole)


def _finite(logprob: float | None) -> float:
    if logprob is None:  # a grammar left nothing else
        return 0.0
    return max(logprob, LEAST)
