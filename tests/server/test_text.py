"""Texts as they come: code points, stop strings, seeds, progress, counters."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import OpenAI

import clover_edge
from clover_edge.server.live import running

JOKE: list[Any] = [{"role": "user", "content": "tell me a joke about penguins"}]
CHAT, PLAIN = "/v1/chat/completions", "/v1/completions"


def chunks_of(answer: httpx.Response) -> list[dict[str, Any]]:
    """The JSON of a stream's events, which must be well-formed and end as they should."""
    assert answer.headers["content-type"].startswith("text/event-stream")
    *events, rest = answer.content.decode().split("\n\n")
    assert (events[-1], rest) == ("data: [DONE]", "")
    assert all(event.startswith("data: ") for event in events)
    return [json.loads(event.removeprefix("data: ")) for event in events[:-1]]


@pytest.fixture(scope="module")
def noise(tiny: Callable[..., Any], pack: Callable[..., Path]) -> Iterator[clover_edge.Model]:
    """A model of random weights: its text is noise, cut code points included."""
    folder = pack(tiny(seed=21, overrides={"max_position_embeddings": 512}), "int4")
    with clover_edge.load(folder, threads=1) as model:
        yield model


def test_no_code_point_is_cut(noise: clover_edge.Model) -> None:
    cut = 0
    with running(noise, name="noise") as url, httpx.Client(base_url=url) as http:
        for seed in range(6):
            options = {"temperature": 1.0, "seed": seed, "max_tokens": 48}
            body = {"prompt": "a", **options}
            answer = http.post(PLAIN, json={**body, "stream": True})
            pieces = [chunk["choices"][0]["text"] for chunk in chunks_of(answer)]
            del options["max_tokens"]
            text = noise.generate("a", max_new_tokens=48, **options).text  # type: ignore[arg-type]
            assert (
                "".join(pieces) == text == http.post(PLAIN, json=body).json()["choices"][0]["text"]
            )
            cut += any(not character.isascii() for character in text.replace("\ufffd", ""))
    assert cut  # there were code points of several bytes


def test_stop_strings(client: OpenAI) -> None:
    whole = client.chat.completions.create(model="demo", messages=JOKE).choices[0].message.content
    assert whole
    stop = whole[len(whole) // 2 :][:3]
    for value in (stop, [stop, "never"]):
        answer = client.chat.completions.create(model="demo", messages=JOKE, stop=value)
        assert answer.choices[0].message.content == whole[: whole.index(stop)]
        assert answer.choices[0].finish_reason == "stop"
        chunks = client.chat.completions.create(
            model="demo", messages=JOKE, stop=value, stream=True
        )
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        assert text == whole[: whole.index(stop)]


def test_length(client: OpenAI) -> None:
    answer = client.chat.completions.create(model="demo", messages=JOKE, max_completion_tokens=3)
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage and answer.usage.completion_tokens == 3


def test_seeds(noise: clover_edge.Model) -> None:
    with running(noise, name="noise") as url:
        body = {"prompt": "a", "temperature": 1.0, "max_tokens": 24}

        def text(**fields: Any) -> str:
            answer = httpx.post(url + PLAIN, json={**body, **fields}).json()
            found: str = answer["choices"][0]["text"]
            return found

        assert text(seed=5) == text(seed=5)
        assert len({text() for _ in range(4)}) > 1  # without one, answers differ


def test_content_may_be_parts(client: OpenAI) -> None:
    parts = [{"type": "text", "text": "tell me a joke about penguins"}]
    answers = [
        client.chat.completions.create(
            model="demo",
            messages=[{"role": "user", "content": content}],  # type: ignore[arg-type, misc, list-item]
        )
        for content in (parts, "tell me a joke about penguins")
    ]
    assert answers[0].choices == answers[1].choices


def test_progress(http: httpx.Client, demo_model: clover_edge.Model) -> None:
    body = {"messages": JOKE, "stream": True, "clover": {"progress": True, "block_length": 16}}
    chunks = chunks_of(http.post(CHAT, json=body))
    *drafts, cost = [chunk["clover"] for chunk in chunks if chunk.get("clover")]
    for draft in drafts:
        assert set(draft) == {"block", "step", "states", "pieces"}
        assert len(draft["states"]) == len(draft["pieces"]) == 16
        assert set(draft["states"]) <= {"masked", "drafted", "accepted"}
    assert {draft["block"] for draft in drafts} == set(range(cost["blocks"]))
    assert sum(draft["step"] > 0 for draft in drafts) == cost["denoise_steps"]
    assert all(set(draft["states"]) == {"masked"} for draft in drafts if draft["step"] == 0)
    prompt = demo_model.chat_prompt(JOKE)
    expected = demo_model.session().generate(prompt, block_length=16).counters
    assert cost["forward_passes"] == expected.forward_passes


def test_no_progress_unless_asked(http: httpx.Client) -> None:
    chunks = chunks_of(http.post(CHAT, json={"messages": JOKE, "stream": True}))
    assert all("clover" not in chunk for chunk in chunks)
    whole = http.post(CHAT, json={"messages": JOKE}).json()
    assert "clover" not in whole
    asked = http.post(CHAT, json={"messages": JOKE, "clover": {}}).json()
    assert asked["clover"]["blocks"] >= 1


def test_settings_are_the_defaults_of_requests(
    serving: Callable[..., str], demo_model: clover_edge.Model
) -> None:
    url = serving(options={"block_length": 4, "max_new_tokens": 6})
    found = httpx.post(url + CHAT, json={"messages": JOKE, "clover": {}}).json()
    expected = demo_model.chat(JOKE, block_length=4, max_new_tokens=6)
    assert found["choices"][0]["message"]["content"] == expected.text
    assert found["clover"]["blocks"] == expected.counters.blocks
    body = {"messages": JOKE, "clover": {"block_length": 8}, "max_tokens": 9}
    assert httpx.post(url + CHAT, json=body).json()["usage"]["completion_tokens"] == 9


def test_metrics_and_log(serving: Callable[..., str], caplog: pytest.LogCaptureFixture) -> None:
    url = serving()
    with caplog.at_level(logging.INFO, logger="clover_edge.server"):
        answer = httpx.post(url + CHAT, json={"messages": JOKE}).json()
        httpx.post(url + CHAT, json={"messages": JOKE, "n": 2})
        httpx.get(f"{url}/nothing%0Ahere")
        text = httpx.get(f"{url}/metrics").text
    usage = answer["usage"]
    assert f"clover_tokens_total {usage['completion_tokens']}.0" in text
    assert f"clover_prompt_tokens_total {usage['prompt_tokens']}.0" in text
    assert 'clover_requests_total{route="/v1/chat/completions",status="200"} 1.0' in text
    assert 'clover_requests_total{route="/v1/chat/completions",status="400"} 1.0' in text
    assert 'clover_requests_total{route="other",status="404"} 1.0' in text
    assert "clover_queue_length 0.0" in text and "clover_running 0.0" in text
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("clover")]
    assert len(lines) >= 3  # the last one may still be on its way
    assert all("\n" not in line for line in lines)
    assert answer["id"] in lines[0] and f"tokens={usage['completion_tokens']}" in lines[0]
    assert "penguin" not in caplog.text
