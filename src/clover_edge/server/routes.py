"""The routes."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from ..chat import ChatDoneEvent
from ..results import DoneEvent
from .answers import ChatAnswer, CompletionAnswer, finish_of
from .metrics import CONTENT_TYPE
from .page import page
from .requests import ChatRequest, CompletionRequest
from .responses import (
    ChatCompletion,
    Completion,
    ErrorEnvelope,
    Health,
    ModelCard,
    ModelList,
)
from .service import Service
from .source import ServedEvent
from .streams import EventStream, first_of, unless_gone, whole
from .worker import Job

router = APIRouter()


def _errors(**statuses: str) -> dict[int | str, dict[str, Any]]:
    return {
        int(name[1:]): {"model": ErrorEnvelope, "description": text}
        for name, text in statuses.items()
    }


_ALWAYS = _errors(
    s400="A field that is not valid or not supported",
    s403="A host name that the server does not answer to",
    s408="The body took too long to arrive",
    s413="A body above the limit",
    s500="The server's own fault",
)
_KEYED = {**_ALWAYS, **_errors(s401="No API key, or another one")}
_MODEL = {**_KEYED, **_errors(s404="A model that is not the served one")}
_EVENT = {
    "type": "object",
    "properties": {"data": {"type": "string", "description": "a chunk as JSON; at last [DONE]"}},
    "required": ["data"],
}
_GENERATION: dict[int | str, dict[str, Any]] = {
    **_MODEL,
    **_errors(
        s429="The queue is full; Retry-After says when to come again",
        s503="Stopping, out of memory, or too long in the queue; Retry-After as well",
        s504="The answer took longer than the server's limit",
    ),
    200: {"content": {"text/event-stream": {"itemSchema": _EVENT}}},
}


def service_of(request: Request) -> Service:
    """The service of the application that a request has come to."""
    service: Service = request.app.state.service
    return service


@router.post("/v1/chat/completions", response_model=ChatCompletion, responses=_GENERATION)
async def chat_completions(request: Request, body: ChatRequest) -> Response:
    """The assistant's next message."""
    service = service_of(request)
    answer = ChatAnswer(service.name, service.model.codec, body)
    return await _answer(request, await service.chat(body), answer, bool(body.stream))


@router.post("/v1/completions", response_model=Completion, responses=_GENERATION)
async def completions(request: Request, body: CompletionRequest) -> Response:
    """A text's continuation."""
    service = service_of(request)
    answer = CompletionAnswer(service.name, service.model.codec, body)
    return await _answer(request, await service.complete(body), answer, bool(body.stream))


async def _answer(
    request: Request, job: Job, answer: ChatAnswer | CompletionAnswer, stream: bool
) -> Response:
    service = service_of(request)
    request.scope["clover"] = {"id": answer.id}

    def observe(event: ServedEvent) -> ServedEvent:
        if isinstance(event, (DoneEvent, ChatDoneEvent)):
            result = event.result
            service.generated(request, job, result.counters, finish_of(result))
        return event

    limits = service.settings
    events = job.events(pause=limits.keep_alive, limit=limits.time_limit)
    try:
        if stream:
            first = await unless_gone(first_of(events), request.receive)
            return EventStream(job, first, events, lambda event: answer.chunks(observe(event)))
        found = await unless_gone(whole(events), request.receive)
        text = answer.whole(found).json_bytes()
        observe(found[-1])
        return Response(text, media_type="application/json")
    except BaseException:
        job.cancel()
        raise


@router.get("/", include_in_schema=False)
async def chat_page() -> Response:
    """The page that chats."""
    html, headers = page()
    return Response(html, media_type="text/html", headers=headers)


@router.get("/v1/models", response_model=ModelList, responses=_KEYED)
async def models(request: Request) -> dict[str, Any]:
    """The one model that is served."""
    return {"object": "list", "data": [_card(service_of(request))]}


@router.get("/v1/models/{model:path}", response_model=ModelCard, responses=_MODEL)
async def model_card(request: Request, model: str) -> dict[str, Any]:
    """One model."""
    service = service_of(request)
    service.check_model(model)
    return _card(service)


def _card(service: Service) -> dict[str, Any]:
    spec = service.model.spec
    meta = {
        "context_length": spec["max_positions"],
        "block_size": spec["block_size"],
        "has_chat_template": service.model.has_chat_template,
        "defaults": dict(service.model.generation),
    }
    return {
        "id": service.name,
        "object": "model",
        "created": service.created,
        "owned_by": "clover-edge",
        "meta": meta,
    }


@router.get("/health", responses={**_ALWAYS, 503: {"model": Health, "description": "Stopping"}})
async def health(request: Request, response: Response) -> Health:
    """Whether new requests are taken, and how many are here."""
    service = service_of(request)
    worker = service.worker
    response.status_code = 200 if worker.alive else 503
    return Health(
        status="ok" if worker.alive else "stopping",
        model=service.name,
        running=int(worker.running),
        waiting=worker.waiting,
        queue=service.settings.queue,
    )


@router.get(
    "/metrics",
    response_class=Response,
    responses={**_KEYED, 200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics(request: Request) -> Response:
    """Figures in Prometheus' text format."""
    return Response(service_of(request).metrics.text(), headers={"Content-Type": CONTENT_TYPE})
