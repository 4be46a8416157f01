"""Exact match on the demo model's task: spoken requests to tool calls.

Exact: the parsed calls equal the wanted ones. Valid: the answer parses and has ended. Tools: the
right tools in the right order, whatever their arguments. Tokens per forward: tokens up to and
including the stop token, by previews and commits of all answers together.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from ..model import Model

MAX_NEW_TOKENS = 256
REFUSAL = "No tool fits this request."

_PARAMETER = r"<parameter=([a-z_]+)>\n([^\n]*)\n</parameter>\n"
_CALL = re.compile(
    rf"<tool_call>\n<function=([a-z_]+)>\n((?:{_PARAMETER})*)</function>\n</tool_call>(?:\n|$)"
)

Call = dict[str, Any]
Example = dict[str, Any]  # request, calls, answer
Answer = tuple[bool, bool, bool, int, int]  # exact, valid, tools, tokens, forwards


@dataclass(frozen=True)
class Score:
    """Shares of n answers, and what they cost."""

    n: int
    exact: float
    valid: float
    tools: float
    tokens: int
    forwards: int
    seconds: float

    @property
    def tokens_per_forward(self) -> float:
        return self.tokens / self.forwards

    @property
    def error(self) -> float:
        """Standard error of `exact`."""
        return math.sqrt(self.exact * (1 - self.exact) / self.n)

    def as_dict(self) -> dict[str, Any]:
        """Without the time, which no two runs share."""
        return {
            "requests": self.n,
            "exact": self.exact,
            "exact_error": self.error,
            "valid": self.valid,
            "tools": self.tools,
            "tokens_per_forward": self.tokens_per_forward,
        }


def parse_answer(text: str) -> list[Call] | None:
    """The calls of an answer, `[]` for the refusal, None when it is malformed."""
    text = text.strip("\n")
    if text == REFUSAL:
        return []
    calls, position = [], 0
    while match := _CALL.match(text, position):
        pairs = re.findall(_PARAMETER, match[2])
        if len({key for key, _ in pairs}) != len(pairs):
            return None
        calls.append({"name": match[1], "arguments": dict(pairs)})
        position = match.end()
    return calls if calls and position == len(text) else None


def score(
    models: Sequence[Model],
    examples: Sequence[Example],
    *,
    progress: Callable[[int], None] | None = None,
    **options: Any,
) -> Score:
    """Answers every request. `models`: the same one, opened as often as requests shall run at a
    time (threads change no text). `progress(n)`: n more are done. `options`: as for generate()."""
    parts = [examples[i :: len(models)] for i in range(len(models))]
    started = time.perf_counter()

    def answers(model: Model, part: Sequence[Example]) -> list[Answer]:
        out = []
        for example in part:
            out.append(_answer(model, example, options))
            if progress is not None:
                progress(1)
        return out

    with ThreadPoolExecutor(len(models)) as pool:
        found = [answer for part in pool.map(answers, models, parts) for answer in part]
    n = len(found)
    exact, valid, tools, tokens, forwards = (sum(column) for column in zip(*found, strict=True))
    seconds = time.perf_counter() - started
    return Score(n, exact / n, valid / n, tools / n, tokens, forwards, seconds)


def _answer(model: Model, example: Example, options: dict[str, Any]) -> Answer:
    messages = [{"role": "user", "content": example["request"]}]
    result = model.generate(messages, **{"max_new_tokens": MAX_NEW_TOKENS, **options})
    calls = parse_answer(result.text)
    valid = calls is not None and result.finish_reason == "stop"
    names = [call["name"] for call in calls or []]
    tools = valid and names == [call["name"] for call in example["calls"]]
    exact = valid and calls == example["calls"]
    return exact, valid, tools, result.counters.tokens, result.counters.forward_passes
