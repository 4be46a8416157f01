"""Chat templates: Hugging Face's conventions, in a sandbox."""

from __future__ import annotations

from pathlib import Path

import pytest
from chat_templates import GEMMA, JSON, XML

from clover_edge.chat import ChatTemplate, read_template
from clover_edge.errors import ArgumentError, ModelFormatError

USER = {"role": "user", "content": "hi"}


def render(source: str, **variables: object) -> str:
    return ChatTemplate(source, "chat_template.jinja", {"eos_token": "</s>"}).render(
        [USER], **variables
    )


def test_conventions() -> None:
    assert render("{{ messages[0].content }}{{ eos_token }}") == "hi</s>"
    assert render("{% if true %}\n  x\n{% endif %}\n") == "  x\n"
    assert (
        render("{% for i in [1,2,3] %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}")
        == "1"
    )
    assert render("{{ add_generation_prompt }} {{ tools is none }}") == "True True"
    assert render("{{ enable_thinking }}", enable_thinking=False) == "False"
    assert render("{{ strftime_now('%Y')|length }}") == "4"


def test_tojson_keeps_what_models_were_trained_on() -> None:
    text = "a<b>&'é"
    assert render("{{ text|tojson }}", text=text) == '"a<b>&\'é"'
    assert render("{{ [text]|tojson(indent=2) }}", text=text).startswith('[\n  "a<b')


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('roles must alternate') }}",
        "{{ messages.__class__.__mro__[1].__subclasses__() }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update(role='x') }}",
        "{{ 1 / 0 }}",
        "{{ missing.field }}",
        "{{ 'a' + 1 }}",
        "{% for i in range(10**9) %}{% endfor %}",
    ],
)
def test_a_template_that_refuses_or_breaks_out(source: str) -> None:
    with pytest.raises(ArgumentError, match="messages: the chat template"):
        render(source)


def test_a_template_that_does_not_compile(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text("a\n{% if %}")
    with pytest.raises(ModelFormatError, match=r"chat_template\.jinja: chat_template: line 2"):
        read_template(tmp_path, {})


def test_where_a_template_comes_from(tmp_path: Path) -> None:
    assert read_template(tmp_path, {}) is None
    (tmp_path / "tokenizer_config.json").write_text('{"chat_template": "config"}')
    assert read_template(tmp_path, {}).render([USER]) == "config"
    (tmp_path / "chat_template.jinja").write_text("file")
    assert read_template(tmp_path, {}).render([USER]) == "file"
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(ModelFormatError, match="not UTF-8"):
        read_template(tmp_path, {})


def test_tools_that_a_template_would_lose() -> None:
    """Naming them in a comment or a text is not enough."""
    for source in ("{{ messages[0].content }}", "{# tools #}tools"):
        with pytest.raises(ArgumentError, match=r"tools: chat_template\.jinja has no place"):
            render(source, tools=[{"name": "f"}])
        assert render(source, tools=[]) == render(source)


@pytest.mark.parametrize(
    ("source", "calls", "markers"),
    [
        (XML, "XmlCalls", ("<think>", "</think>", "<tool_call>", "</tool_call>")),
        (JSON, "JsonCalls", ("<think>", "</think>", "<tool_call>", "</tool_call>")),
        ("<TOOLCALL>", "BracketCalls", ("<think>", "</think>", "<TOOLCALL>", "</TOOLCALL>")),
        (
            GEMMA,
            "GemmaCalls",
            ("<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", '<|"|>'),
        ),
        ("{{ messages }}", "NoneType", ("<think>", "</think>")),
    ],
)
def test_the_forms_of_a_template(source: str, calls: str, markers: tuple[str, ...]) -> None:
    template = ChatTemplate(source, "", {})
    assert type(template.calls).__name__ == calls
    assert template.markers == markers
