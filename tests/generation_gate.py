"""Generations that wait, behind their first event, until a test lets them go on."""

from __future__ import annotations

import threading

import pytest

from clover_edge.server import service
from clover_edge.server.source import Events, Start
from clover_edge.server.worker import Job

PATIENCE = 120.0  # seconds that a test waits for something that must happen


class Gate:
    """`begun` counts generations that have started, `ended` those that were closed or done."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._passes = threading.Semaphore(0)
        self._changed = threading.Condition()
        self.begun = self.ended = 0

        def gated_job(start: Start, *, progress: bool) -> Job:
            return Job(lambda: self._gated(start), progress=progress)

        monkeypatch.setattr(service, "Job", gated_job)

    def _gated(self, start: Start) -> Events:
        events = start()
        self._count("begun")
        try:
            yield next(events)
            assert self._passes.acquire(timeout=PATIENCE), "the test never opened the gate"
            yield from events
        finally:
            events.close()
            self._count("ended")

    def open(self, count: int = 1) -> None:
        """Lets so many generations go on, one after the other."""
        self._passes.release(count)

    def until(self, *, begun: int = 0, ended: int = 0) -> None:
        """Waits until so many have begun and ended."""
        with self._changed:
            reached = self._changed.wait_for(
                lambda: self.begun >= begun and self.ended >= ended, PATIENCE
            )
        assert reached, f"{self.begun} begun, {self.ended} ended"

    def _count(self, name: str) -> None:
        with self._changed:
            setattr(self, name, getattr(self, name) + 1)
            self._changed.notify_all()
