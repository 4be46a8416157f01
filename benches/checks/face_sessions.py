"""Sessions: what a turn says against a cold prompt, what it computes, what a long context saves."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from checks.row import Context, Row, at_least, at_most
from forward_cases import Bench, Ids
from synthetic import SHAPES

from clover_edge import Model, TextEvent, load
from clover_edge.corpus import TASK_SETS, task_rows
from clover_edge.generation import MODES
from clover_edge.sessions import Session

CONVERSATIONS, TURNS = 100, 4  # of the demo model
HELD, NEW, THREADS = 4000, 50, 2
TAKEN = 3  # times of each


def turns_against_cold_prompts(context: Context) -> Iterator[Row]:
    """Held-out requests, several to a conversation, some edited or asked again."""
    requests = [row["request"] for name in TASK_SETS for row in task_rows(name)]
    rng = random.Random("conversations")
    turns: list[_Turn] = []
    with load(context.demo_model("int4")) as model:
        for n in range(context.limit or CONVERSATIONS):
            mode = MODES[n % len(MODES)]
            turns += _conversation(model, rng, requests, mode)
    told = f"{len(turns)} turns in {len(MODES)} modes"
    differing = sum(turn.differs for turn in turns)
    yield at_most("sessions: turns that differ from a cold prompt", differing, 0, "{}", "", told)
    goes_on = [turn for turn in turns if turn.goes_on]
    respelt = sum(turn.respelt for turn in goes_on)
    told = (
        f"{len(goes_on)} turns that go on; in {respelt} the template and the tokenizer spell the "
    )
    told += "answer before with other ids: it is new, too"
    extra = sum(abs(turn.computed - turn.new) for turn in goes_on)
    yield at_most("sessions: rows computed that are not new", extra, 0, "{}", "", told)


@dataclass(frozen=True)
class _Turn:
    differs: bool  # from a cold prompt
    goes_on: bool  # nothing of the conversation was edited
    respelt: bool
    new: int  # tokens behind what the session held, or behind the prompt before where respelt
    computed: int  # rows, in front of the first block


def _conversation(
    model: Model, rng: random.Random, requests: list[str], mode: str
) -> Iterator[_Turn]:
    """The last turn edits the one before it."""
    session = model.session()
    messages: list[dict[str, str]] = []
    options: dict[str, Any] = {"mode": mode, "temperature": 0, "max_new_tokens": 96}
    before: list[int] = []
    for turn in range(TURNS + 1):
        if turn == TURNS:
            del messages[-2:]
        messages.append({"role": "user", "content": rng.choice(requests)})
        prompt = model.chat_prompt(messages)
        held = session.tokens
        respelt = tuple(prompt[: len(held)]) != held
        rows = model.core.counters["rows"]
        found = session.generate(prompt, **options)
        rows = model.core.counters["rows"] - rows - found.counters.rows
        differs = found.token_ids != model.generate(prompt, **options).token_ids
        new = len(prompt) - len(before if respelt else held)
        yield _Turn(differs, turn < TURNS, respelt, new, rows)
        before = prompt
        messages.append({"role": "assistant", "content": found.text})


def first_block_behind_a_long_session(context: Context) -> Iterator[Row]:
    """From the call to the first block's text, one step a block: a turn of 50 tokens behind 4,000,
    and a cold prompt of the same 4,050."""
    bench = Bench(context.models, SHAPES["100m"], "100m", THREADS)
    path = _with_tokenizer(bench.path("int4"))
    options = {"steps": 1, "max_new_tokens": 32, "temperature": 0}
    with load(path, threads=THREADS) as model:
        ids = Ids(model.spec["vocab_size"])
        session, held = model.session(), ids(HELD)
        session.generate(held, **options)
        prompt = [*held, *ids(NEW)]
        turns = [session.fork(HELD) for _ in range(TAKEN)]
        warm = [_first_block(turn, prompt, options) for turn in turns]
        cold = [_first_block(model, prompt, options) for _ in range(TAKEN)]
    ratio = median(cold) / median(warm)
    note = f"{1e3 * median(warm):.0f} ms against {1e3 * median(cold):.0f} ms, 100 M synthetic"
    label = "sessions: first block, 50 tokens behind 4,000, against cold"
    yield at_least(label, ratio, 10, "{:.1f}", "x", note)


def _first_block(of: Model | Session, prompt: list[int], options: dict[str, Any]) -> float:
    """Seconds to the first final text."""
    started = time.perf_counter()
    with closing(of.stream(prompt, **options)) as events:
        for event in events:
            if isinstance(event, TextEvent):
                return time.perf_counter() - started
    raise RuntimeError("no text was written")


def _with_tokenizer(folder: Path) -> Path:
    """The folder, with a word for every id: a synthetic model comes without."""
    spec = json.loads((folder / "config.json").read_text())["clover_edge"]["spec"]
    words = {f"w{token}": token for token in range(spec["vocab_size"])}
    model = {"type": "WordLevel", "vocab": words, "unk_token": "w0"}
    (folder / "tokenizer.json").write_text(json.dumps({"version": "1.0", "model": model}))
    return folder


CHECKS = (turns_against_cold_prompts, first_block_behind_a_long_session)
