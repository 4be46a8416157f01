"""Reading of small files, and what a file really is when it is not what its name says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..errors import CheckpointError, ModelFormatError

FileError = type[CheckpointError] | type[ModelFormatError]


def diagnose(head: bytes) -> str | None:
    """Why the first bytes of a file cannot be what was asked for; None when nothing is amiss."""
    if not head:
        return "is empty"
    if head.startswith(b"version https://git-lfs"):
        return "is a Git LFS pointer, not the file itself (run: git lfs pull)"
    if head.lstrip()[:1] == b"<":
        return "is an HTML or XML page, not the file itself (download it again)"
    return None


def read_bytes(path: Path, error: FileError = CheckpointError) -> bytes:
    """The whole of a small file; pointers and web pages in its place are refused."""
    try:
        data = path.read_bytes()
    except OSError as problem:
        raise error(str(path), "file", problem.strerror or str(problem)) from problem
    if reason := diagnose(data[:256]):
        raise error(str(path), "file", reason)
    return data


def parse_json(data: bytes, path: Path, error: FileError = CheckpointError) -> dict[str, Any]:
    """A JSON object without duplicate keys (the last one would win, silently)."""
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as problem:
        raise error(str(path), "file", f"is not valid JSON: {problem}") from problem
    if not isinstance(value, dict):
        raise error(str(path), "file", "is not a JSON object")
    return value


def read_json(path: Path, error: FileError = CheckpointError) -> dict[str, Any]:
    return parse_json(read_bytes(path, error), path, error)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} appears twice")
    return result
