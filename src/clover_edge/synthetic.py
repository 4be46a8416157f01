"""Tokens that mean nothing, for measuring: the same ones every time."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

_STRIDE = 7919  # a prime: neighbours differ, and ids repeat late


def synthetic_ids(spec: Mapping[str, Any], count: int, without: Collection[int] = ()) -> list[int]:
    """`count` ids of the vocabulary, none of them the mask token or of `without`."""
    vocab = spec["valid_vocab"]
    kept = {spec.get("mask_token_id"), *without}
    ids: list[int] = []
    number = 0
    while len(ids) < count:
        if (token_id := number * _STRIDE % vocab) not in kept:
            ids.append(token_id)
        number += 1
    return ids
