"""What /metrics says, in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.process_collector import ProcessCollector

from ..results import Counters

CONTENT_TYPE = CONTENT_TYPE_LATEST
_SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000)
_COUNTED = (
    ("prompt_tokens", "Tokens of prompts"),
    ("tokens", "Generated tokens, stop tokens included"),
    ("blocks", "Blocks generated"),
    ("denoise_steps", "Denoising steps"),
    ("forward_passes", "Denoising steps and commits"),
    ("bytes_read", "Weight bytes that forwards went through"),
)


class Metrics:
    """One server's figures, in a registry of their own."""

    def __init__(self, waiting: Callable[[], int], running: Callable[[], bool]) -> None:
        """`waiting` and `running` say how the queue is now."""
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._requests = Counter(
            "clover_requests", "Requests answered", ("route", "status"), registry=registry
        )
        self._seconds = Histogram(
            "clover_request_seconds",
            "From a request's arrival to the end of its answer",
            ("route",),
            buckets=_SECONDS,
            registry=registry,
        )
        self._waited = Histogram(
            "clover_queue_seconds", "Time in the queue", buckets=_SECONDS, registry=registry
        )
        self._first = Histogram(
            "clover_first_block_seconds",
            "From a generation's start to its first block",
            buckets=_SECONDS,
            registry=registry,
        )
        Gauge("clover_queue_length", "Requests that wait", registry=registry).set_function(waiting)
        Gauge("clover_running", "Generations under way", registry=registry).set_function(running)
        self._counted = {
            name: Counter(f"clover_{name}", text, registry=registry) for name, text in _COUNTED
        }

    def answered(self, route: str, status: int, seconds: float) -> None:
        """A request's answer has ended; 499: its client left before that."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def generated(self, counters: Counters, waited: float) -> None:
        """A generation is complete."""
        self._waited.observe(waited)
        self._first.observe(counters.time_to_first_block)
        for name, counter in self._counted.items():
            counter.inc(getattr(counters, name))

    def text(self) -> bytes:
        """The page."""
        return generate_latest(self._registry)
