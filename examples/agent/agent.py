"""The loop of an agent: ask the model, run the tools it calls, feed the results back, repeat."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from world import World, judge

Message = dict[str, Any]  # as the OpenAI API has it
Ask = Callable[[list[Message]], Message]  # the chat so far -> the assistant's next message

TURNS = 8  # the longest task takes five


@dataclass(frozen=True)
class Outcome:
    """How one task went."""

    task: dict[str, Any]
    done: bool
    reason: str  # why it was not done
    messages: list[Message]
    seconds: float


def run_task(task: dict[str, Any], ask: Ask) -> Outcome:
    """Lets the model work on a task until it answers without a call."""
    world = World(task["data"])
    messages: list[Message] = [{"role": "user", "content": task["request"]}]
    started = time.perf_counter()
    for _ in range(TURNS):
        message = ask(messages)
        messages.append(message)
        calls = message.get("tool_calls")
        if not calls:
            verdict = judge(task, world, message.get("content") or "")
            break
        for call in calls:
            result = run_call(world, call["function"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
    else:
        verdict = judge(task, world, "")
    seconds = time.perf_counter() - started
    return Outcome(task, verdict.done, verdict.reason, messages, seconds)


def run_call(world: World, function: dict[str, str]) -> str:
    """One call of the model's; arguments that are no text are read as their JSON."""
    arguments = json.loads(function["arguments"])
    texts = {k: v if isinstance(v, str) else json.dumps(v) for k, v in arguments.items()}
    return world.call(function["name"], texts)


def transcript(outcome: Outcome) -> str:
    """What happened, a line a call, a result, an answer."""
    lines = [f"> {outcome.task['request']}"]
    for message in outcome.messages[1:]:
        for call in message.get("tool_calls") or []:
            values = ", ".join(
                f"{k}={v}" for k, v in json.loads(call["function"]["arguments"]).items()
            )
            lines.append(f"  {call['function']['name']}({values})")
        if message["role"] == "tool":
            lines.append("    " + message["content"].replace("\n", ", "))
        elif message.get("content"):
            lines.append(f"  {message['content']}")
    lines.append("  done" if outcome.done else f"  NOT DONE: {outcome.reason}")
    return "\n".join(lines)
