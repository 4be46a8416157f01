"""Model.chat and Model.chat_stream."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from chat_templates import GEMMA, XML

import clover_edge
from clover_edge import ArgumentError, ChatDoneEvent, DraftEvent, TextEvent, ThinkingEvent
from clover_edge.chat import Turn
from clover_edge.results import GenerationResult
from clover_edge.text import Detokenizer, TextCodec

MESSAGES = [{"role": "user", "content": "hi"}]
TOOL = {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}
ANSWER = (
    "so\n</think>\n\n<tool_call>\n<function=f>\n"
    "<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>"
)
OPTIONS = {"max_new_tokens": 48, "temperature": 1.0, "seed": 5}


@pytest.fixture(scope="module")
def folder(
    tiny: Callable[..., Any], pack: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A packed folder of random weights whose template has thinking and tools."""
    packed = pack(tiny(seed=21, overrides={"max_position_embeddings": 512}), "int4")
    copy = tmp_path_factory.mktemp("chat") / "model"
    shutil.copytree(packed, copy)
    (copy / "chat_template.jinja").write_text(XML)
    return copy


@pytest.fixture(scope="module")
def model(folder: Path) -> Iterator[clover_edge.Model]:
    with clover_edge.load(folder, threads=2) as opened:
        yield opened


def generated(text: str, model: clover_edge.Model, reason: str = "stop") -> GenerationResult:
    some = model.generate("x", max_new_tokens=1)
    return GenerationResult(text, some.token_ids, reason, some.counters)


def test_the_parts_of_a_generation(model: clover_edge.Model) -> None:
    """Noise, all of it thinking, since the prompt has opened that."""
    result = model.chat(MESSAGES, **OPTIONS)
    raw = model.generate(model.chat_prompt(MESSAGES), **OPTIONS)
    assert result.thinking == raw.text.strip() != ""
    assert (result.text, result.tool_calls, result.refused_calls) == ("", (), ())
    assert (result.token_ids, result.finish_reason) == (raw.token_ids, raw.finish_reason)
    assert result.counters.forward_passes == raw.counters.forward_passes
    text = model.chat(MESSAGES, thinking=False, **OPTIONS)
    assert text.thinking == "" != text.text


def test_a_stream_says_what_the_result_holds(model: clover_edge.Model) -> None:
    for thinking in (None, False):
        events = list(model.chat_stream(MESSAGES, thinking=thinking, **OPTIONS))
        want = model.chat(MESSAGES, thinking=thinking, **OPTIONS)
        result = events[-1].result if isinstance(events[-1], ChatDoneEvent) else None
        assert result and result.message() == want.message()
        assert result.token_ids == want.token_ids
        said = {kind: "" for kind in (TextEvent, ThinkingEvent)}
        for event in events:
            if isinstance(event, (TextEvent, ThinkingEvent)):
                said[type(event)] += event.text
        assert said == {TextEvent: want.text, ThinkingEvent: want.thinking}
        assert any(isinstance(event, DraftEvent) for event in events)


def test_closing_a_stream_cancels_it(model: clover_edge.Model) -> None:
    stream = model.chat_stream(MESSAGES, **{**OPTIONS, "max_new_tokens": 256})
    next(stream)
    stream.close()
    assert model.chat(MESSAGES, max_new_tokens=1).counters.tokens == 1  # it is free again


def test_calls(model: clover_edge.Model) -> None:
    turn = Turn(model, MESSAGES, tools=[TOOL])
    result = turn.result(generated(ANSWER, model))
    assert (result.thinking, result.text, result.finish_reason) == ("so", "", "tool_calls")
    call = result.tool_calls[0].to_dict()
    assert call["function"] == {"name": "f", "arguments": '{"a": "1"}'}
    assert json.loads(json.dumps(result.to_dict()))["tool_calls"] == [call]
    cut = turn.result(generated(ANSWER[:-3], model, "length"))
    assert (cut.tool_calls, cut.finish_reason) == ((), "length")
    assert (
        cut.refused_calls[0].text == cut.text and "no </tool_call>" in cut.refused_calls[0].reason
    )
    assert turn.result(generated(ANSWER, model, "length")).finish_reason == "length"


def test_the_next_turn(model: clover_edge.Model) -> None:
    """An answer's message and its calls' results go back as they are, and ids stay apart."""
    messages: list[Any] = list(MESSAGES)
    ids = []
    for _ in range(2):
        result = Turn(model, messages, tools=[TOOL]).result(generated(ANSWER, model))
        call = result.tool_calls[0]
        ids.append(call.id)
        answer = {"role": "tool", "tool_call_id": call.id, "content": "7"}
        messages += [result.message(), answer]
    assert ids == ["call_1_0", "call_3_0"]
    prompt = model.detokenize(model.chat_prompt(messages, tools=[TOOL]))
    assert prompt.count("<think>\n" + ANSWER) == 2
    assert prompt.count("<tool_response>\n7\n</tool_response>") == 2
    assert "<tools>\n" + json.dumps({"type": "function", "function": TOOL}) in prompt


def test_tool_choice(model: clover_edge.Model) -> None:
    with_tools = model.chat_prompt(MESSAGES, tools=[TOOL])
    assert Turn(model, MESSAGES, tools=[TOOL], tool_choice="auto").ids == with_tools
    turn = Turn(model, MESSAGES, tools=[TOOL], tool_choice="none")
    assert turn.ids == model.chat_prompt(MESSAGES) != with_tools
    result = turn.result(generated(ANSWER, model))
    assert (result.tool_calls, result.finish_reason) == ((), "stop")
    assert "<function=f>" in result.text


def test_what_is_refused(model: clover_edge.Model, tmp_path: Path, folder: Path) -> None:
    """All of it before anything is computed."""
    for method in (model.chat, model.chat_stream):
        with pytest.raises(ArgumentError, match="tool_choice: 'sometimes'"):
            method(MESSAGES, tool_choice="sometimes")
        with pytest.raises(ArgumentError, match="thinking: 1 is neither"):
            method(MESSAGES, thinking=1)
        with pytest.raises(ArgumentError, match=r"tools\[0\].name"):
            method(MESSAGES, tools=[{}])
        with pytest.raises(ArgumentError, match="max_new_tokens"):
            method(MESSAGES, max_new_tokens=-1)
    shutil.copytree(folder, tmp_path / "plain")
    (tmp_path / "plain" / "chat_template.jinja").unlink()
    with (
        clover_edge.load(tmp_path / "plain", threads=1) as plain,
        pytest.raises(ArgumentError, match="has no chat template"),
    ):
        plain.chat(MESSAGES)


def test_special_tokens_around_calls_stay(folder: Path, tmp_path: Path) -> None:
    """Tokenizers may call them special, whose text is dropped; ids are the same either way."""
    copy = tmp_path / "model"
    shutil.copytree(folder, copy)
    file = json.loads((copy / "tokenizer.json").read_text())
    markers = ["<|tool_call>", "<tool_call|>", '<|"|>', "<|channel>", "<channel|>"]
    first = max(token["id"] for token in file["added_tokens"]) + 1
    kind = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    file["added_tokens"] += [
        {"id": first + number, "content": marker, "special": True, **kind}
        for number, marker in enumerate(markers)
    ]
    (copy / "tokenizer.json").write_text(json.dumps(file))
    special = TextCodec(copy / "tokenizer.json")
    shown = TextCodec(copy / "tokenizer.json", markers)
    call = '<|tool_call>call:f{a:<|"|>é<|"|>}<tool_call|>'
    ids = special.encode(call)
    assert shown.encode(call) == ids and len(set(ids) & set(range(first, first + 5))) == 3
    assert special.decode(ids) == "call:f{a:é}"
    assert shown.decode(ids) == call
    assert (special.piece(first), shown.piece(first)) == ("", "<|tool_call>")
    detokenizer = Detokenizer(shown)
    assert detokenizer.push(ids) + detokenizer.finish() == call
    (copy / "chat_template.jinja").write_text(GEMMA)
    with clover_edge.load(copy, threads=1) as opened:
        assert opened.detokenize(ids) == call
