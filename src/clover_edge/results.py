"""What a generation reports on the way, and what it returns."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Union


@dataclass(frozen=True)
class Counters:
    """What a generation cost. Forwards and rows leave the prompt's prefill out."""

    prompt_tokens: int
    cached_tokens: int  # of these, held by the session already and not computed again
    tokens: int  # generated, the stop token included
    blocks: int
    denoise_steps: int  # previews
    forward_passes: int  # previews and commits
    rows: int  # positions computed in those forwards
    tokens_per_forward: float  # tokens / forward_passes
    experts_touched: int  # expert weights read, counted once a layer and forward
    bytes_read: int  # weight bytes that the forwards went through
    drafter_passes: int  # blocks that a drafter drafted: its passes are no forwards
    drafter_bytes_read: int  # its weight bytes
    time_to_first_block: float  # seconds from the call to the first finished block
    prefill_tps: float  # computed prompt tokens a second; 0 where they take no pass of their own
    decode_tps: float  # generated tokens a second, prefill left out
    peak_memory_bytes: int  # of the process so far, mapped weights included


@dataclass(frozen=True)
class TokenLogprob:
    """What the model says of one token of the text, in nats.

    The log-softmax over real tokens (the mask left out) of the logits as they were at the step
    that accepted the token, before penalties, temperature, top-k, top-p and any grammar.
    """

    token_id: int
    logprob: float | None  # None: a grammar forced the token, and no forward saw its place before
    top: tuple[tuple[int, float], ...]  # (token id, log-probability) of the likeliest, best first


@dataclass(frozen=True)
class GenerationResult:
    """The text and token ids generated, why they ended, and the counters.

    `token_ids` hold neither the stop token nor anything after it; with a stop string they
    reach up to the token that completed it, while `text` ends in front of it.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: str  # "stop" | "length" | "cancelled"
    counters: Counters
    logprobs: tuple[TokenLogprob, ...] | None = None  # of each token id, where they are asked for

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**asdict(self), "token_ids": list(self.token_ids)}


@dataclass(frozen=True)
class TextEvent:
    """Text that is final: the texts of all such events concatenated are the result's text.

    `logprobs`, where they are asked for: of the tokens read since the event before.
    """

    text: str
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True)
class DraftEvent:
    """The block as one denoising step leaves it. It may still change; ignore it freely.

    `states` says for each position "masked" (nothing drafted yet), "drafted" (a guess, not
    accepted) or "accepted"; `pieces` is each position's own text, "" for special tokens. Blocks
    that start as random ids draw them anew wherever a step accepts none: what it accepts, a
    later one may give up again.
    """

    block: int
    step: int  # 0: before the first preview
    states: tuple[str, ...]
    pieces: tuple[str, ...]
    token_ids: tuple[int, ...]  # drafts where drafted, the mask token's id (or -1) where masked


@dataclass(frozen=True)
class PrefillEvent:
    """How far a long prompt has been read; short ones have no such event."""

    tokens: int  # read so far, what a session held included
    prompt_tokens: int


@dataclass(frozen=True)
class DoneEvent:
    """The last event of a stream."""

    result: GenerationResult


Event = Union[TextEvent, DraftEvent, PrefillEvent, DoneEvent]  # noqa: UP007 - evaluated on Python 3.10
