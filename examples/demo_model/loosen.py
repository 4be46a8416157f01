"""Loosens the wording of a request while training: words dropped, swapped and put in.

The generator's grammar is narrow; a model that leans on its exact function words fails on the next
person's phrasing. Slot values stay as they are, so the answer does too.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable

from word_lists import words

SHARE = 0.4  # of the examples
GOAL_SHARE = 0.15  # of the goals: less of their wording may be missing
DROP, SWAP, INSERT = 0.07, 0.05, 0.06  # per word outside slot values
FILLERS = words(
    "a about actually again all already any anyway around away back be been but by can could did "
    "do does down ever first for from get give go got have here how if in is it its just kind know "
    "let like little look make may maybe me might mine more my need next now of off ok one or our "
    "out over quick quickly really right see shall should so some sort still take tell that the "
    "there this today together up us very want was we well were what when which while who will "
    "with would you your"
)
WORD = re.compile(r"[A-Za-z']+ ?")


def protected(request: str, values: Iterable[str]) -> list[bool]:
    """Per character of the request: is it part of a slot value?"""
    kept = [False] * len(request)
    for value in values:
        for match in re.finditer(re.escape(value), request):
            kept[match.start() : match.end()] = [True] * len(value)
    return kept


def loosen(rng: random.Random, request: str, values: Iterable[str]) -> str:
    """The request with some words outside the slot values dropped, swapped or added."""
    kept = protected(request, values)

    def change(match: re.Match) -> str:
        word = match.group()
        if any(kept[match.start() : match.end()]):
            return word
        roll, end = rng.random(), " " if word.endswith(" ") else ""
        if roll < DROP:
            return ""
        if roll < DROP + SWAP:
            return rng.choice(FILLERS) + end
        if roll < DROP + SWAP + INSERT:
            return f"{rng.choice(FILLERS)} {word}"
        return word

    return WORD.sub(change, request).strip() or request
