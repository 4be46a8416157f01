"""The two decoding loops on the float64 model: block diffusion by threshold, and autoregressive.

Greedy only: what a temperature draws depends on the generator, which is the core's own affair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from oracle.clover import BlockMemory, Clover, State
from oracle.equations import Array, softmax
from oracle.transformer import Transformer


@dataclass(frozen=True)
class Options:
    max_new_tokens: int
    valid_vocab: int  # ids from here on are padding
    mode: str = "diffusion"  # or "ar"
    block_length: int = 32
    threshold: float = 0.9  # accepted when the probability is above it; always at least one
    steps: int = 0  # most previews of a block; 0: no limit
    stop_ids: tuple[int, ...] = ()
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    commit_last: bool = True
    credit: float = 0.0  # logits grow by it times ln(1 + credit) (dInfer)
    skip_rows: bool = False  # rows whose token the preview before has seen in its place
    refresh: int = 0  # every so many previews of a block none is skipped; 0: never


@dataclass
class Decoded:
    """Ids without the stop token, and what it took."""

    ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    stop_id: int | None = None
    previews: int = 0
    rows: int = 0  # computed in previews
    commits: int = 0
    accepted: list[list[int]] = field(default_factory=list)  # positions in the block, by preview
    margin: float = np.inf  # distance of the closest decision to another one


def generate(
    model: Clover | Transformer, state: State, prompt: Sequence[int], options: Options
) -> tuple[Decoded, State]:
    """Prefill, then block after block until a stop token or the budget.

    A text ends at its first stop token (which counts) or when ``max_new_tokens`` are there. Blocks
    always run at full width; of the one that ends the text, the text (with its stop token) is
    committed, and that only if ``commit_last``.
    """
    _, state = model.commit(state, prompt)
    out, response = Decoded(), list[int]()
    while out.finish_reason is None:
        if options.mode == "ar":
            block = [_next_token(model, state, response, options, out)]
        else:
            assert isinstance(model, Clover)
            block = _denoise(model, state, response, options, out)
        begin = len(response)
        response += block
        _cut(response, options, out)
        if out.finish_reason is not None:
            block = [*out.ids, *([] if out.stop_id is None else [out.stop_id])][begin:]
        if out.finish_reason is None or options.commit_last:
            _, state = model.commit(state, block)
            out.commits += 1
    return out, state


def _denoise(
    model: Clover, state: State, response: list[int], options: Options, out: Decoded
) -> list[int]:
    mask = model.config.mask_token_id
    block = np.full(options.block_length, mask)
    step, memory, before = 0, BlockMemory(), block * 0 - 1
    credit = np.zeros((len(block), model.config.vocab_size))
    while not _settled(block, mask, options.max_new_tokens - len(response), options.stop_ids):
        skips = options.skip_rows and not (options.refresh and step % options.refresh == 0)
        skipped = np.flatnonzero(skips & (block == before) & (block != mask))
        logits = model.preview(state, block, memory, skipped)
        before = block.copy()
        out.previews += 1
        out.rows += len(block) - len(skipped)
        seen = [*response, *block[block != mask]]
        hidden = block == mask
        probability, token, lead = (
            np.zeros(len(block)),
            np.zeros(len(block), dtype=int),
            block * 0.0,
        )
        credit *= 0.8
        for row in np.flatnonzero(hidden):
            real = _real_logits(model, logits[row], seen, options)
            p = softmax(real)
            if options.credit:
                credit[row, p.argmax()] += p.max() ** 0.2
                p = softmax(real + options.credit * np.log1p(credit[row]))
            token[row] = p.argmax()
            second, probability[row] = np.sort(p)[-2:]
            lead[row] = probability[row] - second
        accepted = probability > options.threshold
        masked, least = int(hidden.sum()), 1
        if options.steps:  # enough that the last step leaves none
            least = -(-masked // max(1, options.steps - step))
        order = np.argsort(-probability, kind="stable")
        if accepted.sum() < least < masked:
            _note_margin(out, probability[order[least - 1]] - probability[order[least]])
        accepted[order[:least]] = True
        _note_margin(out, *lead[accepted], *np.abs(probability[hidden] - options.threshold))
        step += 1
        block[accepted] = token[accepted]
        out.accepted.append(np.flatnonzero(accepted).tolist())
    return [int(i) for i in block]


def _settled(block: NDArray[np.intp], mask: int, budget: int, stop_ids: Sequence[int]) -> bool:
    """No mask stands in front of the stop token or the end of the budget: the text is decided."""
    text = block[:budget]
    ends = [i for i, token in enumerate(text) if token in stop_ids]
    return mask not in text[: ends[0] if ends else None]


def _next_token(
    model: Clover | Transformer,
    state: State,
    response: list[int],
    options: Options,
    out: Decoded,
) -> int:
    assert state.logits is not None
    logits = _real_logits(model, state.logits, response, options)
    p = np.sort(softmax(logits))
    _note_margin(out, p[-1] - p[-2])
    return int(logits.argmax())


def _real_logits(
    model: Clover | Transformer, logits: Array, seen: Sequence[int], options: Options
) -> Array:
    """Penalties of the tokens that the response already holds; padding and mask ids removed."""
    out = logits.copy()
    for token in set(seen):
        r = options.repetition_penalty
        out[token] = out[token] / r if out[token] > 0 else out[token] * r
        out[token] -= options.presence_penalty + options.frequency_penalty * seen.count(token)
    out[options.valid_vocab :] = -np.inf
    if isinstance(model, Clover):
        out[model.config.mask_token_id] = -np.inf
    return out


def _cut(response: list[int], options: Options, out: Decoded) -> None:
    text = response[: options.max_new_tokens]
    stops = [i for i, token in enumerate(text) if token in options.stop_ids]
    if stops:
        out.finish_reason, out.stop_id = "stop", text[stops[0]]
        text = text[: stops[0]]
    elif len(response) >= options.max_new_tokens:
        out.finish_reason = "length"
    out.ids = text


def _note_margin(out: Decoded, *distances: float) -> None:
    out.margin = float(min([out.margin, *distances]))
