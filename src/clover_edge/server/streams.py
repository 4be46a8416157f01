"""Answers that end early when their client goes, and server-sent events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TypeVar

from fastapi import Response
from starlette.types import Message, Receive, Scope, Send

from ..chat import ChatDoneEvent
from ..results import DoneEvent
from .errors import ApiError, internal, of_exception, overloaded
from .source import ServedEvent
from .worker import Job

T = TypeVar("T")
Encode = Callable[[ServedEvent], Iterator[bytes]]  # an event as the JSON texts of its chunks
KEEP_ALIVE = b": keep-alive\n\n"

logger = logging.getLogger("clover_edge.server")


class ClientGone(Exception):
    """Nobody waits for the answer any more."""


async def unless_gone(work: Awaitable[T], receive: Receive) -> T:
    """The result of `work`; ClientGone, and `work` cancelled, when its client disconnects."""
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientGone
    finally:
        task.cancel()
        gone.cancel()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def whole(events: AsyncIterator[ServedEvent | None]) -> list[ServedEvent]:
    """Every event of a job, the result last; ApiError where the server has cancelled it."""
    found = [event async for event in events if event is not None]
    if not found or not is_last(found[-1]):
        raise _cancelled()
    return found


def is_last(event: ServedEvent) -> bool:
    """Whether it is the event that has the result."""
    return isinstance(event, (DoneEvent, ChatDoneEvent))


def _cancelled() -> ApiError:
    return overloaded("the server has stopped before the answer was complete", "stopping", 1)


class EventStream(Response):
    """The events of a job as they come, each `data: JSON`, then `data: [DONE]`.

    A failure is an event, too: `data: {"error": …}`, and the last one.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        job: Job,
        first: ServedEvent | None,
        rest: AsyncIterator[ServedEvent | None],
        encode: Encode,
    ) -> None:
        """`first` has been waited for, so that an early error has its proper status."""
        super().__init__()
        # Proxies would otherwise hold events back.
        self.headers.update({"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._job = job
        self._first = first
        self._rest = rest
        self._encode = encode

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends all of it; the job is cancelled when that ends early."""
        try:
            await unless_gone(self._send(send), receive)
        finally:
            self._job.cancel()

    async def _send(self, send: Send) -> None:
        start: Message = {"type": "http.response.start", "status": self.status_code}
        await send({**start, "headers": self.raw_headers})
        async for data in self._chunks():
            await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _chunks(self) -> AsyncIterator[bytes]:
        done = False
        try:
            async for event in self._events():
                if event is None:
                    yield KEEP_ALIVE
                    continue
                for text in self._encode(event):
                    yield b"data: " + text + b"\n\n"
                done = is_last(event)
            if not done:
                raise _cancelled()
            yield b"data: [DONE]\n\n"
        except Exception as error:
            yield b"data: " + told(error).response().body + b"\n\n"

    async def _events(self) -> AsyncIterator[ServedEvent | None]:
        yield self._first
        async for event in self._rest:
            yield event


def told(error: Exception) -> ApiError:
    """What the client is told of an exception; the log is told of the server's own faults."""
    known = of_exception(error)
    if known is None:
        logger.error("a request failed", exc_info=error)
    return known or internal()
