"""What requests may say. Unknown fields are accepted; known ones that this server does not honour
are refused, never ignored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model

from ..generation import DENOISING, GenerationOptions

# Why a field of OpenAI's (or of a usual extension of it) is refused, in the words of the error.
REFUSED = {
    "n": "one answer a request (n = 1)",
    "best_of": "one answer a request (best_of = 1)",
    "logit_bias": "logit_bias is not supported",
    "modalities": "text only",
    "audio": "text only",
    "functions": "use tools",
    "function_call": "use tool_choice",
    "prediction": "predicted outputs are not supported",
    "web_search_options": "the server searches nothing",
    "parallel_tool_calls": "calls cannot be limited to one",
    "min_p": "min_p is not supported",
    "echo": "the prompt is not repeated",
    "suffix": "text cannot be inserted",
}

Text = Annotated[str, Field(min_length=1)]
TokenIds = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
Stops = Annotated[list[Text], Field(max_length=16)]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True)  # "1" is no number


class TextPart(_Strict):
    """A part of a message's content; other kinds are refused."""

    type: Literal["text"]
    text: str


class CalledFunction(_Strict):
    name: Text
    arguments: str | dict[str, Any]


class Call(_Strict):
    id: str = ""
    type: Literal["function"] = "function"
    function: CalledFunction


class Message(_Strict):
    """One message of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart] | None = None
    name: str | None = None
    tool_calls: list[Call] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None  # what an assistant thought


class Function(_Strict):
    name: Text
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(_Strict):
    type: Literal["function"]
    function: Function


class NamedFunction(_Strict):
    name: Text


class NamedTool(_Strict):
    type: Literal["function"]
    function: NamedFunction


class JsonSchema(_Strict):
    name: Text
    description: str | None = None
    json_schema: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None


class PlainFormat(_Strict):
    type: Literal["text", "json_object"]


class SchemaFormat(_Strict):
    type: Literal["json_schema"]
    json_schema: JsonSchema


class RegexFormat(_Strict):
    type: Literal["regex"]
    regex: Text


class LarkFormat(_Strict):
    type: Literal["lark"]
    grammar: Text


class StreamOptions(_Strict):
    include_usage: bool | None = None


class TemplateArguments(_Strict):
    """The only variable of chat templates that requests set."""

    enable_thinking: bool | None = None


def _denoising_fields() -> dict[str, Any]:
    hints = get_type_hints(GenerationOptions)
    return {name: (hints[name], None) for name in (*DENOISING, "mode", "quality")}


class _CloverOptions(BaseModel):
    """What OpenAI's interface has no words for; a generation option that is not among
    GenerationOptions' own is refused."""

    model_config = ConfigDict(strict=True, extra="forbid")

    progress: bool = Field(False, description="chunks of a stream show blocks as they denoise")
    thinking: bool | None = Field(None, description="whether the model thinks before it answers")


CloverOptions: type[_CloverOptions] = create_model(
    "CloverOptions", __base__=_CloverOptions, **_denoising_fields()
)


class _Request(BaseModel):
    """What both kinds of completion take."""

    model_config = ConfigDict(strict=True)

    model: str | None = Field(None, description="the served model's id; left out, the same")
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    max_tokens: int | None = Field(None, ge=1)
    temperature: float | None = Field(None, ge=0, le=100)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=0, lt=2**31)
    seed: int | None = Field(None, ge=0, lt=2**63)
    stop: Text | Stops | None = None
    presence_penalty: float | None = Field(None, ge=-100, le=100)
    frequency_penalty: float | None = Field(None, ge=-100, le=100)
    repetition_penalty: float | None = Field(None, gt=0, le=100)
    response_format: PlainFormat | SchemaFormat | RegexFormat | LarkFormat | None = None
    clover: CloverOptions | None = None  # type: ignore[valid-type]

    n: Literal[1] | None = Field(1, description=REFUSED["n"])
    logit_bias: Annotated[dict[str, Any], Field(max_length=0)] | None = None
    min_p: Literal[0] | None = None

    def options(self, defaults: Mapping[str, Any]) -> dict[str, Any]:
        """Generation options, the request's above the server's."""
        given = {name: getattr(self, name) for name in _SHARED}
        given |= {"max_new_tokens": self.max_new_tokens(), **self.logprobs_options()}
        if self.response_format is not None and self.response_format.type != "text":
            form = self.response_format.model_dump(by_alias=True, exclude_none=True)
            given["response_format"] = form
        if self.clover is not None:
            given |= self.clover.model_dump(exclude={"progress", "thinking"})
        return {**defaults, **{name: value for name, value in given.items() if value is not None}}

    def max_new_tokens(self) -> int | None:
        """Tokens that are asked for."""
        return self.max_tokens

    def logprobs_options(self) -> dict[str, Any]:
        """What is asked for of log-probabilities."""
        return {}

    @property
    def progress(self) -> bool:
        """Whether the stream shows blocks as they denoise."""
        return self.clover is not None and self.clover.progress

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with its usage."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)


_SHARED = (
    "temperature",
    "top_p",
    "top_k",
    "seed",
    "stop",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
)


class ChatRequest(_Request):
    """The body of /v1/chat/completions."""

    messages: list[Message] = Field(min_length=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    tools: list[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    chat_template_kwargs: TemplateArguments | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)

    parallel_tool_calls: Literal[True] | None = None
    modalities: list[Literal["text"]] | None = None
    audio: None = None
    functions: Annotated[list[Any], Field(max_length=0)] | None = None
    function_call: Literal["none"] | None = None
    prediction: None = None
    web_search_options: None = None

    def max_new_tokens(self) -> int | None:
        """Tokens that are asked for, by the newer of the two names first."""
        return self.max_completion_tokens or self.max_tokens

    def logprobs_options(self) -> dict[str, Any]:
        """What is asked for of log-probabilities."""
        return {"logprobs": self.logprobs, "top_logprobs": self.top_logprobs}

    def choices(self) -> dict[str, Any]:
        """Tools and thinking, as Model.chat takes them."""
        choice: Any = self.tool_choice or "auto"
        if isinstance(choice, NamedTool):
            choice = choice.model_dump()
        return {
            "tools": [tool.model_dump(exclude_none=True) for tool in self.tools or ()],
            "tool_choice": choice.model_dump()
            if isinstance(choice, NamedTool)
            else choice or "auto",
            "thinking": self.thinking(),
        }

    def thinking(self) -> bool | None:
        """Whether the model thinks first; None: as its template does by itself."""
        if self.clover is not None and self.clover.thinking is not None:
            return self.clover.thinking
        if self.chat_template_kwargs is not None:
            return self.chat_template_kwargs.enable_thinking
        return None if self.reasoning_effort is None else self.reasoning_effort != "none"


class CompletionRequest(_Request):
    """The body of /v1/completions."""

    prompt: (
        str
        | TokenIds
        | Annotated[list[str], Field(min_length=1, max_length=1)]
        | Annotated[list[TokenIds], Field(min_length=1, max_length=1)]
    )

    logprobs: int | None = Field(None, ge=0, le=5)

    best_of: Literal[1] | None = None
    echo: Literal[False] | None = None
    suffix: Literal[""] | None = None

    def logprobs_options(self) -> dict[str, Any]:
        """What is asked for of log-probabilities: tokens beside each one."""
        if self.logprobs is None:
            return {}
        return {"logprobs": True, "top_logprobs": self.logprobs}

    def plain_prompt(self) -> str | list[int]:
        """The one prompt, as Model.generate takes it."""
        prompt: Any = self.prompt
        if isinstance(prompt, list) and not isinstance(prompt[0], int):
            prompt = prompt[0]
        return prompt  # type: ignore[no-any-return]
