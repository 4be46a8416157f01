"""What answers look like: OpenAI's objects, and `clover` where a request has asked for it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ..results import Counters, DraftEvent, PrefillEvent

FinishReason = Literal["stop", "length", "tool_calls"]


class ErrorBody(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorEnvelope(BaseModel):
    """Every error has this form."""

    error: ErrorBody


class PromptDetails(BaseModel):
    cached_tokens: int


class Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails

    @classmethod
    def of(cls, counters: Counters) -> Usage:
        """What a generation has used."""
        prompt, tokens = counters.prompt_tokens, counters.tokens
        cached = PromptDetails(cached_tokens=counters.cached_tokens)
        return cls(
            prompt_tokens=prompt,
            completion_tokens=tokens,
            total_tokens=prompt + tokens,
            prompt_tokens_details=cached,
        )


class Cost(BaseModel):
    """What a generation took, in the names of clover_edge.Counters; times are in seconds."""

    blocks: int
    denoise_steps: int
    forward_passes: int
    tokens_per_forward: float
    time_to_first_block: float
    prefill_tps: float
    decode_tps: float

    @classmethod
    def of(cls, counters: Counters) -> Cost:
        """From the counters of a result."""
        return cls(**{name: getattr(counters, name) for name in cls.model_fields})


class Progress(BaseModel):
    """A block as one denoising step leaves it: clover_edge.DraftEvent without its ids."""

    block: int
    step: int
    states: tuple[str, ...] = Field(description="each masked, drafted or accepted")
    pieces: tuple[str, ...]

    @classmethod
    def of(cls, draft: DraftEvent) -> Progress:
        """From the event."""
        return cls(block=draft.block, step=draft.step, states=draft.states, pieces=draft.pieces)


class Reading(BaseModel):
    """How far a long prompt has been read: clover_edge.PrefillEvent."""

    tokens: int
    prompt_tokens: int

    @classmethod
    def of(cls, event: PrefillEvent) -> Reading:
        """From the event."""
        return cls(tokens=event.tokens, prompt_tokens=event.prompt_tokens)


class CalledFunction(BaseModel):
    name: str
    arguments: str


class ToolCall(BaseModel):
    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class ToolCallDelta(ToolCall):
    index: int


class AssistantMessage(BaseModel):
    role: Literal["assistant"]
    content: str | None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None
    refusal: None = None


class Delta(BaseModel):
    role: Literal["assistant"] | None = None
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCallDelta] | None = None


class TopLogprob(BaseModel):
    token: str
    logprob: float
    bytes: list[int] | None


class ContentLogprob(TopLogprob):
    top_logprobs: list[TopLogprob]


class ChatLogprobs(BaseModel):
    """Of every token of the answer, thinking and calls included."""

    content: list[ContentLogprob]


class CompletionLogprobs(BaseModel):
    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")

    id: str
    object: str
    created: int
    model: str
    choices: list[Any]
    usage: Usage | None = None
    clover: Cost | Progress | Reading | None = None

    def json_bytes(self) -> bytes:
        """What was set, as JSON."""
        return self.model_dump_json(exclude_unset=True).encode()


class ChatChoice(BaseModel):
    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason


class ChatCompletion(_Answer):
    """The answer of /v1/chat/completions."""

    object: Literal["chat.completion"]
    choices: list[ChatChoice]


class ChatChunkChoice(BaseModel):
    index: int
    delta: Delta
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason | None


class ChatChunk(_Answer):
    """One event of its stream."""

    object: Literal["chat.completion.chunk"]
    choices: list[ChatChunkChoice]


class CompletionChoice(BaseModel):
    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: FinishReason | None


class Completion(_Answer):
    """The answer of /v1/completions, and each event of its stream."""

    object: Literal["text_completion"]
    choices: list[CompletionChoice]


class ModelCard(BaseModel):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    meta: dict[str, Any]


class ModelList(BaseModel):
    object: Literal["list"]
    data: list[ModelCard]


class Health(BaseModel):
    status: Literal["ok", "stopping"]
    model: str
    running: int
    waiting: int
    queue: int
