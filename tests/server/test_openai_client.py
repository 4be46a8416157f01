"""The official client against a live server."""

from __future__ import annotations

import json

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


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "set_temperature",
            "description": "Sets a room's temperature",
            "parameters": {
                "type": "object",
                "properties": {"room": {"type": "string"}, "degrees": {"type": "integer"}},
                "required": ["room", "degrees"],
            },
        },
    }
]
HEAT = [{"role": "user", "content": "set the bedroom to 19 degrees"}]


def test_tools(client: OpenAI) -> None:
    answer = client.chat.completions.create(model="demo", messages=HEAT, tools=TOOLS)
    choice = answer.choices[0]
    assert choice.finish_reason == "tool_calls"
    (call,) = choice.message.tool_calls
    assert call.function.name == "set_temperature"
    assert json.loads(call.function.arguments) == {"room": "bedroom", "degrees": 19}
    assert choice.message.content is None
    # The conversation goes on with the call's result.
    result = {"role": "tool", "tool_call_id": call.id, "content": "done"}
    history = [*HEAT, choice.message.model_dump(exclude_none=True), result]
    again = client.chat.completions.create(model="demo", messages=history, tools=TOOLS)
    assert again.usage.prompt_tokens > answer.usage.prompt_tokens
    assert again.usage.prompt_tokens_details.cached_tokens > 0


def test_tools_in_a_stream(client: OpenAI) -> None:
    chunks = client.chat.completions.create(model="demo", messages=HEAT, tools=TOOLS, stream=True)
    choices = [chunk.choices[0] for chunk in chunks]
    (call,) = [call for choice in choices for call in choice.delta.tool_calls or ()]
    assert (call.index, call.type, call.function.name) == (0, "function", "set_temperature")
    assert json.loads(call.function.arguments) == {"room": "bedroom", "degrees": 19}
    assert choices[-1].finish_reason == "tool_calls"
    assert not any(choice.delta.content for choice in choices)


def test_without_tool_choice_calls_are_text(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model="demo", messages=HEAT, tools=TOOLS, tool_choice="none"
    )
    assert answer.choices[0].message.tool_calls is None
    assert answer.choices[0].finish_reason == "stop"


def test_a_repeated_prompt_is_not_computed_again(client: OpenAI) -> None:
    answers = [client.chat.completions.create(model="demo", messages=ASK) for _ in range(2)]
    assert answers[0].choices == answers[1].choices
    cached = answers[1].usage.prompt_tokens_details.cached_tokens
    assert 0 < cached <= answers[1].usage.prompt_tokens


def test_logprobs(client: OpenAI, demo_model: clover_edge.Model) -> None:
    options = {"model": "demo", "messages": ASK, "logprobs": True, "top_logprobs": 2}
    whole = client.chat.completions.create(**options).choices[0]
    result = demo_model.generate(demo_model.chat_prompt(ASK), logprobs=True, top_logprobs=2)
    said = whole.logprobs.content
    assert "".join(token.token for token in said) == whole.message.content
    assert b"".join(bytes(token.bytes) for token in said).decode() == whole.message.content
    assert [token.logprob for token in said] == pytest.approx(
        [token.logprob for token in result.logprobs], abs=1e-5
    )
    assert all(len(token.top_logprobs) == 2 for token in said)
    chunks = client.chat.completions.create(**options, stream=True)
    parts = [chunk.choices[0].logprobs for chunk in chunks]
    assert [token for part in parts if part for token in part.content] == said


def test_logprobs_of_plain_completions(client: OpenAI, demo_model: clover_edge.Model) -> None:
    ids = demo_model.chat_prompt(ASK)
    choice = client.completions.create(model="demo", prompt=ids, logprobs=1).choices[0]
    assert "".join(choice.logprobs.tokens) == choice.text
    offsets = choice.logprobs.text_offset
    assert [choice.text[at] for at in offsets] == [token[0] for token in choice.logprobs.tokens]
    assert all(len(top) == 1 for top in choice.logprobs.top_logprobs)
    assert max(choice.logprobs.token_logprobs) <= 0


def test_response_format(client: OpenAI) -> None:
    pytest.importorskip("llguidance", reason="needs the extra 'grammar'")
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    form = {"type": "json_schema", "json_schema": {"name": "count", "schema": schema}}
    answer = client.chat.completions.create(model="demo", messages=ASK, response_format=form)
    found = json.loads(answer.choices[0].message.content)
    assert answer.choices[0].finish_reason == "length" or isinstance(found["n"], int)


@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "set_temperature"}}]
)
def test_forced_calls(client: OpenAI, choice: object) -> None:
    pytest.importorskip("llguidance", reason="needs the extra 'grammar'")
    answer = client.chat.completions.create(
        model="demo", messages=ASK, tools=TOOLS, tool_choice=choice
    )
    if answer.choices[0].finish_reason != "length":
        calls = answer.choices[0].message.tool_calls
        assert {call.function.name for call in calls} == {"set_temperature"}
        assert isinstance(json.loads(calls[0].function.arguments)["degrees"], int)


def test_errors(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        client.chat.completions.create(model="demo", messages=ASK, n=2)
    assert (error.value.param, error.value.code) == ("n", "unsupported_parameter")
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="gpt-9", messages=ASK)
    with pytest.raises(openai.BadRequestError) as error:
        client.chat.completions.create(model="demo", messages=ASK, stream=True, temperature=-1)
    assert error.value.param == "temperature"
