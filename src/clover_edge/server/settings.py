"""What a server is told when it starts."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import ArgumentError

_LOCAL_NAMES = ("localhost",)


@dataclass(frozen=True)
class Settings:
    """Limits and addresses. Sizes are in bytes, times in seconds."""

    name: str | None = None  # the model's id; None: its folder's name
    host: str = "127.0.0.1"
    port: int = 8080  # 0: any that is free
    api_key: str | None = None
    allow_hosts: tuple[str, ...] = ()  # other names that a server bound to loopback answers to
    queue: int = 32  # requests that may wait; one more is refused with 429
    request_bytes: int = 4 << 20  # of a request's body
    time_limit: float = 600.0  # for one request, its wait included
    max_tokens: int | None = None  # that a request may ask for; None: what the context holds
    keep_alive: float = 10.0  # a stream that has nothing to say says a comment after so long
    prefix_bytes: int = 1 << 30  # of what earlier requests have computed, for those like them
    shutdown_limit: float = 10.0  # what is running at shutdown may take so long to end
    options: Mapping[str, Any] = field(default_factory=dict)  # of generation, under a request's own

    def __post_init__(self) -> None:
        """Raises ArgumentError naming the setting that is out of its domain."""
        for name, low, high in (
            ("port", 0, 65535),
            ("queue", 0, 100_000),
            ("request_bytes", 1, 1 << 32),
            ("max_tokens", 1, 2**31 - 1),
            ("prefix_bytes", 0, 1 << 50),
        ):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or not low <= value <= high):
                raise ArgumentError(f"{name}: {value!r} is not an integer from {low} to {high}")
        for name in ("time_limit", "keep_alive", "shutdown_limit"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
                raise ArgumentError(f"{name}: {value!r} is not a number of seconds above 0")
        if self.api_key is not None and not self.api_key:
            raise ArgumentError("api_key: is empty")

    @property
    def is_local(self) -> bool:
        """Whether only programs of this machine reach the server."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether a host name or address (no port, IPv6 with or without brackets) is this machine's."""
    if host.lower().rstrip(".") in _LOCAL_NAMES:
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
