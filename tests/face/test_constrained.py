"""response_format on the demo model's tokens: valid texts, budgets, errors, streams, threads."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from typing import Any

import chat_templates
import pytest

import clover_edge
from clover_edge import DoneEvent, DraftEvent, TextEvent, demo
from clover_edge.chat import ToolCallEvent
from clover_edge.constrained.request import ResponseFormat, format_of
from clover_edge.errors import ArgumentError, CloverError

pytest.importorskip("llguidance", reason="needs extra grammar")

from clover_edge.constrained.calls import behind_thinking, json_calls, xml_calls
from clover_edge.constrained.grammar import Grammar, grammar_of

SCHEMA = {
    "type": "object",
    "properties": {
        "room": {"enum": ["bedroom", "kitchen"]},
        "degrees": {"type": "integer", "minimum": 10, "maximum": 30},
        "note": {"type": "string", "minLength": 2, "maxLength": 9},
    },
    "required": ["room", "degrees", "note"],
    "additionalProperties": False,
}
REQUEST = [{"role": "user", "content": "set the bedroom to 19 degrees"}]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "set_temperature",
            "parameters": {
                "type": "object",
                "properties": {"room": {"type": "string"}, "degrees": {"type": "integer"}},
                "required": ["room", "degrees"],
            },
        },
    },
    {"type": "function", "function": {"name": "stop_music"}},
]


def schema_format(schema: Any, **extra: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, **extra}}


@pytest.fixture(scope="module")
def model() -> Iterator[clover_edge.Model]:
    with demo.pack("int4") as folder, clover_edge.load(f"{folder}/model", threads=1) as opened:
        yield opened


def compiled(model: clover_edge.Model, value: Any) -> Grammar:
    request = format_of(value)
    assert request is not None
    stops = model.generation["eos_token_id"]
    return grammar_of(request, model.codec, model.spec["vocab_size"], stops)


def matches(value: Any) -> bool:
    return (
        list(value) == ["room", "degrees", "note"]
        and value["room"] in ("bedroom", "kitchen")
        and 10 <= value["degrees"] <= 30
        and 2 <= len(value["note"]) <= 9
    )


WAYS: list[dict[str, Any]] = [
    {},
    {"block_length": 32, "threshold": 0.5},
    {"mode": "ar"},
    {"mode": "speculative"},
    {"temperature": 1.2, "seed": 4},
    {"temperature": 1.2, "seed": 4, "mode": "ar"},
    {"temperature": 1.2, "top_k": 5, "seed": 5, "mode": "speculative"},
    {"repetition_penalty": 1.2},
]


@pytest.mark.parametrize("way", WAYS)
def test_json_schema(model: clover_edge.Model, way: dict[str, Any]) -> None:
    result = model.generate(REQUEST, response_format=schema_format(SCHEMA), **way)
    assert result.finish_reason == "stop"
    assert matches(json.loads(result.text))
    assert result.counters.forward_passes < result.counters.tokens


def test_speculation_writes_the_autoregressive_text(model: clover_edge.Model) -> None:
    texts = [
        model.generate(REQUEST, response_format=schema_format(SCHEMA), mode=mode).text
        for mode in ("ar", "speculative")
    ]
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("value", "pattern"),
    [
        ({"type": "regex", "regex": "[a-c]{2,4}-[0-9]+"}, r"[a-c]{2,4}-[0-9]+"),
        ({"type": "lark", "grammar": 'start: "(" start ")" | "x"'}, r"\(*x\)*"),
        ({"type": "regex", "regex": "</tool_call>|<.im_end.>é€"}, r"</tool_call>|<.im_end.>é€"),
    ],
)
def test_other_grammars(model: clover_edge.Model, value: Any, pattern: str) -> None:
    import re

    for way in WAYS[:6]:
        result = model.generate(REQUEST, response_format=value, max_new_tokens=40, **way)
        assert result.finish_reason == "stop"
        assert re.fullmatch(pattern, result.text)


def test_json_object_and_text(model: clover_edge.Model) -> None:
    value = {"type": "json_object"}
    result = model.generate(REQUEST, response_format=value, max_new_tokens=60)
    assert isinstance(json.loads(result.text), dict)
    free = model.generate(REQUEST)
    assert model.generate(REQUEST, response_format={"type": "text"}).text == free.text


@pytest.mark.parametrize("way", WAYS)
def test_a_budget_that_runs_out(model: clover_edge.Model, way: dict[str, Any]) -> None:
    value = schema_format(SCHEMA)
    shortest = compiled(model, value).shortest
    assert shortest is not None and matches(json.loads(model.detokenize(shortest)))
    for room in (0, 1, 3, 9):
        budget = len(shortest) + room
        result = model.generate(REQUEST, response_format=value, max_new_tokens=budget, **way)
        assert result.finish_reason == "stop"
        assert matches(json.loads(result.text))
    for budget in (len(shortest) - 1, 5, 1):  # in the first a text of longer words may have room
        result = model.generate(REQUEST, response_format=value, max_new_tokens=budget, **way)
        if result.finish_reason == "stop":
            assert budget > 5 and matches(json.loads(result.text))
        else:
            assert result.finish_reason == "length"
            assert len(result.token_ids) == budget


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"type": "array", "items": {"type": "number"}, "minItems": 6}, "[0, 0, 0, 0, 0, 0]"),
        ({"enum": ["a long one", "be", "sea"]}, '"be"'),
        ({"type": "string", "pattern": "^q.*z$"}, '"qz"'),
        ({"type": "string", "minLength": 90}, None),
    ],
)
def test_the_shortest_completion(model: clover_edge.Model, value: Any, words: str | None) -> None:
    shortest = compiled(model, schema_format(value)).shortest
    assert shortest is not None
    text = model.detokenize(shortest)
    if words is None:
        assert len(json.loads(text)) == 90
    else:
        assert text == words


@pytest.mark.parametrize("way", WAYS[:4])
def test_forced_tool_calls(model: clover_edge.Model, way: dict[str, Any]) -> None:
    result = model.generate(REQUEST, response_format=xml_calls(TOOLS), **way)
    assert result.finish_reason == "stop"
    assert result.text.startswith("<tool_call>\n<function=set_temperature>\n<parameter=room>\n")
    assert result.text.endswith("\n</parameter>\n</function>\n</tool_call>")
    result = model.generate(REQUEST, response_format=json_calls(TOOLS[:1]), **way)
    assert result.finish_reason == "stop"
    for line in result.text.split("\n</tool_call>")[:-1]:
        call = json.loads(line.strip().removeprefix("<tool_call>"))
        assert call["name"] == "set_temperature"
        assert set(call["arguments"]) == {"room", "degrees"}


def test_behind_thinking(model: clover_edge.Model) -> None:
    request = format_of(schema_format(SCHEMA))
    assert request is not None
    thought = behind_thinking(request, "</think>")
    result = model.generate(REQUEST, response_format=thought, max_new_tokens=90)
    assert result.finish_reason == "stop"
    assert matches(json.loads(result.text.partition("</think>\n\n")[2]))


@pytest.fixture(scope="module", params=["XML", "JSON"])
def chatting(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[clover_edge.Model]:
    """The demo model behind a template that has a place for tools."""
    copy = tmp_path_factory.mktemp("chat") / "model"
    with demo.pack("int4") as folder:
        shutil.copytree(f"{folder}/model", copy)
    (copy / "chat_template.jinja").write_text(getattr(chat_templates, request.param))
    with clover_edge.load(copy, threads=1) as opened:
        yield opened


@pytest.mark.parametrize("thinking", [True, False])
@pytest.mark.parametrize("name", [None, "stop_music", "set_temperature"])
def test_a_chat_whose_calls_are_forced(
    chatting: clover_edge.Model, name: str | None, thinking: bool
) -> None:
    """Also where the request would rather be told something, and of the tool that is named."""
    choice = {"type": "function", "function": {"name": name}} if name else "required"
    options = {"tools": TOOLS, "tool_choice": choice, "thinking": thinking}
    messages = [{"role": "user", "content": "hello there, how are you?"}]
    result = chatting.chat(messages, max_new_tokens=120, **options)
    assert result.finish_reason == "tool_calls" and not result.text
    assert not result.refused_calls and all(name in (None, c.name) for c in result.tool_calls)
    for call in result.tool_calls:
        wanted = {"room", "degrees"} if call.name == "set_temperature" else set()
        assert set(json.loads(call.arguments)) == wanted
    events = list(chatting.chat_stream(messages, max_new_tokens=120, **options))
    calls = [event.call for event in events if isinstance(event, ToolCallEvent)]
    assert tuple(calls) == result.tool_calls


def test_an_answer_behind_open_thinking(chatting: clover_edge.Model) -> None:
    result = chatting.chat(
        REQUEST, response_format=schema_format(SCHEMA), thinking=True, max_new_tokens=90
    )
    assert result.finish_reason == "stop" and matches(json.loads(result.text))


def test_forced_calls_that_make_no_sense(chatting: clover_edge.Model) -> None:
    model = chatting
    for choice, message in (
        ("sometimes", 'is none of "auto"'),
        ({"type": "function"}, 'is none of "auto"'),
        ({"type": "function", "function": {"name": "fly"}}, "'fly' is none of the tools"),
    ):
        with pytest.raises(ArgumentError, match=f"tool_choice: .*{message}"):
            model.chat(REQUEST, tools=TOOLS, tool_choice=choice)
    with pytest.raises(ArgumentError, match="needs tools"):
        model.chat(REQUEST, tool_choice="required")
    with pytest.raises(ArgumentError, match="forced tool calls"):
        value = schema_format(SCHEMA)
        model.chat(REQUEST, tools=TOOLS, tool_choice="required", response_format=value)


def test_a_session_goes_on_behind_a_constrained_turn(model: clover_edge.Model) -> None:
    session = model.session()
    value = schema_format(SCHEMA)
    first = session.generate(REQUEST, response_format=value)
    assert first.text == model.generate(REQUEST, response_format=value).text
    longer = [*session.tokens, *model.tokenize("and on")]
    again = session.generate(longer, response_format=value, max_new_tokens=70)
    assert again.counters.cached_tokens > 0
    assert again.text == model.generate(longer, response_format=value, max_new_tokens=70).text
    assert matches(json.loads(again.text))


def test_a_stream_is_the_same(model: clover_edge.Model) -> None:
    value = schema_format(SCHEMA)
    want = model.generate(REQUEST, response_format=value, logprobs=True, top_logprobs=2)
    events = list(model.stream(REQUEST, response_format=value, logprobs=True, top_logprobs=2))
    texts = [event for event in events if isinstance(event, TextEvent)]
    assert "".join(event.text for event in texts) == want.text
    done = events[-1]
    assert isinstance(done, DoneEvent) and done.result.token_ids == want.token_ids
    assert want.logprobs is not None and len(want.logprobs) == len(want.token_ids)
    assert tuple(each for event in texts for each in event.logprobs) == want.logprobs
    assert [each.token_id for each in want.logprobs] == list(want.token_ids)
    assert any(isinstance(event, DraftEvent) for event in events)
    for event in model.stream(REQUEST, response_format=value):
        if isinstance(event, TextEvent):
            break
    assert model.generate(REQUEST, response_format=value).text == want.text


def test_threads_keep_their_grammars_apart(model: clover_edge.Model) -> None:
    words = ["alpha", "beta", "gamma", "delta"] * 3
    found: dict[int, str] = {}

    def work(i: int, word: str) -> None:
        value = schema_format({"const": word})
        found[i] = model.generate(REQUEST, response_format=value, mode=("ar", None)[i % 2]).text

    threads = [threading.Thread(target=work, args=each) for each in enumerate(words)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [json.loads(found[i]) for i in range(len(words))] == words


BAD: list[tuple[Any, str]] = [
    ("json", "response_format: str is no mapping"),
    ({"type": "xml"}, "response_format.type: 'xml' is none of"),
    ({"type": "json_schema"}, "response_format.json_schema: NoneType is no mapping"),
    ({"type": "json_schema", "json_schema": {"name": "x"}}, "json_schema.schema: NoneType"),
    (schema_format({}, strct=True), "'strct' is none of 'name', 'schema'"),
    (schema_format({}, strict=1.5), "json_schema.strict: 1.5"),
    (schema_format({"const": {1, 2}}), "is not JSON"),
    (schema_format({"const": float("nan")}), "is not JSON"),
    (schema_format({"type": "strin"}), "Invalid type: strin"),
    (schema_format({"type": "array", "uniqueItems": True}), "uniqueItems"),
    (schema_format({"not": {"type": "null"}}), "not"),
    (schema_format({"type": "integer", "minimum": 5, "maximum": 3}), "Unsatisfiable"),
    (schema_format({"type": "string", "pattern": "(?=a)b"}), "look-around"),
    (schema_format({"$ref": "#/nope"}), "nope"),
    (schema_format({"uniqueItems": True, "x-guidance": {"lenient": True}}), "uniqueItems"),
    ({"type": "regex", "regex": "a("}, "unclosed group"),
    ({"type": "regex"}, "response_format.regex: None is no text"),
    ({"type": "lark", "grammar": "start: nothing"}, "nothing"),
    ({"type": "json_object", "schema": {}}, "'schema' is none of 'type'"),
]


@pytest.mark.parametrize(("value", "message"), BAD)
def test_bad_requests(model: clover_edge.Model, value: Any, message: str) -> None:
    with pytest.raises(ArgumentError) as error:
        model.stream(REQUEST, response_format=value)
    assert message in str(error.value)


@pytest.mark.parametrize(
    "options",
    [{"stop": "x"}, {"steps": 4}, {"strategy": "sequential"}, {"edit_threshold": 0.5}],
)
def test_options_that_do_not_go_with_it(model: clover_edge.Model, options: Any) -> None:
    with pytest.raises(ArgumentError, match=f"{next(iter(options))}: .* response_format"):
        model.generate(REQUEST, response_format=schema_format(SCHEMA), **options)


def test_an_error_inside_the_matcher(
    model: clover_edge.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A grammar that runs into llguidance's limits in the middle of a text."""
    value = schema_format(SCHEMA)
    grammar = compiled(model, value)
    monkeypatch.setattr(grammar, "_start", _Failing(grammar._start))
    with pytest.raises(CloverError, match="response_format: too complex"):
        model.generate(REQUEST, response_format=value)
    monkeypatch.undo()
    assert matches(json.loads(model.generate(REQUEST, response_format=value).text))


class _Failing:
    """A matcher whose third run of tokens goes wrong."""

    def __init__(self, matcher: Any) -> None:
        self._matcher, self._told = matcher, 0

    def deep_copy(self) -> _Failing:
        return _Failing(self._matcher.deep_copy())

    def consume_tokens(self, tokens: list[int]) -> bool:
        self._told += 1
        return self._told < 3 and self._matcher.consume_tokens(tokens)

    def is_error(self) -> bool:
        return self._told >= 3

    def get_error(self) -> str:
        return "too complex"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._matcher, name)


def test_without_the_extra(model: clover_edge.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(ArgumentError, match=r"clover-edge\[grammar\]"):
        model.generate(REQUEST, response_format={"type": "regex", "regex": "never seen"})


def test_a_compiled_request_is_taken_as_it_is(model: clover_edge.Model) -> None:
    request = ResponseFormat("regex", "ab?c")
    assert model.generate(REQUEST, response_format=request).text in ("ac", "abc")
