"""The official client against a live server."""

from __future__ import annotations

import openai
import pytest
from openai import OpenAI

import clover_edge

ASK = [{"role": "user", "content": "tell me a joke about penguins"}]


def test_chat_says_what_the_model_says(client: OpenAI, demo_model: clover_edge.Model) -> None:
    answer = client.chat.completions.create(model="demo", messages=ASK)
    expected = demo_model.chat(ASK)
    choice = answer.choices[0]
    assert choice.message.content == expected.text != ""
    assert choice.message.role == "assistant"
    assert choice.finish_reason == "stop"
    assert answer.usage.prompt_tokens == expected.counters.prompt_tokens
    assert answer.usage.completion_tokens == expected.counters.tokens
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_stream_is_the_same_text_in_pieces(client: OpenAI) -> None:
    whole = client.chat.completions.create(model="demo", messages=ASK)
    chunks = list(client.chat.completions.create(model="demo", messages=ASK, stream=True))
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert deltas[0].role == "assistant"
    assert "".join(delta.content or "" for delta in deltas) == whole.choices[0].message.content
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert len({chunk.id for chunk in chunks}) == 1
    assert all(chunk.usage is None for chunk in chunks)


def test_stream_ends_with_its_usage_when_asked(client: OpenAI) -> None:
    whole = client.chat.completions.create(model="demo", messages=ASK)
    *chunks, last = client.chat.completions.create(
        model="demo", messages=ASK, stream=True, stream_options={"include_usage": True}
    )
    assert last.choices == []
    assert last.usage == whole.usage
    assert all(chunk.usage is None for chunk in chunks)


def test_completions(client: OpenAI, demo_model: clover_edge.Model) -> None:
    ids = demo_model.chat_prompt(ASK)
    text = demo_model.generate(ids, max_new_tokens=24).text
    answer = client.completions.create(model="demo", prompt=ids, max_tokens=24)
    assert answer.choices[0].text == text
    pieces = client.completions.create(model="demo", prompt=ids, max_tokens=24, stream=True)
    assert "".join(piece.choices[0].text for piece in pieces) == text


def test_models(client: OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["demo"]
    assert client.models.retrieve("demo").owned_by == "clover-edge"
    with pytest.raises(openai.NotFoundError) as error:
        client.models.retrieve("gpt-9")
    assert error.value.code == "model_not_found"
