"""What the routes share: the model, its worker, limits and figures."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any

from fastapi import Request

from ..model import Model
from ..results import Counters
from ..sessions import PrefixStore
from .errors import ApiError
from .metrics import Metrics
from .requests import ChatRequest, CompletionRequest
from .settings import Settings
from .source import Source, Start
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
        store = PrefixStore(model, settings.prefix_bytes)
        self._source = Source(model, store)
        self._defaults = {k: v for k, v in settings.options.items() if k != "max_new_tokens"}
        wanted = (settings.options.get("max_new_tokens"), settings.max_tokens)
        self._new_tokens = min((n for n in wanted if n is not None), default=None)
        self.metrics = Metrics(self.worker, store)

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
        options = self._options(request)
        messages = [message.model_dump(exclude_none=True) for message in request.messages]
        return await self._submit(
            lambda: self._source.chat(messages, options, self._new_tokens, **request.choices()),
            progress=request.progress,
        )

    async def complete(self, request: CompletionRequest) -> Job:
        """The job of a plain completion, in the queue."""
        options = self._options(request)
        prompt = request.plain_prompt()
        return await self._submit(
            lambda: self._source.complete(prompt, options, self._new_tokens),
            progress=request.progress,
        )

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
        options = request.options(self._defaults)
        if "seed" not in options:
            # Answers to the same question differ where they are sampled, unless a seed is given.
            options["seed"] = secrets.randbits(63)
        return options

    async def _submit(self, prepare: Callable[[], Start], *, progress: bool) -> Job:
        # Templates, tokenizer and checks of arguments take their time with long prompts.
        job = Job(await asyncio.to_thread(prepare), progress=progress)
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
        "cached": counters.cached_tokens,
        "tokens": counters.tokens,
        "forwards": counters.forward_passes,
        "finish": finish,
    }
