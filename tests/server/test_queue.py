"""The worker behind its queue: limits, refusals, clients that leave, the end of the server."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest
from generation_gate import PATIENCE, Gate
from openai import OpenAI

import clover_edge
from clover_edge.server.live import running

BODY = {"messages": [{"role": "user", "content": "tell me a joke about penguins"}]}
PATH = "/v1/chat/completions"


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(monkeypatch)


def post(url: str, **fields: Any) -> httpx.Response:
    return httpx.post(url + PATH, json={**BODY, **fields}, timeout=PATIENCE)


def until(found: Callable[[], Any]) -> None:
    """Waits for what must become true."""
    ends = time.monotonic() + PATIENCE
    while not found():
        assert time.monotonic() < ends
        time.sleep(0.01)


def health(url: str) -> dict[str, Any]:
    answer: dict[str, Any] = httpx.get(f"{url}/health").json()
    return answer


def test_a_full_queue_refuses_with_a_time(serving: Callable[..., str], gate: Gate) -> None:
    url = serving(queue=1)
    with ThreadPoolExecutor(2) as pool:
        running_one = pool.submit(post, url)
        gate.until(begun=1)
        waiting_one = pool.submit(post, url)
        until(lambda: health(url)["waiting"] == 1)
        refused = post(url)
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.json()["error"]["code"] == "queue_full"
        client = OpenAI(base_url=f"{url}/v1", api_key="-", max_retries=0)
        with client, pytest.raises(openai.RateLimitError):
            client.chat.completions.create(model="demo", messages=BODY["messages"])
        gate.open(2)
        texts = {
            one.result().json()["choices"][0]["message"]["content"]
            for one in (running_one, waiting_one)
        }
    assert len(texts) == 1
    assert health(url) | {"model": ""} == {
        "status": "ok",
        "model": "",
        "running": 0,
        "waiting": 0,
        "queue": 1,
    }


def test_the_client_library_tries_again(serving: Callable[..., str], gate: Gate) -> None:
    url = serving(queue=0)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(post, url)
        gate.until(begun=1)
        gate.open(2)
        with OpenAI(base_url=f"{url}/v1", api_key="-", max_retries=20) as client:
            answer = client.chat.completions.create(model="demo", messages=BODY["messages"])
        assert first.result().status_code == 200
    assert answer.choices[0].message.content


def leave(url: str, body: str) -> socket.socket:
    """Sends a request and keeps the connection, to be closed without having read anything."""
    host, port = url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)))
    head = f"POST {PATH} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
    return connection


LEAVING = '{"messages": [{"role": "user", "content": "hello"}], "max_tokens": 64%s}'


@pytest.mark.parametrize("stream", ["", ', "stream": true'])
def test_a_client_that_leaves_frees_the_worker(
    serving: Callable[..., str], gate: Gate, stream: str
) -> None:
    url = serving()
    connection = leave(url, LEAVING % stream)
    gate.until(begun=1)
    connection.close()
    # The generation ends although its gate lets pass once only: it is closed, not finished.
    until(lambda: 'status="499"' in httpx.get(f"{url}/metrics").text)
    gate.open()
    gate.until(ended=1)
    assert "clover_tokens_total 0.0" in httpx.get(f"{url}/metrics").text
    gate.open()
    assert post(url).status_code == 200


def test_a_client_that_leaves_the_queue_frees_its_place(
    serving: Callable[..., str], gate: Gate
) -> None:
    url = serving(queue=1)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(post, url)
        gate.until(begun=1)
        connection = leave(url, LEAVING % "")
        until(lambda: health(url)["waiting"] == 1)
        connection.close()
        until(lambda: health(url)["waiting"] == 0)
        gate.open()
        assert first.result().status_code == 200
    gate.open()
    assert post(url).status_code == 200
    assert gate.begun == 2  # what was left in the queue never began


@pytest.mark.parametrize("stream", [False, True])
def test_too_long_in_the_queue(serving: Callable[..., str], gate: Gate, stream: bool) -> None:
    url = serving(time_limit=0.3)
    with leave(url, LEAVING % ""):
        gate.until(begun=1)
        answer = post(url, stream=stream)
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == "queue_time"
        assert int(answer.headers["retry-after"]) >= 1
        gate.open()


def test_too_long_an_answer(serving: Callable[..., str], gate: Gate) -> None:
    url = serving(time_limit=0.3)
    answer = post(url)
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "time_limit")
    assert answer.headers["x-should-retry"] == "false"
    gate.open()
    gate.until(ended=1)
    streamed = post(url, stream=True)  # whose first event has come: the error is an event
    assert streamed.status_code == 200
    assert '"code":"time_limit"' in streamed.text and "[DONE]" not in streamed.text
    gate.open()


def test_a_silent_stream_is_kept_alive(serving: Callable[..., str], gate: Gate) -> None:
    url = serving(keep_alive=0.05)
    with httpx.stream(
        "POST", url + PATH, json={**BODY, "stream": True}, timeout=PATIENCE
    ) as answer:
        lines = []
        for line in answer.iter_lines():
            lines.append(line)
            if lines.count(": keep-alive") == 2:
                gate.open()
    assert lines.count(": keep-alive") >= 2
    assert [line for line in lines if line][-1] == "data: [DONE]"


def test_a_server_that_ends_finishes_what_runs_and_refuses_what_waits(
    demo_model: clover_edge.Model, gate: Gate
) -> None:
    with ThreadPoolExecutor(2) as pool:
        with running(demo_model, shutdown_limit=PATIENCE) as url:
            first = pool.submit(post, url)
            gate.until(begun=1)
            second = pool.submit(post, url)
            until(lambda: health(url)["waiting"] == 1)
            threading.Timer(0.5, gate.open).start()
        assert first.result().status_code == 200
        assert second.result().status_code == 503
        assert second.result().headers["retry-after"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_server_that_ends_cancels_what_takes_too_long(
    demo_model: clover_edge.Model, gate: Gate, stream: bool
) -> None:
    with ThreadPoolExecutor(1) as pool:
        with running(demo_model, shutdown_limit=0.2) as url:
            first = pool.submit(post, url, stream=stream)
            gate.until(begun=1)
            threading.Timer(0.6, gate.open).start()
        answer = first.result()
        assert answer.status_code == (200 if stream else 503)
        assert '"code":"stopping"' in answer.text


def test_concurrent_clients_get_their_own_answers(url: str, demo_model: clover_edge.Model) -> None:
    asks = [f"set the bedroom to {degrees} degrees" for degrees in range(10, 26)]
    expected = [demo_model.chat([{"role": "user", "content": ask}]).message() for ask in asks]
    calls = [[call["function"] for call in message["tool_calls"]] for message in expected]
    assert len({str(call) for call in calls}) > len(asks) // 2

    def ask(number: int) -> list[dict[str, Any]]:
        with OpenAI(base_url=f"{url}/v1", api_key="-") as client:
            messages: Any = [{"role": "user", "content": asks[number]}]
            if number % 2:
                answer = client.chat.completions.create(model="demo", messages=messages)
                return [call.function.model_dump() for call in answer.choices[0].message.tool_calls]
            chunks = client.chat.completions.create(model="demo", messages=messages, stream=True)
            found = [call for each in chunks for call in each.choices[0].delta.tool_calls or ()]
            return [call.function.model_dump() for call in found]

    with ThreadPoolExecutor(len(asks)) as pool:
        assert list(pool.map(ask, range(len(asks)))) == calls
