"""`chat` and `chat_stream` of whatever turns a prompt into text: a model, a session of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .answer import Thinking, ToolChoice, Turn
from .results import ChatEvent, ChatResult

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..generation import GenerationOptions
    from ..model import Model, Prompt
    from ..results import Event, GenerationResult


class Chats(ABC):
    """Has `generate` and `stream`, and the model whose template it is."""

    @property
    @abstractmethod
    def _speaker(self) -> Model: ...

    @abstractmethod
    def generate(self, prompt: Prompt, **options: Unpack[GenerationOptions]) -> GenerationResult:
        """Text for a prompt."""

    @abstractmethod
    def stream(
        self, prompt: Prompt, **options: Unpack[GenerationOptions]
    ) -> Generator[Event, None, None]:
        """The same as events."""

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        tool_choice: ToolChoice = "auto",
        thinking: Thinking = None,
        **options: Unpack[GenerationOptions],
    ) -> ChatResult:
        """The assistant's next message, through the checkpoint's chat template, taken apart.

        `messages` and `tools`: as OpenAI's API has them. `tool_choice`: "none" takes the tools
        away; "required" and {"type": "function", "function": {"name": ...}} have the answer consist
        of calls, which needs the extra `grammar`. `thinking`: True and False set the template's
        `enable_thinking`; None and "auto" leave the choice to it. Raises ArgumentError naming what
        is wrong with them, and when the model has no template; options and their errors:
        generate().
        """
        turn = Turn(
            self._speaker, messages, tools=tools, tool_choice=tool_choice, thinking=thinking
        )
        return turn.result(self.generate(turn.ids, **turn.options(options)))

    def chat_stream(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        tool_choice: ToolChoice = "auto",
        thinking: Thinking = None,
        **options: Unpack[GenerationOptions],
    ) -> Generator[ChatEvent, None, None]:
        """The same as events: ThinkingEvent and TextEvent (final text), ToolCallEvent (whole
        calls), DraftEvent, then ChatDoneEvent.

        Checks its arguments at once. Closing or dropping the iterator cancels the generation.
        """
        turn = Turn(
            self._speaker, messages, tools=tools, tool_choice=tool_choice, thinking=thinking
        )
        return turn.events(self.stream(turn.ids, **turn.options(options)))
