"""The values that generation options may have."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from .errors import ArgumentError


def integer_of(value: Any) -> int | None:
    """As an int; None for what is no integer, as bools are not."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        return None
    return int(value.__index__())


def number_of(value: Any) -> float | None:
    """As a float; None for what is no finite number, as bools and texts are not."""
    if isinstance(value, (bool, str, bytes)) or not hasattr(value, "__float__"):
        return None
    number = float(value)
    return number if math.isfinite(number) else None


def up_to(most: float) -> tuple[Callable[[float], bool], str]:
    """The domain [0, most], and its words."""
    return lambda value: 0 <= value <= most, f"a number from 0 to {most:g}"


INTEGERS = {
    "max_new_tokens": (1, 2**31 - 1),
    "steps": (0, 2**31 - 1),
    "top_k": (0, 2**31 - 1),
    "seed": (0, 2**63 - 1),
    "max_post_steps": (0, 2**31 - 1),
    "stability_threshold": (0, 10**9),
    "refresh": (0, 2**31 - 1),
    "top_logprobs": (0, 20),
}
NUMBERS: dict[str, tuple[Callable[[float], bool], str]] = {
    "threshold": (lambda v: 0 <= v <= 1, "a probability from 0 to 1"),
    "edit_threshold": (lambda v: 0 <= v <= 1, "a probability from 0 to 1"),
    "coreset_share": (lambda v: 0 <= v <= 1, "a share from 0 to 1"),
    "factor": (lambda v: 0 <= v <= 1e6, "a number from 0 to 1e6"),
    "credit": (lambda v: 0 <= v <= 100, "a number from 0 to 100"),
    "entropy_bound": (lambda v: 0 <= v <= 1e6, "a number from 0 to 1e6"),
    "temperature": (lambda v: v >= 0, "a number from 0 up"),
    "t_min": (lambda v: 0 <= v <= 1e6, "a number from 0 to 1e6"),
    "t_max": (lambda v: 0 <= v <= 1e6, "a number from 0 to 1e6"),
    "confidence_threshold": (lambda v: 0 <= v <= 1e6, "a number from 0 to 1e6"),
    "top_p": (lambda v: 0 < v <= 1, "a probability above 0 and up to 1"),
    "presence_penalty": (lambda v: -100 <= v <= 100, "a number from -100 to 100"),
    "frequency_penalty": (lambda v: -100 <= v <= 100, "a number from -100 to 100"),
    "repetition_penalty": (lambda v: 0 < v <= 100, "a number above 0 and up to 100"),
}


def stop_strings(value: Any) -> tuple[str, ...]:
    """One text or several; ArgumentError naming what is no text, or is empty."""
    strings = (value,) if isinstance(value, str) else value
    if not isinstance(strings, Sequence) or isinstance(strings, (bytes, bytearray)):
        raise ArgumentError(f"stop: {value!r} is neither a string nor a list of strings")
    for string in strings:
        if not isinstance(string, str) or not string:
            raise ArgumentError(f"stop: {string!r} is not a non-empty string")
    return tuple(strings)
