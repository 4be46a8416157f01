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
from ..sessions import PrefixStore
from .worker import Worker

CONTENT_TYPE = CONTENT_TYPE_LATEST
_SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000)
_COUNTED = (
    ("prompt_tokens", "Tokens of prompts"),
    ("cached_tokens", "Of these, found in a kept prefix"),
    ("tokens", "Generated tokens, stop tokens included"),
    ("blocks", "Blocks generated"),
    ("denoise_steps", "Denoising steps"),
    ("forward_passes", "Denoising steps and commits"),
    ("bytes_read", "Weight bytes that forwards went through"),
)


class Metrics:
    """One server's figures, in a registry of their own."""

    def __init__(self, worker: Worker, store: PrefixStore) -> None:
        """`worker` and `store` are asked how they are whenever the page is."""
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
        gauges: tuple[tuple[str, str, Callable[[], float]], ...] = (
            ("queue_length", "Requests that wait", lambda: worker.waiting),
            ("running", "Generations under way", lambda: worker.running),
            ("prefix_sessions", "Kept prefixes", lambda: store.counters().sessions),
            ("prefix_bytes", "Memory of kept prefixes", lambda: store.counters().nbytes),
            ("prefix_hits", "Prompts that found a prefix", lambda: store.counters().hits),
            ("prefix_misses", "Prompts that found none", lambda: store.counters().misses),
        )
        for name, text, value in gauges:
            Gauge(f"clover_{name}", text, registry=registry).set_function(value)
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
