"""Published chat templates, which are not ours to copy: calls, there and back."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from clover_edge.chat import AnswerParser, ChatTemplate

FOLDER = os.environ.get("CLOVER_TEST_TEMPLATES", "")
TEMPLATES = sorted(Path(FOLDER).glob("*.jinja")) if FOLDER else []
ARGUMENTS = {
    "text": 'a\n</parameter> "q" </tool_call> é🙂 <function=f>',
    "whole": 3,
    "number": 1.5,
    "flag": True,
    "list": [1, "x"],
    "object": {"k": "</tool_call>"},
}
KINDS = {"text": "string", "whole": "integer", "number": "number", "flag": "boolean"}
KINDS |= {"list": "array", "object": "object"}
SCHEMA = {"type": "object", "properties": {key: {"type": kind} for key, kind in KINDS.items()}}


@pytest.mark.skipif(not TEMPLATES, reason="CLOVER_TEST_TEMPLATES names no folder of *.jinja")
@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_calls_come_back(path: Path) -> None:
    template = ChatTemplate(path.read_text(), str(path), {"bos_token": "<s>", "eos_token": "</s>"})
    tools: list[Any] = [{"name": "f", "description": "d", "parameters": SCHEMA}]
    asked = [{"role": "user", "content": "hi"}]
    if template.calls is None:
        assert template.render(asked)
        return
    calls = [
        {"id": name, "function": {"name": "f", "arguments": json.dumps(arguments)}}
        for name, arguments in (("c", ARGUMENTS), ("d", {}))
    ]
    answered = [*asked, {"role": "assistant", "content": "Ok.", "tool_calls": calls}]
    prompt = template.render(asked, tools=tools)
    whole = template.render(answered, tools=tools, add_generation_prompt=False)
    answer = whole[whole.index(template.calls.opening, len(prompt) - 60) :]
    parser = AnswerParser(template.calls, template.thinking, {"f": SCHEMA})
    parser.push(answer)
    parser.finish()
    assert [json.loads(call.arguments) for call in parser.tool_calls] == [ARGUMENTS, {}]
    assert not parser.refused_calls
