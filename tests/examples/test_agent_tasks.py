"""The agent example's tasks: what is held out, and that training learns what the judge wants."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from episodes import Episode, draw_values, episode, office, play, word
from goals import GOALS
from held_out import TASKS, held_out_requests, normalise
from held_out_tasks import held_out_tasks
from loosen import loosen
from tokens import CHAT_TEMPLATE, chat_prompt
from world import World, judge

from clover_edge import demo
from clover_edge.chat.template import ChatTemplate


def held_out() -> list[dict[str, Any]]:
    return [json.loads(line) for line in TASKS.read_text(encoding="utf-8").splitlines()]


def test_the_file_is_what_the_script_writes() -> None:
    assert held_out() == held_out_tasks()


def test_held_out_tasks_cover_the_goals_and_are_refused() -> None:
    tasks = held_out()
    assert len(tasks) >= 200
    kinds = Counter((task["id"].rsplit("-", 1)[0], task["values"]) for task in tasks)
    assert kinds == {(goal.name, values): 5 for goal in GOALS for values in ("known", "new")}
    refused = held_out_requests()
    assert all(normalise(task["request"]) in refused for task in tasks)
    assert len({normalise(task["request"]) for task in tasks}) == len(tasks)


def test_training_draws_no_held_out_request() -> None:
    pytest.importorskip("torch")
    from batches import Stream
    from model import Config
    from tokenizers import Tokenizer

    tok = Tokenizer.from_file(str(demo.checkpoint_path() / "tokenizer.json"))
    stream = Stream(Config(), tok, seed=5, rows=1024)
    stream.mix.episodes = 0.5
    refused = stream.refused
    drawn = [tok.decode(stream.example()[0], skip_special_tokens=False) for _ in range(300)]
    asked = [
        [
            normalise(part.split("<|im_end|>")[0])
            for part in text.split("<|im_start|>user\n")[1:]
            if not part.startswith("<tool_response>")
        ]
        for text in drawn
    ]
    assert not refused & {request for requests in asked for request in requests}
    assert 5 < sum(len(requests) == 2 for requests in asked) < 100  # behind an earlier exchange
    assert sum("<tool_response>" in text for text in drawn) > 30

    again, third = (Stream(Config(), tok, seed=5, rows=1024) for _ in range(2))
    again.refused, again.mix.episodes = {requests[-1] for requests in asked}, 0.5
    assert tok.decode(again.example()[0], skip_special_tokens=False) not in drawn
    third.rng.seed(7)
    first = normalise(third.earlier()[0]["content"])
    third.rng.seed(7)
    third.refused = {first}
    assert normalise(third.earlier()[0]["content"]) != first


@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: goal.name)
def test_what_is_taught_is_what_the_judge_wants(goal: Any) -> None:
    rng = random.Random(goal.name)
    for _ in range(30):
        request, values = word(rng, goal, draw_values(rng, goal, 0.3, False), wide=True)
        done = play(goal, request, values, office(rng, goal, values))
        answer = done.messages[-1]["content"]
        world = World(done.data, done=done.changes)
        task = {"changes": done.changes, "facts": done.facts}
        assert judge(task, world, answer).done
        assert [m["role"] for m in done.messages[:2]] == ["user", "assistant"]
        assert done.turns[-1] == (len(done.messages) - 1, answer)
        assert all(value in request for value in values.values())


def some_episode(turns: int) -> Episode:
    rng = random.Random(turns)
    while True:
        done = episode(rng, 0.3)
        if len(done.turns) == turns:
            return done


def test_every_turn_reads_as_it_was_written() -> None:
    """The template turns the calls of a message into the text that the turn was taught as."""
    done = some_episode(4)
    whole = chat_prompt(done.messages)
    for before, answer in done.turns:
        prompt = chat_prompt(done.messages[:before])
        assert whole.startswith(prompt + answer + "<|im_end|>\n")


def test_loosened_requests_keep_their_values() -> None:
    rng = random.Random(3)
    for _ in range(50):
        done = episode(rng, 0.3)
        loosened = loosen(rng, done.request, done.values.values())
        assert all(value in loosened for value in done.values.values())


def template() -> ChatTemplate:
    return ChatTemplate(CHAT_TEMPLATE, "chat_template.jinja", {})


def test_a_single_request_renders_as_ever() -> None:
    text = template().render([{"role": "user", "content": " hi\n<b> "}], tools=[{"name": "x"}])
    assert text == "<|im_start|>user\n hi\n<b> <|im_end|>\n<|im_start|>assistant\n"


def test_the_bundled_template_is_the_trained_one() -> None:
    path = Path(demo.checkpoint_path()) / "chat_template.jinja"
    assert path.read_text(encoding="utf-8") == CHAT_TEMPLATE + "\n"


def test_a_chat_with_calls_and_results() -> None:
    calls = [
        {"function": {"name": "get_price", "arguments": {"item": "mugs"}}},
        {"name": "checkout", "arguments": {}},
        {"function": {"name": "add_to_cart", "arguments": {"quantity": 2, "gift": True}}},
    ]
    messages = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b", "tool_calls": calls},
        {"role": "tool", "content": "c"},
        {"role": "tool", "content": "d"},
        {"role": "assistant", "content": None, "tool_calls": calls[1:2]},
        {"role": "tool", "content": "e"},
    ]
    assert template().render(messages) == (
        "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\na<|im_end|>\n"
        "<|im_start|>assistant\nb\n<tool_call>\n<function=get_price>\n<parameter=item>\nmugs\n"
        "</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=checkout>\n</function>\n"
        "</tool_call>\n<tool_call>\n<function=add_to_cart>\n<parameter=quantity>\n2\n"
        "</parameter>\n<parameter=gift>\ntrue\n</parameter>\n</function>\n</tool_call><|im_end|>\n"
        "<|im_start|>user\n<tool_response>\nc\n</tool_response>\n<tool_response>\nd\n"
        "</tool_response><|im_end|>\n<|im_start|>assistant\n<tool_call>\n<function=checkout>\n"
        "</function>\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\ne\n"
        "</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )
