"""Decoding under a constraint: families with a block mask, with full attention, and others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny_blocks as blocks
import tiny_full_attention as full
from tiny_rule import Rule

import clover_edge
from clover_edge.errors import ArgumentError, UnsupportedModelError

PROMPT = [5, 17, 60, 3, 99, 41, 7]
END = 249
Open = Callable[..., Any]


def turns(text: list[int]) -> range:
    """Two classes of tokens, in turns; behind ten of them the text may end."""
    kind = len(text) % 2
    ends = [END] if len(text) >= 10 else []
    return [*range(120 * kind, 120 * kind + 120), *ends]


def check(core: Any, size: int, **options: Any) -> None:
    """What stands follows the rule, forced tokens come in their places, the state goes on."""
    options = {"max_new_tokens": 26, "stop_ids": [END], "threshold": 0.2, **options}
    for forces in (False, True):
        rule = Rule(
            turns,
            lambda text, on=forces: [121, 1] if on and len(text) % 8 == 3 else [],
            size=size,
        )
        rule.stop = END
        state = core.new_state(120)
        result = core.generate(state, PROMPT, options, constraint=rule)
        text = result["ids"]
        assert all(token in turns(text[:i]) for i, token in enumerate(text))
        assert (rule.text if result["stop_id"] is None else rule.text[:-1]) == text
        assert len(text) == 26 or result["stop_id"] == END
        forced = [i for i in range(3, len(text) - 1, 8)] if forces else []
        assert all(text[i : i + 2] == [121, 1] for i in forced)
        again = Rule(turns, size=size)
        again.stop = END
        core.generate(state, [8, 9], options, constraint=again)
        assert again.text


@pytest.mark.parametrize("options", [{}, {"temperature": 1.0, "seed": 3}, {"logprobs": 1}])
@pytest.mark.parametrize("family", blocks.FAMILIES)
def test_block_masks(
    tiny_blocks: Open, pack: Open, open_core: Open, family: str, options: dict[str, Any]
) -> None:
    """Prompts end in the middle of a block, and some families have a block's first token decided
    by the row in front of it."""
    checkpoint = tiny_blocks(family, seed=3)
    core = open_core(pack(checkpoint, "f32"))
    check(core, checkpoint.config["vocab_size"], **options)


@pytest.mark.parametrize(
    "options", [{}, {"cache": "dual"}, {"cache": "prefix", "temperature": 1.0}]
)
@pytest.mark.parametrize("family", full.FAMILIES)
def test_full_attention(
    tiny_full_attention: Open, pack: Open, open_core: Open, family: str, options: dict[str, Any]
) -> None:
    checkpoint = tiny_full_attention(family, seed=3)
    core = open_core(pack(checkpoint, "f32"))
    check(core, checkpoint.config["vocab_size"], block_length=8, **options)


@pytest.mark.parametrize("options", [{"eps": 0.1, "steps": 4}, {"confidence": "margin"}])
def test_orders_of_full_attention_are_refused(
    tiny_full_attention: Open, pack: Open, open_core: Open, options: dict[str, Any]
) -> None:
    checkpoint = tiny_full_attention("dream", seed=3)
    core = open_core(pack(checkpoint, "f32"))
    with pytest.raises(ArgumentError, match="constraint"):
        check(core, checkpoint.config["vocab_size"], **options)


def test_random_ids_are_refused(pack_canvas: Callable[..., Path], open_core: Open) -> None:
    folder = pack_canvas("int8")
    core = open_core(folder)
    with pytest.raises(UnsupportedModelError, match="blocks start as random ids"):
        core.generate(core.new_state(60), [5], {"stop_ids": [3]}, constraint=Rule(turns, size=320))
    with clover_edge.load(folder, threads=1) as model:
        with pytest.raises(ArgumentError, match="response_format: is not for models whose blocks"):
            model.generate("x", response_format={"type": "json_object"})
        logprobs = model.generate("x", max_new_tokens=20, logprobs=True, top_logprobs=2).logprobs
    assert logprobs is not None and len(logprobs) > 0
    assert all(each.logprob <= each.top[0][1] <= 0 for each in logprobs)
