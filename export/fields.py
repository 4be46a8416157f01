"""Typed look-ups in a configuration: every refusal names the file, the key and the value."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import CheckpointError, UnsupportedModelError

_LARGEST = 2**31 - 1


class Fields:
    """Keys of one JSON object. A key that is absent or null takes the default; without, it errs."""

    def __init__(self, path: Path, values: Mapping[str, Any]) -> None:
        self.path, self.values = path, values

    def refuse(self, key: str, reason: str) -> CheckpointError:
        return CheckpointError(str(self.path), key, reason)

    def get(self, key: str, default: Any = None) -> Any:
        value = self.values.get(key)
        return default if value is None else value

    def required(self, key: str, default: Any = None) -> Any:
        value = self.get(key, default)
        if value is None:
            raise self.refuse(key, "is missing")
        return value

    def integer(
        self, key: str, default: int | None = None, *, low: int = 1, high: int = _LARGEST
    ) -> int:
        value = self.required(key, default)
        if type(value) is not int or not low <= value <= high:
            raise self.refuse(key, f"{value!r} is not an integer from {low} to {high}")
        return value

    def number(
        self, key: str, default: float | None = None, *, low: float = 0.0, high: float = 1e30
    ) -> float:
        value = self.required(key, default)
        good = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not good or not low <= value <= high:  # NaN is within no bounds
            raise self.refuse(key, f"{value!r} is not a number from {low:g} to {high:g}")
        return float(value)

    def flag(self, key: str, default: bool | None = None) -> bool:
        value = self.required(key, default)
        if type(value) is not bool:
            raise self.refuse(key, f"{value!r} is neither true nor false")
        return value

    def only(self, key: str, known: Any) -> None:
        """UnsupportedModelError where the key asks for anything but ``known``; it may be absent."""
        if (value := self.get(key, known)) != known:
            raise UnsupportedModelError(
                f"{self.path}: {key}: {value!r} is not supported (only {known!r} is)"
            )

    def groups(self, key: str, heads: int, groups: int) -> None:
        if heads % groups:
            raise self.refuse(key, f"{heads} heads do not divide into groups of {groups}")

    def section(self, key: str) -> Fields:
        """A nested object; an absent one is empty."""
        value = self.get(key, {})
        if not isinstance(value, dict):
            raise self.refuse(key, "is not an object")
        return Fields(self.path, value)
