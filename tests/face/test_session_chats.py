"""Chats in sessions: what a template puts before an answer and takes away again."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import clover_edge
from clover_edge.sessions.openings import lasting, lost_openings

SHORT: dict[str, Any] = {"max_new_tokens": 20, "temperature": 0}
FORGETFUL = """{%- for message in messages %}{{- '<|im_start|>' + message.role + '\n' }}
{{- message.content + '<|im_end|>\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n<think>\n' }}
{%- if enable_thinking is defined and not enable_thinking %}{{- '\n</think>\n\n' }}{% endif %}
{%- endif %}"""


@pytest.fixture(scope="module")
def thinker(packed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[clover_edge.Model]:
    """A template that opens thinking in front of an answer and forgets it afterwards."""
    copy = tmp_path_factory.mktemp("chat") / "model"
    shutil.copytree(packed, copy)
    (copy / "chat_template.jinja").write_text(FORGETFUL)
    with clover_edge.load(copy, threads=1) as opened:
        yield opened


@pytest.mark.parametrize("thinking", [None, True, False])
def test_chats(thinker: clover_edge.Model, thinking: bool | None) -> None:
    """What an opened `<think>` begins is not repeated; the turn before it is still there."""
    session, messages = thinker.session(snapshot_every=0), [{"role": "user", "content": "hi"}]
    options: dict[str, Any] = {**SHORT, "thinking": thinking}
    turns = []
    for _ in range(3):
        found = session.chat(messages, **options)
        want = thinker.chat(messages, **options)
        assert (found.text, found.thinking, found.token_ids) == (
            want.text,
            want.thinking,
            want.token_ids,
        )
        turns.append(found.counters)
        messages = [*messages, found.message(), {"role": "user", "content": "and?"}]
    for before, after in itertools.pairwise(turns):
        opening = lost_openings(thinker)
        assert opening
        assert after.cached_tokens >= before.prompt_tokens - max(map(len, opening))
    events = list(session.chat_stream(messages, **options))
    assert isinstance(events[-1], clover_edge.ChatDoneEvent)
    assert events[-1].result.token_ids == thinker.chat(messages, **options).token_ids


def test_openings(model: clover_edge.Model, thinker: clover_edge.Model) -> None:
    """This template repeats what it puts in front of an answer, that one does not."""
    assert lost_openings(model) == []
    for opening in lost_openings(thinker):
        assert "think" in thinker.codec.tokenizer.decode(opening, skip_special_tokens=False)
    assert lasting([1, 2, 3, 4], [[2, 3, 4], [4]]) == 1
    assert lasting([1, 2, 3], [[4], [1, 2, 3]]) == 3
