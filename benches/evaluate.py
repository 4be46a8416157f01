"""Scores a packed demo model on held-out requests, and compares the logits of two packings.

    python benches/evaluate.py PACKED --set combinations --threshold 0.9
    python benches/evaluate.py PACKED --set combinations --against PACKED_F32

Exact: the parsed calls equal the wanted ones. Valid: the answer parses. Tools: the right tools in
the right order, whatever their arguments. Tokens per forward: tokens up to and including the stop
token, by previews and commits of all answers together.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import clover_edge
from clover_edge import _core

DEMO_MODEL = Path(__file__).parents[1] / "examples" / "demo_model"
SETS = ("combinations", "wordings", "made_up")
MAX_NEW_TOKENS = 256

Example = dict[str, Any]


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

    def __str__(self) -> str:
        return (
            f"exact {self.exact:.1%} +- {self.error:.1%}, valid {self.valid:.1%}, tools "
            f"{self.tools:.1%}, {self.tokens_per_forward:.2f} tokens per forward, n = {self.n}, "
            f"{self.seconds:.0f} s"
        )


def held_out(name: str) -> list[Example]:
    """The rows of a held-out set: request, calls, answer."""
    text = (DEMO_MODEL / "held_out" / f"{name}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def score(
    path: Path, examples: Sequence[Example], *, workers: int | None = None, **options: Any
) -> Score:
    """Answers every request, one single-threaded process per core (threads change no text)."""
    workers = min(workers or _core.default_threads(), len(examples))
    options = {"max_new_tokens": MAX_NEW_TOKENS, **options}
    parts = [list(examples[i::workers]) for i in range(workers)]
    started = time.perf_counter()
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        answers = [
            answer
            for part in pool.map(partial(_answers, str(path), options=options), parts)
            for answer in part
        ]
    n = len(answers)
    exact, valid, tools, tokens, forwards = (sum(column) for column in zip(*answers, strict=True))
    seconds = time.perf_counter() - started
    return Score(n, exact / n, valid / n, tools / n, tokens, forwards, seconds)


def _answers(
    path: str, examples: Sequence[Example], options: dict[str, Any]
) -> list[tuple[bool, bool, bool, int, int]]:
    """Per example: exact, valid, tools, tokens, forwards."""
    sys.path.insert(0, str(DEMO_MODEL))
    from generate import parse_answer

    out = []
    with clover_edge.load(path, threads=1) as model:
        for example in examples:
            result = model.chat([{"role": "user", "content": example["request"]}], **options)
            calls = parse_answer(result.text)
            valid = calls is not None and result.finish_reason == "stop"
            names = [call["name"] for call in calls or []]
            tools = valid and names == [call["name"] for call in example["calls"]]
            exact = valid and calls == example["calls"]
            counters = result.counters
            out.append((exact, valid, tools, counters.tokens, counters.forward_passes))
    return out


def divergence(
    reference: Path, packed: Path, examples: Sequence[Example], *, seed: int = 0
) -> tuple[float, int]:
    """Mean KL(reference || packed) in nats over masked positions, and how many there were.

    Each wanted answer is walked in the model's own blocks: a preview of the block with a random
    share of its positions masked, then its commit. Padding ids and the mask id are left out.
    """
    rng = np.random.default_rng(seed)
    total, rows = 0.0, 0
    with clover_edge.load(reference) as a, clover_edge.load(packed) as b:
        spec = a.spec
        real = np.arange(spec["valid_vocab"]) != spec["mask_token_id"]
        for example in examples:
            states = [model.core.new_state(spec["max_positions"]) for model in (a, b)]
            for before, noisy, masked in _blocks(a, example, rng):
                logs = []
                for model, state in zip((a, b), states, strict=True):
                    model.core.commit(state, before, logits="none")
                    logits = model.core.preview(state, noisy, rows=masked)[:, : len(real)]
                    logs.append(_log_softmax(logits[:, real].astype(np.float64)))
                total += float((np.exp(logs[0]) * (logs[0] - logs[1])).sum())
                rows += len(masked)
    return total / rows, rows


def _blocks(
    model: clover_edge.Model, example: Example, rng: np.random.Generator
) -> list[tuple[list[int], list[int], list[int]]]:
    """(ids to commit first, the noisy block, its masked rows) of each block of the answer."""
    width, mask = model.spec["block_size"], model.spec["mask_token_id"]
    stop = model.info()["generation"]["eos_token_id"][0]
    before = model.chat_prompt([{"role": "user", "content": example["request"]}])
    ids = [*model.tokenize(example["answer"]), stop]
    ids += [stop] * (-len(ids) % width)
    out = []
    for start in range(0, len(ids), width):
        block = ids[start : start + width]
        hidden = rng.random(width) < rng.uniform(0.1, 1.0)
        hidden[rng.integers(width)] = True  # at least one
        noisy = [mask if gone else token for token, gone in zip(block, hidden, strict=True)]
        out.append((before, noisy, np.flatnonzero(hidden).tolist()))
        before = block
    return out


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, metavar="PACKED")
    parser.add_argument("--set", choices=SETS, action="append", help="default: all three")
    parser.add_argument("--limit", type=int, help="only the first N requests")
    parser.add_argument("--against", type=Path, help="also: KL of this packing's logits to ours")
    parser.add_argument("--threshold", type=float)
    parser.add_argument("--block-length", type=int)
    parser.add_argument("--mode", choices=("diffusion", "ar"))
    arguments = parser.parse_args()
    options = {
        name: value
        for name in ("threshold", "block_length", "mode")
        if (value := getattr(arguments, name)) is not None
    }
    for name in arguments.set or SETS:
        examples = held_out(name)[: arguments.limit]
        print(f"{name}: {score(arguments.model, examples, **options)}", flush=True)
        if arguments.against:
            kl, rows = divergence(arguments.against, arguments.model, examples)
            print(f"{name}: KL {kl:.5f} nats over {rows} masked positions", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
