"""The state of `clover-edge chat`: messages, tools and what the answers cost."""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..chat import ChatEvent, ChatResult, Thinking, Turn, checked_messages
from ..errors import ArgumentError, SavedSessionError
from ..results import Counters

if TYPE_CHECKING:
    from ..model import Model

Message = dict[str, Any]


class Conversation:
    """The messages so far. What is asked joins them only when it is answered."""

    def __init__(
        self,
        model: Model,
        system: str | None,
        tools: list[dict[str, Any]],
        thinking: Thinking,
        options: dict[str, Any],
    ) -> None:
        """`options`: of the generation."""
        self._model = model
        self._session = model.session()
        self._thinking = thinking
        self._first = [] if system is None else [{"role": "system", "content": system}]
        self._options = options
        self.tools = tools
        self.messages: list[Message] = list(self._first)
        self.counters: list[Counters] = []

    @property
    def context(self) -> int:
        """Tokens that prompt and answer may take together."""
        return int(self._model.spec["max_positions"])

    def ask(self, asked: list[Message]) -> Generator[ChatEvent, None, None]:
        """The events of the answer to more messages. Errors: Model.chat_stream."""
        messages = [*self.messages, *asked]
        turn = Turn(self._model, messages, tools=self.tools, thinking=self._thinking)
        return turn.events(self._session.stream(turn.ids, **turn.options(self._options)))

    def answered(self, asked: list[Message], result: ChatResult) -> None:
        """Keeps a question and its answer."""
        self.messages += [*asked, result.message()]
        self.counters.append(result.counters)

    def interrupted(self, asked: list[Message], text: str) -> None:
        """Keeps what had been said of an answer; without anything said, not the question either."""
        if text:
            self.messages += [*asked, {"role": "assistant", "content": text}]

    def reset(self) -> None:
        """Forgets all but the system message."""
        self.messages, self.counters = list(self._first), []
        self._session = self._model.session()

    def save(self, path: Path) -> None:
        """Writes the messages as JSON, and beside them what the model has computed of them, so
        that going on costs no second reading. The file is whole or not there."""
        data = json.dumps({"messages": self.messages}, ensure_ascii=False, indent=1) + "\n"
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            temporary.write_text(data, encoding="utf-8")
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        self._session.save(_state_of(path))

    def load(self, path: Path) -> str:
        """Takes the messages of a file that `save` wrote, and what was computed of them; returns
        why not, if it is not for this model. ArgumentError naming what is wrong with the file."""
        try:
            file = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise ArgumentError(f"{path}: is no JSON: {error}") from None
        if not isinstance(file, dict) or not isinstance(file.get("messages"), list):
            raise ArgumentError(f'{path}: has no list of "messages"')
        if file["messages"]:
            try:
                checked_messages(file["messages"])
            except ArgumentError as error:
                raise ArgumentError(f"{path}: {error}") from None
        reason, session = "", self._model.session()
        if _state_of(path).is_file():
            try:
                session = self._model.load_session(_state_of(path))
            except SavedSessionError as error:
                reason = str(error)
        self.messages, self.counters, self._session = list(file["messages"]), [], session
        return reason


def _state_of(path: Path) -> Path:
    return path.with_name(path.name + ".session")
