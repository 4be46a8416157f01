"""Runs the core's block loop and turns its events into text events, in this thread or another."""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from .generation import NO_MASK, GenerationConfig
from .results import (
    Counters,
    DoneEvent,
    DraftEvent,
    Event,
    GenerationResult,
    PrefillEvent,
    TextEvent,
    TokenLogprob,
)
from .text import Detokenizer, TextCodec

if TYPE_CHECKING:
    from ._core import Constraint
    from ._core import Model as CoreModel
    from .sessions.held import Held

Emit = Callable[[Event], bool]  # False: cancel


class _Assembler:
    """The core's callback: one generation's events, in order."""

    def __init__(
        self,
        codec: TextCodec,
        config: GenerationConfig,
        mask: int,
        first_width: int,
        room: int | None,
        emit: Emit | None,
        prompt: tuple[int, int],
    ) -> None:
        """`prompt`: its tokens, and how many of them the state holds."""
        self._prompt_tokens, self._cached = prompt
        self._codec = codec
        self._mask = mask
        drafts = emit is not None and config.mode == "diffusion"
        self._width = config.block_length if drafts else 0  # 0: no drafts
        self._first_width = first_width
        self._room = room  # positions of a canvas that are left; None: blocks are whole
        self._emit = emit or (lambda _: True)
        self.written: list[int] = []  # of all blocks so far, the stop token left out
        self.detokenizer = Detokenizer(codec, config.stop)
        self._logprobs: list[TokenLogprob] = []
        self._reported = 0  # of them, in text events

    def __call__(self, event: dict[str, Any]) -> bool:
        kind = event["type"]
        if kind == "step" and self._width:
            return self._emit(self._draft(event))
        if kind == "block":
            self.written += event["ids"]
            if self._room is not None:
                self._room -= len(event["ids"])
            self._logprobs += _logprobs(event)
            going = self.emit_text(self.detokenizer.push(event["ids"]))
            if going and event["finish"] is None and self.detokenizer.stopped is None:
                going = self.start(event["block"] + 1)
            return going and self.detokenizer.stopped is None
        if kind == "prefill" and (read := self._cached + event["tokens"]) < self._prompt_tokens:
            return self._emit(PrefillEvent(read, self._prompt_tokens))
        return True

    def emit_text(self, text: str) -> bool:
        """Reports new final text, if there is any."""
        if not text:
            return True
        logprobs = self.logprobs[self._reported :]
        self._reported += len(logprobs)
        return self._emit(TextEvent(text, logprobs))

    @property
    def logprobs(self) -> tuple[TokenLogprob, ...]:
        """Of the tokens read so far, where they are asked for."""
        return tuple(self._logprobs[: len(self.detokenizer.ids)]) if self._logprobs else ()

    def start(self, block: int) -> bool:
        """Announces a block in which nothing is drafted yet."""
        if not self._width:
            return True
        width = self._width if block else self._first_width
        if self._room is not None:
            width = min(width, self._room)
        ids, pieces = (self._mask,) * width, ("",) * width
        return self._emit(DraftEvent(block, 0, ("masked",) * width, pieces, ids))

    def _draft(self, event: dict[str, Any]) -> DraftEvent:
        ids, states = [], []
        kept = (current != self._mask for current in event["ids"])
        if self._mask == NO_MASK:  # what is not kept is noise
            kept = iter(event["accepted"])
        for current, draft, accepted in zip(event["ids"], event["draft"], kept, strict=True):
            ids.append(current if accepted else draft)
            states.append("accepted" if accepted else "drafted")
        pieces = tuple(map(self._codec.piece, ids))
        return DraftEvent(event["block"], event["step"] + 1, tuple(states), pieces, tuple(ids))


def run(
    core: CoreModel,
    codec: TextCodec,
    prompt: list[int],
    config: GenerationConfig,
    *,
    max_new_tokens: int,
    capacity: int,
    mask: int,
    absolute: bool,
    canvas: bool,
    emit: Emit | None,
    drafter: CoreModel | None = None,
    held: Held | None = None,
    rule: Constraint | None = None,
) -> GenerationResult:
    """One generation in this thread. `emit` sees every event but the last, DoneEvent.

    `held`: a session's state, which holds the beginning of the prompt and is left holding all
    that was written, too; None: a fresh one.
    `absolute`: blocks count from the start of the prompt, whose tail is in the first one.
    `canvas`: the last block ends where the answer may end.
    `drafter`: drafts in mode "speculative". `rule`: what the text must follow.
    """
    tail = len(prompt) % config.block_length if absolute else 0
    room = max_new_tokens if canvas else None
    started = time.perf_counter()
    options = config.core_options(max_new_tokens)
    cached = 0
    if held is None:
        state = core.new_state(capacity)
        context = drafter.new_state(capacity) if drafter is not None else None
    else:
        state, context, cached = held.state, held.context, held.state.position
        options |= {"commit_last": True, "mark": held.mark}
    width = config.block_length - tail
    assembler = _Assembler(codec, config, mask, width, room, emit, (len(prompt), cached))
    assembler.start(0)
    stop_id = None
    try:
        drafts = None if drafter is None else context
        raw = core.generate(state, prompt[cached:], options, assembler, drafts, rule)
        stop_id = raw["stop_id"]
    finally:
        if held is not None:
            end = [] if stop_id is None else [stop_id]
            held.settle([*prompt, *assembler.written, *end])
    seconds = time.perf_counter() - started
    detokenizer = assembler.detokenizer
    assembler.emit_text(detokenizer.finish())
    stopped = detokenizer.stopped is not None
    ids = detokenizer.ids if stopped else tuple(raw["ids"])
    tokens = len(ids) + (not stopped and raw["finish_reason"] == "stop")
    return GenerationResult(
        text=detokenizer.text,
        token_ids=ids,
        finish_reason="stop" if stopped else raw["finish_reason"],
        counters=_counters(raw["counters"], len(prompt), cached, tokens, seconds),
        logprobs=assembler.logprobs if config.logprobs else None,
    )


def run_in_thread(start: Callable[[Emit], GenerationResult]) -> Generator[Event, None, None]:
    """The events of `start(emit)`, which runs in a thread of its own.

    Closing or dropping the generator cancels the run at its next event and waits for it.
    """
    events: queue.Queue[Event | BaseException] = queue.Queue(maxsize=64)
    cancelled = threading.Event()

    def put(event: Event | BaseException) -> bool:
        # An abandoned consumer must not hold the process at exit: hence the polling.
        while not cancelled.is_set() and threading.main_thread().is_alive():
            try:
                events.put(event, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def work() -> None:
        try:
            put(DoneEvent(start(put)))
        except BaseException as error:
            put(error)

    thread = threading.Thread(target=work, name="clover-edge")
    thread.start()
    try:
        while True:
            event = events.get()
            if isinstance(event, BaseException):
                raise event
            yield event
            if isinstance(event, DoneEvent):
                return
    finally:
        cancelled.set()
        thread.join()


def _logprobs(block: dict[str, Any]) -> list[TokenLogprob]:
    return [
        TokenLogprob(token_id, value, top)
        for token_id, (value, top) in zip(block["ids"], block["logprobs"], strict=False)
    ]


def _counters(
    counters: dict[str, Any], prompt_tokens: int, cached: int, tokens: int, seconds: float
) -> Counters:
    forwards = counters["forward_passes"]
    return Counters(
        prompt_tokens=prompt_tokens,
        cached_tokens=cached,
        tokens=tokens,
        blocks=counters["blocks"],
        denoise_steps=counters["denoise_steps"],
        forward_passes=forwards,
        rows=counters["rows"],
        tokens_per_forward=tokens / forwards if forwards else 0.0,
        experts_touched=counters["experts_touched"],
        bytes_read=counters["bytes_read"],
        drafter_passes=counters["drafter_passes"],
        drafter_bytes_read=counters["drafter_bytes_read"],
        time_to_first_block=counters["first_block_seconds"] or seconds,
        prefill_tps=_rate(
            prompt_tokens - cached if counters["prefill_passes"] else 0, counters["prefill_seconds"]
        ),
        decode_tps=_rate(tokens, counters["decode_seconds"]),
        peak_memory_bytes=peak_memory(),
    )


def _rate(count: int, seconds: float) -> float:
    return count / seconds if seconds > 0 else 0.0


def peak_memory() -> int:
    """Most bytes of memory that this process has taken so far; 0 where nobody says."""
    try:
        import resource
    except ImportError:  # no such call on Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
