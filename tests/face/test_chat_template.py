"""Chat templates: Hugging Face's conventions, in a sandbox."""

from __future__ import annotations

from pathlib import Path

import pytest

from clover_edge.chat_template import ChatTemplate, read_template
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
    tools = [{"name": "a<b>&'é"}]
    assert render("{{ tools[0]|tojson }}", tools=tools) == '{"name": "a<b>&\'é"}'
    assert render("{{ tools[0]|tojson(indent=2) }}", tools=tools).startswith('{\n  "name"')


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


@pytest.mark.parametrize(
    ("messages", "place"),
    [
        ([], "messages: the list is empty"),
        (["hi"], r"messages\[0\]: is str"),
        ([{"content": "hi"}], r"messages\[0\].role: None"),
        ([USER, {"role": ""}], r"messages\[1\].role: ''"),
        ([{"role": "user"}], r"messages\[0\].content: is missing"),
        ([{"role": "user", "content": 3}], r"messages\[0\].content: int"),
        ([{"role": "user", "content": "a\ud800"}], r"messages\[0\].content: .* at character 1 "),
    ],
)
def test_messages_that_are_none(messages: list[object], place: str) -> None:
    with pytest.raises(ArgumentError, match=place):
        ChatTemplate("x", "", {}).render(messages)  # type: ignore[arg-type]
