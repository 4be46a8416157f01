"""The application: routes, errors, the description of both."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from .. import __version__
from .errors import ApiError
from .gate import Gate
from .requests import REFUSED
from .routes import router
from .service import Service

_UNPROCESSABLE = "422"  # which FastAPI declares by itself; validation is answered with 400 here


def create_app(service: Service) -> FastAPI:
    """The ASGI application of a service."""
    app = FastAPI(
        title="clover-edge",
        version=__version__,
        description="An OpenAI-compatible server for one block-diffusion language model.",
        docs_url=None,  # these pages load scripts from elsewhere
        redoc_url=None,
    )
    app.state.service = service
    app.include_router(router)
    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_middleware(Gate, settings=service.settings, observe=service.metrics.answered)
    described = app.openapi

    def openapi() -> dict[str, Any]:
        description = described()
        for path in description["paths"].values():
            for operation in path.values():
                operation["responses"].pop(_UNPROCESSABLE, None)
        if service.settings.api_key is not None:
            scheme = {"type": "http", "scheme": "bearer"}
            description["components"]["securitySchemes"] = {"key": scheme}
            description["security"] = [{"key": []}]
        return description

    app.openapi = openapi  # type: ignore[method-assign]
    return app


async def _api_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ApiError)
    return error.response()


async def _http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "invalid_request")
    message = str(error.detail)
    if error.status_code in (404, 405):
        message = f"{request.method} {request.url.path}: {message}"
    return ApiError(
        error.status_code, message, code=code, headers=dict(error.headers or {})
    ).response()


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    """The first field that is not valid; what it held is not repeated."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = [part for part in first["loc"] if part not in ("body", "path", "query")]
    if first["type"] == "json_invalid":
        return ApiError(400, "the body is not valid JSON", code="invalid_json").response()
    param = "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in place
    ).removeprefix(".")
    if place and place[0] in REFUSED:
        name = str(place[0])
        message = f"{name}: {REFUSED[name]}"
        return ApiError(400, message, param=name, code="unsupported_parameter").response()
    where = f"{param}: " if param else "the body: "
    return ApiError(400, where + first["msg"], param=param or None, code="invalid_value").response()
