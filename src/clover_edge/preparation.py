"""From a prompt and options to a generation that may start: everything is checked before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from .driver import Emit, run
from .errors import ArgumentError, ContextLengthError
from .generation import (
    DEFAULT_MAX_NEW_TOKENS,
    NO_MASK,
    GenerationConfig,
    has_full_attention,
)
from .results import GenerationResult

if TYPE_CHECKING:
    from .constrained.grammar import Grammar
    from .model import Message, Model, Prompt
    from .sessions.session import Session


def prepare(
    model: Model, prompt: Prompt, options: Mapping[str, Any], session: Session | None
) -> Callable[[Emit | None], GenerationResult]:
    """What Model.prepare() gives. Errors: Model.generate()."""
    core, drafter = model.core, model.drafter
    options = _planned(model, options)
    config = GenerationConfig.resolve(
        str(model.path / "config.json"),
        model.spec,
        model.folder.generation,
        drafts=0 if drafter is None else drafter.block_size,
        **options,
    )
    ids = _prompt_ids(model, prompt)
    grammar = _grammar(model, config)
    asked = options.get("max_new_tokens") is not None
    new_tokens, capacity = _room(model, len(ids), config, asked, session)
    drafts = None if drafter is None or config.mode != "speculative" else drafter.core

    def start(emit: Emit | None) -> GenerationResult:
        held = None if session is None else session.resume(ids, capacity, drafts)
        return run(
            core,
            model.codec,
            ids,
            config,
            max_new_tokens=new_tokens,
            capacity=capacity,
            mask=model.spec.get("mask_token_id", NO_MASK),
            absolute=model.spec.get("block_origin") == "absolute",
            canvas=has_full_attention(model.spec),
            emit=emit,
            drafter=drafts,
            held=held,
            rule=None if grammar is None else grammar.rule(),
        )

    return start


def _grammar(model: Model, config: GenerationConfig) -> Grammar | None:
    if config.response_format is None:
        return None
    from .constrained.grammar import grammar_of

    stops = config.stop_token_ids
    return grammar_of(config.response_format, model.codec, model.spec["vocab_size"], stops)


def _planned(model: Model, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with those of the plan that `quality` asks for; the caller's own count."""
    given = {name: value for name, value in options.items() if value is not None}
    quality = given.pop("quality", None)
    if quality is None:
        return given
    if model.drafter is not None:
        raise ArgumentError(f"quality: {quality!r}: plans know no drafter")
    if model.backend != "core":
        raise ArgumentError(f"quality: {quality!r}: plans know the core alone, not {model.backend}")
    from .tuning import plan_for

    return {**plan_for(model, quality).options, **given}


def _prompt_ids(model: Model, prompt: Prompt) -> list[int]:
    if isinstance(prompt, str):
        ids = model.tokenize(prompt)
    elif isinstance(prompt, (bytes, bytearray, Mapping)) or not hasattr(prompt, "__iter__"):
        raise ArgumentError(
            f"prompt: {type(prompt).__name__} is neither text, token ids nor messages"
        )
    else:
        items = list(prompt)
        if items and isinstance(items[0], Mapping):
            ids = model.chat_prompt(cast("Sequence[Message]", items))
        else:
            ids = [_token_id(model, index, item) for index, item in enumerate(items)]
    mask = model.spec.get("mask_token_id", NO_MASK)
    if mask in ids:
        raise ArgumentError(f"prompt: token {ids.index(mask)} is the mask token (id {mask})")
    if not ids:
        raise ArgumentError("prompt: is empty")
    return ids


def _token_id(model: Model, index: int, item: Any) -> int:
    limit = model.spec["valid_vocab"]
    if isinstance(item, bool) or not hasattr(item, "__index__"):
        raise ArgumentError(f"prompt[{index}]: {item!r} is not a token id")
    token_id = int(item.__index__())
    if not 0 <= token_id < limit:
        raise ArgumentError(f"prompt[{index}]: {token_id} is outside the vocabulary of {limit}")
    return token_id


def _room(
    model: Model, prompt_tokens: int, config: GenerationConfig, asked: bool, session: Session | None
) -> tuple[int, int]:
    """New tokens to generate (at most a default of them, where the caller did not ask), and
    the positions that prompt and whole blocks take. Drafts end where the text does, and of a
    canvas the last block may be cut."""
    owner, limit = "model", model.spec["max_positions"]
    if session is not None and session.capacity < limit:
        owner, limit = "session", session.capacity
    if model.drafter is not None and config.mode == "speculative":
        limit = min(limit, model.drafter.max_positions)
    cut = config.mode != "diffusion" or has_full_attention(model.spec)
    width = 1 if cut else config.block_length
    new_tokens = config.max_new_tokens or DEFAULT_MAX_NEW_TOKENS
    if not asked:
        new_tokens = max(1, min(new_tokens, (limit - prompt_tokens) // width * width))
    needed = prompt_tokens + -(-new_tokens // width) * width
    if needed > limit:
        raise ContextLengthError(
            f"prompt: {prompt_tokens} tokens and {new_tokens} new ones, in blocks of {width}, "
            f"take {needed} positions; the {owner} has {limit}"
        )
    return new_tokens, needed
