"""Write and read the held-out sets of the demo model.

Run as a script to rewrite them.  Training uses integer seeds; the sets come
from text seeds, and training drops any request that ``held_out_requests`` contains.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from pathlib import Path

from generate import (
    BY_NAME,
    CLOSERS,
    COMMAND_OPENERS,
    COMPILED_WIDE,
    OFF_TOPIC_WIDE,
    OTHER_OPENERS,
    STRONG_JOINERS,
    WEAK_JOINERS,
    Example,
    format_answer,
    sample,
)
from held_out_wordings import SKELETONS
from phrasings import MORE_CLOSERS, MORE_OPENERS
from vocabulary import fill, is_open

DIRECTORY = Path(__file__).parents[2] / "src" / "clover_edge" / "corpora"
TASKS = Path(__file__).parents[1] / "agent" / "tasks.jsonl"  # written by held_out_tasks.py
NAMES = ("combinations", "wordings", "made_up")
COMBINATIONS = 1200
MADE_UP = 400
FILLS = 3
PROBE = 200_000
SLOT_RE = re.compile(r"\{([^}]*)\}")


def normalise(request: str) -> str:
    """Return the form in which requests are compared: lower case, no final punctuation."""
    return " ".join(request.lower().split()).rstrip(" .?!")


def load(name: str) -> list[dict]:
    """Read one held-out set."""
    with (DIRECTORY / f"{name}.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def held_out_requests() -> set[str]:
    """Return every held-out request and goal, normalised, as training compares them."""
    requests = {normalise(row["request"]) for name in NAMES for row in load(name)}
    with TASKS.open(encoding="utf-8") as lines:
        return requests | {normalise(json.loads(line)["request"]) for line in lines}


# --- sets by the generator -------------------------------------------------------------------


def combinations() -> list[Example]:
    """Draw requests of known values that a long stream of training samples does not hold."""
    probe_rng = random.Random("held-out probe")
    taken = {normalise(sample(probe_rng, probe_rng.choice((0.0, 0.3))).request)
             for _ in range(PROBE)}
    rng = random.Random("held-out combinations")
    result = []
    while len(result) < COMBINATIONS:
        example = sample(rng, 0.0)
        key = normalise(example.request)
        if key not in taken:
            taken.add(key)
            result.append(example)
    return result


def _has_open_slot(example: Example) -> bool:
    return any(
        is_open(BY_NAME[call["name"]][0].parameters[key])
        for call in example.calls
        for key in call["arguments"]
    )


def made_up() -> list[Example]:
    """Draw requests whose open slots, at least one each, all hold made-up words."""
    rng = random.Random("held-out made-up words")
    result: dict[str, Example] = {}
    while len(result) < MADE_UP:
        example = sample(rng, 1.0)
        if _has_open_slot(example):
            result.setdefault(normalise(example.request), example)
    return list(result.values())


# --- hand-written wordings -------------------------------------------------------------------


def _slot(body: str, tools: list) -> tuple[int, str, str]:
    """Return the call index, parameter and kind that a skeleton's slot stands for."""
    key, _, kind = body.partition(":")
    index = 1 if key.startswith("b.") else 0
    key = key.removeprefix("b.")
    return index, key, kind or tools[index].parameters[key]


def _fill_skeleton(rng: random.Random, names: str, skeleton: str) -> Example:
    tools = [BY_NAME[name][0] for name in names.split("+") if name]
    found: list[dict[str, str]] = [{} for _ in tools]
    used: set[str] = set()

    def value_for(match: re.Match) -> str:
        index, key, kind = _slot(match[1], tools)
        value = fill(rng, kind, 0.0)
        while value in used:
            value = fill(rng, kind, 0.0)
        used.add(value)
        if key != "x":
            found[index][key] = value
        return value

    request = SLOT_RE.sub(value_for, skeleton)
    request = request[0].upper() + request[1:] if skeleton[0].isupper() else request
    calls = [
        {"name": tool.name, "arguments": {key: got[key] for key in tool.parameters if key in got}}
        for tool, got in zip(tools, found, strict=True)
    ]
    return Example(request, calls, format_answer(calls))


def wordings() -> list[Example]:
    """Fill each hand-written skeleton with different known values."""
    rng = random.Random("held-out wordings")
    result: dict[str, Example] = {}
    for names, skeleton in SKELETONS:
        for _ in range(FILLS if "{" in skeleton else 1):
            example = _fill_skeleton(rng, names, skeleton)
            while normalise(example.request) in result:
                example = _fill_skeleton(rng, names, skeleton)
            result[normalise(example.request)] = example
    return list(result.values())


def _pattern(nodes: list) -> str:
    """Turn a template's nodes into a regular expression with slots marked by their key."""
    parts = []
    for node in nodes:
        if isinstance(node, str):
            parts.append(re.escape(node))
        elif isinstance(node, list):
            parts.append("(?:" + "|".join(_pattern(branch) for branch in node) + ")")
        else:
            parts.append(f"<{node[0]}>")
    return "".join(parts)


def _any(texts: list[str]) -> str:
    return "(?:" + "|".join(sorted({re.escape(text) for text in texts})) + ")"


def producible(names: str, skeleton: str) -> bool:
    """Whether the generator's own grammar can produce a skeleton (gerund openers aside)."""
    wide = {tool.name: compiled for tool, compiled in COMPILED_WIDE}
    compiled = [wide[name] for name in names.split("+") if name] or [OFF_TOPIC_WIDE]
    clauses = ["(?:" + "|".join(_pattern(nodes) for _, nodes in one) + ")" for one in compiled]
    body = (_any(STRONG_JOINERS + WEAK_JOINERS)).join(clauses)
    whole = _any(COMMAND_OPENERS + OTHER_OPENERS + MORE_OPENERS) + body
    whole += _any(CLOSERS + MORE_CLOSERS) + r"[ .?!]*"
    text = SLOT_RE.sub(lambda match: f"<{match[1].partition(':')[0].removeprefix('b.')}>", skeleton)
    return re.fullmatch(whole, text, re.IGNORECASE) is not None


# --- files -----------------------------------------------------------------------------------


def build(directory: Path = DIRECTORY) -> dict[str, int]:
    """Write the three sets; return their sizes."""
    for names, skeleton in SKELETONS:
        if producible(names, skeleton):
            raise ValueError(f"the generator can produce: {skeleton}")
    directory.mkdir(parents=True, exist_ok=True)
    sizes = {}
    for name, examples in zip(NAMES, (combinations(), wordings(), made_up()), strict=True):
        with (directory / f"{name}.jsonl").open("w", encoding="utf-8") as out:
            for example in examples:
                out.write(json.dumps(vars(example), ensure_ascii=False) + "\n")
        sizes[name] = len(examples)
    return sizes


def duplicate_rate(count: int, seed: int, made_up_share: float) -> float:
    """Return the share of fresh training samples that a held-out set contains."""
    rng = random.Random(seed)
    held = held_out_requests()
    return sum(normalise(sample(rng, made_up_share).request) in held for _ in range(count)) / count


def main() -> None:
    """Rewrite the sets and report their sizes and the duplicate rate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only measure the duplicate rate")
    if not parser.parse_args().check:
        print(build())
    for share in (0.0, 0.3):
        print(f"made-up share {share}: {duplicate_rate(20_000, 20_260, share):.4%} duplicates")


if __name__ == "__main__":
    main()
