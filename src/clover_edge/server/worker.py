"""One thread that generates, and the bounded queue of jobs in front of it."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncIterator

from ..results import DraftEvent, PrefillEvent
from .errors import overloaded, timed_out
from .source import ServedEvent, Start

DRAFTS_KEPT = 64  # of a client that reads slowly; beyond, a new draft replaces the last one
RECENT = 16  # jobs whose mean duration says when to try again
LONGEST_RETRY = 60.0  # seconds

logger = logging.getLogger("clover_edge.server")


class Job:
    """One generation: started by the worker's thread, read by the event loop that made it."""

    def __init__(self, start: Start, *, progress: bool) -> None:
        """`start` gives the events, whose last one is the result. `progress`: whether those are
        wanted that are neither text nor result."""
        self._start = start
        self._progress = progress
        self._loop = asyncio.get_running_loop()
        self._items: deque[ServedEvent | Exception | None] = deque()  # None: the end
        self._wake = asyncio.Event()
        self._cancelled = threading.Event()
        self.submitted = time.monotonic()
        self.started: float | None = None  # when the worker took it
        self.ended: float | None = None

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for it any more."""
        return self._cancelled.is_set()

    def cancel(self) -> None:
        """Ends the generation at its next event; a job that waits is passed over."""
        self._cancelled.set()

    @property
    def waited(self) -> float:
        """Seconds in the queue."""
        return (self.started or self.ended or time.monotonic()) - self.submitted

    async def events(self, *, pause: float, limit: float) -> AsyncIterator[ServedEvent | None]:
        """The events; None where nothing has happened for `pause` seconds.

        Raises what the generation raised, and ApiError once `limit` seconds have passed since
        the job was submitted. Leaving the loop early does not cancel the job; cancel() does.
        """
        deadline = self.submitted + limit
        while True:
            left = deadline - time.monotonic()
            if not self._items:
                try:
                    await asyncio.wait_for(self._wake.wait(), min(pause, max(left, 0.0)))
                except asyncio.TimeoutError:
                    if pause < left:
                        yield None
                        continue
                    self.cancel()
                    if self.started is None:
                        message = f"no answer was begun within the server's limit of {limit:g} s"
                        raise overloaded(message, "queue_time", LONGEST_RETRY) from None
                    raise timed_out(limit) from None
            item = self._items.popleft()
            if not self._items:
                self._wake.clear()
            if item is None:
                return
            if isinstance(item, Exception):
                raise item
            yield item

    def run(self) -> None:
        """The generation, in the worker's thread."""
        self.started = time.monotonic()
        try:
            events = self._start()
            try:
                for event in events:
                    if self.cancelled:
                        break
                    if self._progress or not isinstance(event, (DraftEvent, PrefillEvent)):
                        self._deliver(event)
            finally:
                events.close()
        except Exception as error:
            self._deliver(error)
        finally:
            self.ended = time.monotonic()
            self._deliver(None)

    def refuse(self, error: Exception) -> None:
        """Ends a job that has not begun."""
        self.ended = time.monotonic()
        self._deliver(error)

    def _deliver(self, item: ServedEvent | Exception | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._put, item)
        except RuntimeError:  # the loop is closed: nobody reads any more
            self.cancel()

    def _put(self, item: ServedEvent | Exception | None) -> None:
        crowded = len(self._items) >= DRAFTS_KEPT and isinstance(item, DraftEvent)
        if crowded and isinstance(self._items[-1], DraftEvent):
            self._items[-1] = item
        else:
            self._items.append(item)
        self._wake.set()


class Worker:
    """Runs jobs one after the other, in the order in which they came."""

    def __init__(self, limit: int) -> None:
        """`limit`: jobs that may wait behind the running one."""
        self._limit = limit
        self._waiting: deque[Job] = deque()
        self._running: Job | None = None
        self._stopping = False
        self._changed = threading.Condition()
        self._durations: deque[float] = deque(maxlen=RECENT)
        self._thread = threading.Thread(target=self._work, name="clover-edge-worker", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Jobs in the queue that somebody still wants."""
        with self._changed:
            return self._count()

    @property
    def running(self) -> bool:
        """Whether a generation is under way."""
        return self._running is not None

    @property
    def alive(self) -> bool:
        """Whether new jobs are taken."""
        return self._thread.is_alive() and not self._stopping

    def submit(self, job: Job) -> None:
        """Takes a job; ApiError 429 when the queue is full, 503 when the server is stopping."""
        with self._changed:
            if self._stopping:
                raise _stopping()
            if self._count() + (self._running is not None) > self._limit:
                raise overloaded(
                    f"{self._limit} requests are waiting already, try again later",
                    "queue_full",
                    self._wait_expected(),
                    429,
                )
            self._waiting.append(job)
            self._changed.notify_all()

    def stop(self) -> None:
        """Refuses what waits and what comes; what is running goes on."""
        with self._changed:
            self._stopping = True
            waiting, self._waiting = self._waiting, deque()
            self._changed.notify_all()
        for job in waiting:
            job.refuse(_stopping())

    def join(self, limit: float) -> bool:
        """After stop(): waits `limit` seconds for the running job, then cancels it and waits for
        its end. Returns whether it could finish."""
        self._thread.join(limit)
        if not self._thread.is_alive():
            return True
        self.cancel()
        self._thread.join()
        return False

    def cancel(self) -> None:
        """Cancels what is running."""
        if (running := self._running) is not None:
            running.cancel()

    def _count(self) -> int:
        self._waiting = deque(job for job in self._waiting if not job.cancelled)
        return len(self._waiting)

    def _wait_expected(self) -> float:
        mean = sum(self._durations) / len(self._durations) if self._durations else 1.0
        return min(mean * (self._limit + 1) / 2, LONGEST_RETRY)

    def _take(self) -> Job | None:
        with self._changed:
            self._running = None
            while not self._waiting and not self._stopping:
                self._changed.wait()
            self._running = self._waiting.popleft() if self._waiting else None
            return self._running

    def _work(self) -> None:
        while (job := self._take()) is not None:
            if job.cancelled:
                continue
            job.run()
            if job.started is not None and job.ended is not None:
                self._durations.append(job.ended - job.started)


def _stopping() -> Exception:
    return overloaded("the server is stopping", "stopping", LONGEST_RETRY)
