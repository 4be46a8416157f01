"""What the routes share: the model, its worker, limits and figures."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Generator, Mapping
from typing import Any

from fastapi import Request

from ..model import Model
from ..results import Counters, Event
from .errors import ApiError
from .metrics import Metrics
from .requests import ChatRequest, CompletionRequest
from .settings import Settings
from .worker import Job, Worker


class Service:
    """One model being served. `close` ends its worker."""

    def __init__(self, model: Model, settings: Settings) -> None:
        """The model is the caller's to close, after the service."""
        self.model = model
        self.settings = settings
        self.name = settings.name or model.path.resolve().name
        self.created = int(time.time())
        self.worker = Worker(settings.queue)
        self.metrics = Metrics(lambda: self.worker.waiting, lambda: self.worker.running)

    def check_model(self, name: str | None) -> None:
        """ApiError 404 for a model that is not the served one."""
        if name is not None and name != self.name:
            raise ApiError(
                404,
                f"the model {name!r} does not exist; this server has {self.name!r}",
                param="model",
                code="model_not_found",
            )

    async def chat(self, request: ChatRequest) -> Job:
        """The job of a chat completion, in the queue."""
        self._check_tools(request)
        messages = [message.plain() for message in request.messages]
        tools = None if request.tools is None else [tool.model_dump() for tool in request.tools]
        options = self._options(request)
        thinking = request.thinking()

        def prepare() -> Generator[Event, None, None]:
            ids = self.model.chat_prompt(messages, tools=tools, thinking=thinking)
            return self.model.stream(ids, **options)

        return await self._submit(prepare, drafts=request.progress)

    async def complete(self, request: CompletionRequest) -> Job:
        """The job of a plain completion, in the queue."""
        options = self._options(request)
        prompt = request.plain_prompt()
        return await self._submit(
            lambda: self.model.stream(prompt, **options), drafts=request.progress
        )

    def _check_tools(self, request: ChatRequest) -> None:
        if request.tool_choice not in (None, "none", "auto"):
            raise _unsupported("tool_choice", "calls cannot be forced")
        if request.response_format is not None and request.response_format.type != "text":
            raise _unsupported("response_format", "text only")

    def _options(self, request: ChatRequest | CompletionRequest) -> dict[str, Any]:
        self.check_model(request.model)
        limit, asked = self.settings.max_tokens, request.max_new_tokens()
        if limit is not None and asked is not None and asked > limit:
            raise ApiError(
                400,
                f"max_tokens: {asked} is more than this server's limit of {limit}",
                param="max_tokens",
                code="invalid_value",
            )
        options = request.options(self.settings.options)
        if limit is not None:
            options.setdefault("max_new_tokens", limit)
        if "seed" not in options:
            # Answers to the same question differ where they are sampled, unless a seed is given.
            options["seed"] = secrets.randbits(63)
        return options

    async def _submit(self, prepare: Any, *, drafts: bool) -> Job:
        # Templates, tokenizer and checks of arguments take their time with long prompts.
        events = await asyncio.to_thread(prepare)
        job = Job(lambda: events, drafts=drafts)
        self.worker.submit(job)
        return job

    def generated(self, request: Request, job: Job, counters: Counters, finish: str) -> None:
        """A generation is complete: figures, and what the log says of it."""
        self.metrics.generated(counters, job.waited)
        note: dict[str, Any] = request.scope.setdefault("clover", {})
        note |= log_facts(counters, job.waited, finish)


def log_facts(counters: Counters, waited: float, finish: str) -> Mapping[str, Any]:
    """What a line of the log says of a generation."""
    return {
        "waited": f"{waited:.3f}s",
        "prompt": counters.prompt_tokens,
        "tokens": counters.tokens,
        "forwards": counters.forward_passes,
        "finish": finish,
    }


def _unsupported(param: str, reason: str) -> ApiError:
    message = f"{param}: {reason}"
    return ApiError(400, message, param=param, code="unsupported_parameter")
