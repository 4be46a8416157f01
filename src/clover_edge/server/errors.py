"""Errors as OpenAI's clients expect them: `{"error": {message, type, param, code}}`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fastapi.responses import JSONResponse

from ..errors import ArgumentError, ContextLengthError, OutOfMemoryError
from ..generation import DENOISING

# Option names of Python that have another one in a request.
_FIELDS = {
    "max_new_tokens": "max_tokens",
    **{name: f"clover.{name}" for name in (*DENOISING, "mode", "quality")},
}
_PARAM = re.compile(r"([a-z_]+)((?:\[\d+\]|\.[a-z_]+)*): ")
MEMORY_RETRY = 5  # seconds until memory may be free again


class ApiError(Exception):
    """An answer that is an error."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.param = param
        self.code = code
        self.headers = dict(headers or {})

    def envelope(self) -> dict[str, Any]:
        """The body of the answer."""
        error = {"message": str(self), "type": self.kind, "param": self.param, "code": self.code}
        return {"error": error}

    def response(self) -> JSONResponse:
        """The answer."""
        return JSONResponse(self.envelope(), self.status, self.headers)


def overloaded(message: str, code: str, retry_after: float, status: int = 503) -> ApiError:
    """A refusal for now, with the seconds after which another try may do better."""
    kind = "rate_limit_error" if status == 429 else "overloaded_error"
    seconds = str(max(1, round(retry_after)))
    return ApiError(status, message, kind=kind, code=code, headers={"Retry-After": seconds})


def timed_out(limit: float) -> ApiError:
    """A generation that took longer than the server's limit; another try would take as long."""
    message = f"the answer was not complete after the server's limit of {limit:g} s"
    headers = {"X-Should-Retry": "false"}
    return ApiError(504, message, kind="timeout_error", code="time_limit", headers=headers)


def of_exception(error: Exception) -> ApiError | None:
    """What a request's exception tells its client; None for one that is the server's own fault."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, (ArgumentError, ContextLengthError)):
        found = _PARAM.match(str(error))
        param = found and _FIELDS.get(found[1], found[1]) + found[2]
        too_long = isinstance(error, ContextLengthError)
        code = "context_length_exceeded" if too_long else "invalid_value"
        return ApiError(400, str(error), param=param, code=code)
    if isinstance(error, OutOfMemoryError):
        return overloaded(str(error), "out_of_memory", MEMORY_RETRY)
    return None


def internal() -> ApiError:
    """The server's own fault: no detail leaves it."""
    message = "the server failed on this request; its log says why"
    return ApiError(500, message, kind="server_error", code="internal_error")
