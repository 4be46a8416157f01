"""What every request passes through: key, host, size and time of its body; its line in the log."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import time
from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .errors import ApiError
from .settings import Settings, is_loopback
from .streams import ClientGone, told

BODY_SECONDS = 30.0  # that a request's body may take to arrive
OPEN_PATHS = ("/", "/health", "/openapi.json")  # without a key
DRAINED = 8  # times the limit: so much of a body that is too large is read, that its sender listens

logger = logging.getLogger("clover_edge.server")
Observe = Callable[[str, int, float], None]  # route, status, seconds


class Gate:
    """The outermost layer of the application."""

    def __init__(self, app: ASGIApp, settings: Settings, observe: Observe) -> None:
        """`observe` is told of every answer."""
        self._app = app
        self._settings = settings
        self._observe = observe
        self._key = None if settings.api_key is None else _digest(settings.api_key)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes on what is no HTTP request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.monotonic(), 0

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._pass(scope, receive, watched)
        except ClientGone:
            status = 499
        except Exception as error:
            answer = told(error)
            if status == 0:
                await answer.response()(scope, receive, watched)
        finally:
            self._log(scope, status or 499, time.monotonic() - started)

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        self._check_host(headers)
        self._check_key(scope["path"], headers)
        body = await self._body(headers, receive)
        read = False

        async def replay() -> Message:
            nonlocal read
            if read:
                return await receive()
            read = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, replay, send)

    def _check_host(self, headers: Headers) -> None:
        # A page of another site whose name has been pointed at this machine (DNS rebinding) sends
        # that name; without a key nothing else would stop it.
        if not self._settings.is_local or self._key is not None:
            return
        host = headers.get("host", "")
        name = host[: host.index("]") + 1] if host.startswith("[") and "]" in host else host
        name = name if name.startswith("[") else name.partition(":")[0]
        if name and not is_loopback(name) and name not in self._settings.allow_hosts:
            raise ApiError(
                403, f"this server does not answer to the name {name!r}", code="host_not_allowed"
            )

    def _check_key(self, path: str, headers: Headers) -> None:
        if self._key is None or path in OPEN_PATHS:
            return
        scheme, _, key = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and hmac.compare_digest(_digest(key.strip()), self._key):
            return
        raise ApiError(
            401,
            "no valid API key; send it as Authorization: Bearer KEY",
            kind="authentication_error",
            code="invalid_api_key",
            headers={"WWW-Authenticate": "Bearer"},
        )

    async def _body(self, headers: Headers, receive: Receive) -> bytes:
        limit = self._settings.request_bytes
        declared = headers.get("content-length", "")
        if declared.isdigit() and int(declared) > DRAINED * limit:
            raise self._too_large()
        try:
            chunks, size = await asyncio.wait_for(_read(receive, limit), BODY_SECONDS)
        except asyncio.TimeoutError:
            raise ApiError(
                408,
                f"the body did not arrive within {BODY_SECONDS:g} s",
                code="body_time",
                headers={"Connection": "close"},
            ) from None
        if size > limit:
            raise self._too_large()
        return chunks

    def _too_large(self) -> ApiError:
        return ApiError(
            413,
            f"the body is larger than this server's limit of {self._settings.request_bytes} bytes",
            code="request_too_large",
            headers={"Connection": "close"},
        )

    def _log(self, scope: Scope, status: int, seconds: float) -> None:
        route = scope.get("route")
        self._observe(getattr(route, "path", "other"), status, seconds)
        client = scope.get("client") or ("-", 0)
        path = scope.get("raw_path", b"").decode("ascii", "backslashreplace")
        facts = "".join(f" {name}={value}" for name, value in scope.get("clover", {}).items())
        logger.info(
            "%s %s %s %d %.3fs%s", client[0], scope["method"], path[:200], status, seconds, facts
        )


async def _read(receive: Receive, limit: int) -> tuple[bytes, int]:
    """A body up to `limit`, and its size; one that is larger is read on for a while."""
    kept, size = bytearray(), 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunk = message.get("body", b"")
        size += len(chunk)
        if size <= limit:
            kept += chunk
        else:
            kept.clear()
        if not message.get("more_body", False) or size > DRAINED * limit:
            return bytes(kept), size


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
