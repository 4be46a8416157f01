"""`chat` and `chat_stream` of whatever turns a prompt into text: a model, a session of it."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .answer import Thinking, ToolChoice, Turn
from .results import ChatEvent, ChatResult

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..generation import GenerationOptions
    from ..model import Model, Prompt
    from ..results import Event, GenerationResult


class Chats:
    """Needs `generate` and `stream`, and the model whose template it is."""

    @property
    def _speaker(self) -> Model:
        raise NotImplementedError

    def generate(self, prompt: Prompt, **options: Unpack[GenerationOptions]) -> GenerationResult:
        """Text for a prompt."""
        raise NotImplementedError

    def stream(
        self, prompt: Prompt, **options: Unpack[GenerationOptions]
    ) -> Generator[Event, None, None]:
        """The same as events."""
        raise NotImplementedError

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
        away. `thinking`: True and False set the template's `enable_thinking`; None and "auto"
        leave the choice to it. Raises ArgumentError naming what is wrong with them, and when the
        model has no template; options and their errors: generate().
        """
        turn = Turn(
            self._speaker, messages, tools=tools, tool_choice=tool_choice, thinking=thinking
        )
        return turn.result(self.generate(turn.ids, **options))

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
        return turn.events(self.stream(turn.ids, **options))
