"""What a chat template puts in front of an answer and takes away again in later turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError
from .held import common_prefix

if TYPE_CHECKING:
    from ..model import Model

_QUESTION = {"role": "user", "content": "a"}
_ANSWER = {"role": "assistant", "content": "b"}
_VARIABLES: tuple[dict[str, Any], ...] = ({}, {"enable_thinking": True}, {"enable_thinking": False})


def lost_openings(model: Model) -> list[list[int]]:
    """The ids, such as those of an opened `<think>`, that end a prompt and that no later prompt of
    the conversation repeats: a snapshot behind them would be of no use to it."""
    template = model.template
    if template is None:
        return []
    openings: list[list[int]] = []
    for variables in _VARIABLES:
        try:
            asked = template.render([_QUESTION], add_generation_prompt=False, **variables)
            opened = template.render([_QUESTION], **variables)
            later = template.render([_QUESTION, _ANSWER, _QUESTION], **variables)
        except ArgumentError:  # a template of its own mind: no snapshot is moved
            continue
        ids, again = model.codec.encode(opened), model.codec.encode(later)
        start = common_prefix(ids, model.codec.encode(asked))
        if again[: len(ids)] != ids and ids[start:] not in openings:
            openings.append(ids[start:])
    return sorted(openings, key=len, reverse=True)


def lasting(ids: Sequence[int], openings: Sequence[Sequence[int]]) -> int:
    """How many ids stand in front of the opening that they end with, if they do."""
    for opening in openings:
        if len(opening) < len(ids) and list(ids[-len(opening) :]) == opening:
            return len(ids) - len(opening)
    return len(ids)
