"""Word lists and slot values for the demo model's generated requests.

Every list is split by position: a fixed slice of each long list never reaches training
(``new_values=True`` draws from that slice instead).  Open slots can also be filled with
made-up words, so that a model has to copy the span rather than recall a list entry.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from word_lists import LISTS, MINUTES, UNITS, words

HELD_OUT_STEP = 10
HELD_OUT_OFFSET = 7
SPLIT_MINIMUM = 10


def _split(entries: list[str]) -> tuple[list[str], list[str]]:
    """Return the training part and the held-out slice of one list."""
    unique = list(dict.fromkeys(entries))
    if len(unique) < SPLIT_MINIMUM:
        return unique, unique
    late = unique[HELD_OUT_OFFSET::HELD_OUT_STEP]
    return [entry for entry in unique if entry not in late], late


TRAIN: dict[str, list[str]] = {}
HELD_OUT: dict[str, list[str]] = {}
for _name, _entries in LISTS.items():
    TRAIN[_name], HELD_OUT[_name] = _split(_entries)

ONSETS = words("b br ch d dr f fl g gl gr h j k kr l m n p pl pr qu r s sh sk st t tr v w y z zh")
VOWELS = words("a a e e i i o o u u ai ea ee oo ou ia")
CODAS = [""] * 6 + words("n n r r l l s m t k d x lk nd rt sk v b p th")
RESERVED = frozenset(words("""
also then please thanks that this with from into saying called named labelled there when what
where have make take tell text call list note send about over some them they will would
"""))


def made_up_word(rng: random.Random, capital: bool = False) -> str:
    """Return a pronounceable word of 4 to 9 letters that no list is meant to hold."""
    draw = rng.random
    while True:
        word = "" if draw() < 0.8 else VOWELS[int(draw() * 10)]
        for _ in range(2 if draw() < 0.65 else 3):
            word += ONSETS[int(draw() * len(ONSETS))] + VOWELS[int(draw() * len(VOWELS))]
            if draw() < 0.4:
                word += CODAS[int(draw() * len(CODAS))]
        if 4 <= len(word) <= 9 and word not in RESERVED:
            return word.capitalize() if capital else word


def pick(rng: random.Random, entries: list[str]) -> str:
    """Return one entry; several times faster than ``rng.choice``."""
    return entries[int(rng.random() * len(entries))]


# Patterns for made-up values: "w" is a made-up word, "W" a capitalised one; the rest is literal.
# Repeats weight the draw.  No pattern holds a joiner or a word that a template puts after the slot.
MADE_UP: dict[str, list[list[str]]] = {
    kind: [pattern.split() for pattern in patterns.split("|")]
    for kind, patterns in {
        "person": "W", "surname": "W", "city": "W|W|W|W W", "item": "w|w|w w|a w|a w w",
        "countable": "w|w|w w", "song": "W|W W|W W|W W W|The W", "artist": "W|W W|W W|The W W",
        "phrase": "w|w w|w w w|the w is w|I am w", "event": "w w|w w|w|w meeting|w class",
        "company": "W|W|W W|W Foods|W Studio", "course": "W|W|W W|Modern W|W Design",
        "place": "W|W W|W W|W Street|the w|the old w", "restaurant": "W|W W|W W|The W|Casa W",
        "label": "w", "dish": "w|w w|w soup|w pie", "topic": "w|w w|w w", "word": "w",
        "reason": "it is w|the w broke|the w is w|it came w", "task": (
            "clean the w|fix the w|buy w|call the w|w the w|w the w|w w|feed w w|print the w w"),
        "message": "the w is w|I am w|w w w|W is here|we need w|my w w|w is w|you left your w w",
        "greeting": "w w|good w|happy w|w w w|thanks W|W says hello",
        "note": "the w is w|W likes w|w w w|the w w is broken|the w code is w|W lives near W",
    }.items()
}


def made_up_value(rng: random.Random, kind: str) -> str:
    """Fill one pattern of an open kind with made-up words."""
    patterns = MADE_UP[kind]
    return " ".join([
        made_up_word(rng, part == "W") if part in ("w", "W") else part
        for part in patterns[int(rng.random() * len(patterns))]
    ])


def _number(rng: random.Random, low: int, high: int) -> str:
    return str(low + int(rng.random() * (high - low + 1)))


def _duration(rng: random.Random) -> str:
    unit = pick(rng, UNITS)
    if unit == "hours":
        return pick(rng, ["1 hour", "2 hours", "3 hours", "an hour", "half an hour", "4 hours"])
    return f"{_number(rng, 2, 59)} {unit}"


def _time(rng: random.Random) -> str:
    shape = rng.random()
    if shape < 0.45:
        return f"{_number(rng, 1, 12)} {'am' if shape < 0.2 else 'pm'}"
    if shape < 0.55:
        return pick(rng, ["noon", "midnight", "half past 7", "half past 8", "quarter past 9"])
    return f"{_number(rng, 6, 22)}:{pick(rng, MINUTES)}"


def _expression(rng: random.Random) -> str:
    shape = int(rng.random() * 8)
    first, second = _number(rng, 2, 400), _number(rng, 2, 99)
    if shape == 0:
        return f"{second} percent of {first}"
    if shape == 1:
        return f"{first} divided by {second}"
    sign = (" times ", " plus ", " minus ", " * ", " + ", " - ")[shape - 2]
    return first + sign + second


def _amount(rng: random.Random) -> str:
    shape = rng.random()
    number = _number(rng, 5, 99) if shape < 0.4 else _number(rng, 10, 240) + "0"
    if shape < 0.2 or shape > 0.8:
        return "$" + number
    return f"{number} {pick(rng, ['euros', 'dollars', 'pounds'])}"


def _order(rng: random.Random) -> str:
    prefix = pick(rng, ["", "", "", "A", "B", "C", "K", "X"])
    return prefix + _number(rng, 1000, 99999)


NUMERIC: dict[str, Callable[[random.Random], str]] = {
    "duration": _duration, "time": _time, "expression": _expression, "amount": _amount,
    "order": _order, "degrees": lambda rng: _number(rng, 14, 26),
    "percent": lambda rng: f"{5 * int(_number(rng, 1, 20))} percent",
    "people": lambda rng: _number(rng, 2, 12), "count": lambda rng: _number(rng, 2, 24),
    "sum": lambda rng: _number(rng, 2, 999), "switch": lambda rng: pick(rng, ["on", "off"]),
    "minutes_long": lambda rng: f"{_number(rng, 2, 59)} minute",
}
CHOICES: dict[str, list[str]] = {
    "customer": ["full_name", "full_name", "company"], "destination": ["place", "place", "city"],
    "words": ["message", "greeting"],
}


def fill(rng: random.Random, kind: str, made_up_share: float, new_values: bool = False) -> str:
    """Return a value for a slot of ``kind``; open kinds are made up at the given rate."""
    if kind in CHOICES:
        kind = pick(rng, CHOICES[kind])
    if kind == "full_name":
        first = fill(rng, "person", made_up_share, new_values)
        return f"{first} {fill(rng, 'surname', made_up_share, new_values)}"
    if kind in NUMERIC:
        return NUMERIC[kind](rng)
    if kind in MADE_UP and rng.random() < made_up_share:
        return made_up_value(rng, kind)
    return pick(rng, (HELD_OUT if new_values else TRAIN)[kind])


def is_open(kind: str) -> bool:
    """Whether a slot of this kind can hold made-up words."""
    return kind in MADE_UP or kind in CHOICES or kind == "full_name"
