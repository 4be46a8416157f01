"""What is refused, and how: always OpenAI's envelope."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from clover_edge.server.source import Source

MESSAGES = [{"role": "user", "content": "hello"}]
IMAGE = {"type": "image_url", "image_url": {"url": "data:,"}}
CHAT, PLAIN = "/v1/chat/completions", "/v1/completions"


def error_of(answer: httpx.Response) -> dict[str, Any]:
    """The envelope's inside, checked for its form."""
    assert list(answer.json()) == ["error"]
    error: dict[str, Any] = answer.json()["error"]
    assert list(error) == ["message", "type", "param", "code"]
    assert error["message"] and error["type"]
    return error


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 2),
        ("logit_bias", {"5": 1}),
        ("audio", {}),
        ("modalities", ["text", "audio"]),
        ("functions", [{}]),
        ("function_call", "auto"),
        ("prediction", {}),
        ("web_search_options", {}),
        ("parallel_tool_calls", False),
        ("min_p", 0.1),
    ],
)
def test_unsupported_fields_are_refused(http: httpx.Client, field: str, value: Any) -> None:
    answer = http.post(CHAT, json={"messages": MESSAGES, field: value})
    error = error_of(answer)
    assert answer.status_code == 400
    assert (error["param"], error["code"]) == (field, "unsupported_parameter")


@pytest.mark.parametrize(
    ("field", "value"),
    [("n", 3), ("best_of", 2), ("echo", True), ("suffix", "x"), ("prompt", ["a", "b"])],
)
def test_of_plain_completions(http: httpx.Client, field: str, value: Any) -> None:
    answer = http.post(PLAIN, json={"prompt": "hello", field: value})
    assert answer.status_code == 400 and error_of(answer)["param"].startswith(field)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": -1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"max_tokens": "8"}, "max_tokens"),
        ({"max_tokens": 100_000}, "messages"),
        ({"stop": [""]}, "stop"),
        ({"seed": 1 << 70}, "seed"),
        ({"clover": {"threshold": 2}}, "clover.threshold"),
        ({"clover": {"block_length": 9999}}, "clover.block_length"),
        ({"clover": {"warp": 9}}, "clover.warp"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "judge", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages[0].content",
        ),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"response_format": {"type": "yaml"}}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}, "response_f"),
    ],
)
def test_values_out_of_their_domain(http: httpx.Client, fields: dict[str, Any], param: str) -> None:
    answer = http.post(CHAT, json={"messages": MESSAGES, **fields})
    assert answer.status_code == 400, answer.text
    assert error_of(answer)["param"].startswith(param)


def test_too_long_a_prompt_says_so(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        client.completions.create(model="demo", prompt=[5] * 5000)
    assert error.value.code == "context_length_exceeded"
    assert "4096" in error.value.message


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"\xff\xfe",
        b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
        b'{"messages": [{"role": "user", "content": "x"}], "temperature": NaN}',
        b'{"messages": [{"role": "user", "content": "x"}], "seed": ' + b"9" * 5000 + b"}",
        b"[" * 100_000,
        b'{"messages": ' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"prompt": [[[]]]}',
    ],
)
@pytest.mark.parametrize("path", [CHAT, PLAIN])
def test_bodies_that_are_no_request(http: httpx.Client, path: str, body: bytes) -> None:
    answer = http.post(path, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400, answer.text
    error_of(answer)


def test_another_content_type(http: httpx.Client) -> None:
    # What another site's form could send without asking (CSRF).
    body = json.dumps({"messages": MESSAGES})
    answer = http.post(CHAT, content=body, headers={"Content-Type": "text/plain"})
    assert answer.status_code == 400
    error_of(answer)


def test_the_fault_is_not_repeated(http: httpx.Client) -> None:
    answer = http.post(CHAT, json={"messages": MESSAGES, "temperature": "hot secret"})
    assert "secret" not in answer.text


def test_paths_and_methods(http: httpx.Client) -> None:
    missing = http.get("/v1/embeddings")
    assert missing.status_code == 404 and error_of(missing)["code"] == "not_found"
    method = http.put(CHAT)
    assert method.status_code == 405 and error_of(method)["code"] == "method_not_allowed"
    assert method.headers["allow"] == "POST"
    model = http.post(CHAT, json={"messages": MESSAGES, "model": "gpt-9"})
    assert model.status_code == 404 and error_of(model)["code"] == "model_not_found"


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("size", [1001, 5000, 50_000])
def test_bodies_above_the_limit(serving: Callable[..., str], chunked: bool, size: int) -> None:
    url = serving(request_bytes=1000)
    body = b" " * size

    def pieces() -> Iterator[bytes]:
        yield from (body[at : at + 700] for at in range(0, size, 700))

    try:
        answer = httpx.post(
            url + CHAT,
            content=pieces() if chunked else body,
            headers={"Content-Type": "application/json"},
        )
    except httpx.TransportError:
        # Its server has hung up in the middle of far too much: the answer may be lost with it.
        assert size > 8000
    else:
        assert answer.status_code == 413
        assert error_of(answer)["code"] == "request_too_large"
    assert httpx.get(f"{url}/health").status_code == 200


def test_more_tokens_than_the_limit(serving: Callable[..., str]) -> None:
    url = serving(max_tokens=4)
    answer = httpx.post(url + CHAT, json={"messages": MESSAGES, "max_completion_tokens": 5})
    assert answer.status_code == 400 and error_of(answer)["param"] == "max_tokens"
    body = {"messages": [{"role": "user", "content": "tell me a joke about penguins"}]}
    cut = httpx.post(url + CHAT, json=body).json()
    assert cut["usage"]["completion_tokens"] == 4
    assert cut["choices"][0]["finish_reason"] == "length"


def test_api_key(serving: Callable[..., str]) -> None:
    url = serving(api_key="s3cret")
    for path in ("/health", "/", "/openapi.json"):
        assert httpx.get(url + path).status_code == 200
    for key in (None, "Bearer", "Bearer wrong", "Basic s3cret", "Bearer s3cret2"):
        headers = {} if key is None else {"Authorization": key}
        for answer in (
            httpx.get(f"{url}/v1/models", headers=headers),
            httpx.get(f"{url}/metrics", headers=headers),
            httpx.post(url + CHAT, json={"messages": MESSAGES}, headers=headers),
        ):
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"
            assert error_of(answer)["code"] == "invalid_api_key"
    with OpenAI(base_url=f"{url}/v1", api_key="s3cret") as client:
        assert client.models.list().data[0].id == "demo"
    other = OpenAI(base_url=f"{url}/v1", api_key="other")
    with other, pytest.raises(openai.AuthenticationError):
        other.models.list()


def test_a_name_that_was_pointed_here(url: str, serving: Callable[..., str]) -> None:
    foreign = {"Host": "evil.example:80"}
    answer = httpx.get(f"{url}/v1/models", headers=foreign)
    assert answer.status_code == 403 and error_of(answer)["code"] == "host_not_allowed"
    for name in ("localhost", "127.0.0.1:99", "[::1]:80", "LOCALHOST:8080"):
        assert httpx.get(f"{url}/v1/models", headers={"Host": name}).status_code == 200
    allowed = serving(allow_hosts=("evil.example",))
    assert httpx.get(f"{allowed}/v1/models", headers=foreign).status_code == 200


def test_the_servers_own_fault(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("private detail")

    monkeypatch.setattr(Source, "chat", broken)
    answer = httpx.post(url + CHAT, json={"messages": MESSAGES})
    assert answer.status_code == 500 and error_of(answer)["code"] == "internal_error"
    assert "private" not in answer.text and "private detail" in caplog.text
