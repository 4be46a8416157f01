"""Whole forwards of a tenth of Clover-35B-A3B against llama.cpp, and the whole shape once."""

from __future__ import annotations

import mmap
import shutil
import statistics
from collections.abc import Iterator
from contextlib import contextmanager

from checks.row import Check, Context, Row, Skipped, at_least
from forward_cases import BLOCK, VARIANTS, Bench, Llama, Ours, Paging
from measure import Call, Ceilings, Times, in_turns, ratio
from peers.codes import Missing
from synthetic import SHAPES

from clover_edge.export.pipeline import available_memory

THREADS = 2
EQUAL_BITS = "Q4_0"
FULL_BYTES = 20_000_000_000
_KEPT = 2_500_000_000  # memory beside the full model's pages
_AGAIN = 0.01  # % of the weights' pages: the program's own pages fault, too


def _slice(context: Context) -> Bench:
    return Bench(context.models, SHAPES["slice"], "slice", THREADS)


@contextmanager
def _sides(context: Context, *only: str) -> Iterator[tuple[Ours, dict[str, Llama]]]:
    bench = _slice(context)
    try:
        with bench.llama(only=only) as others:
            yield bench.ours(), others
    except Missing as reason:
        raise Skipped(str(reason)) from reason


def _against_best(name: str, times: Times, bound: float, tokens: int) -> Row:
    """A row against the fastest of llama.cpp's variants."""
    median = {side: statistics.median(taken) for side, taken in times.items()}
    best = min((side for side in times if side != "ours"), key=median.__getitem__)
    note = f"{tokens / median['ours']:.0f} tok/s, {best} {tokens / median[best]:.0f} tok/s"
    return at_least(name, ratio(times, best, "ours"), bound, "{:.2f}", "x", note)


def block_against_llama_cpp(context: Context) -> Iterator[Row]:
    """32 rows from nothing, logits of the last: what llama-bench calls pp32."""
    with _sides(context, *VARIANTS) as (ours, others):
        calls = {label: other.prompt(BLOCK) for label, other in others.items()}
        times = in_turns({"ours": ours.block(0, every=False), **calls}, 9, inner=1, threads=THREADS)
        yield _against_best("slice, block of 32, last row, against pp32", times, 2.0, BLOCK)


def prefill_against_llama_cpp(context: Context) -> Iterator[Row]:
    """512 tokens, logits of the last."""
    with _sides(context, *VARIANTS) as (ours, others):
        calls = {label: other.prompt(512) for label, other in others.items()}
        times = in_turns(
            {"ours": ours.prompt(512), **calls}, 3, inner=1, threads=THREADS, warm=False
        )
        yield _against_best("slice, prefill of 512, against pp512", times, 1.3, 512)


def token_against_llama_cpp(context: Context) -> Iterator[Row]:
    """One token at equal bits."""
    with _sides(context, EQUAL_BITS) as (ours, others):
        calls = {label: other.token() for label, other in others.items()}
        times = in_turns({"ours": ours.token(), **calls}, 15, threads=THREADS)
        yield _against_best("slice, autoregressive step, against tg at Q4_0", times, 1.3, 1)


def steps_against_llama_cpp(context: Context) -> Iterator[Row]:
    """A denoising step behind a prefix, logits of all rows, state put back."""
    with _sides(context, EQUAL_BITS) as (ours, others):
        for committed, bound in ((1024, 2.0), (4096, 2.2)):
            calls: dict[str, Call] = {"ours": ours.block(committed, every=True)}
            calls[EQUAL_BITS] = others[EQUAL_BITS].block(committed)
            times = in_turns(calls, 9, inner=3, threads=THREADS)
            name = f"slice, block step behind {committed}, against llama.cpp Q4_0"
            ms = {side: 1e3 * statistics.median(taken) for side, taken in times.items()}
            note = f"{ms['ours']:.0f} ms, llama.cpp {ms[EQUAL_BITS]:.0f} ms"
            yield at_least(name, ratio(times, EQUAL_BITS, "ours"), bound, "{:.2f}", "x", note)


def token_of_the_bandwidth(context: Context) -> Iterator[Row]:
    """Weights and state of a token over what memory delivers."""
    ours, ceilings = _slice(context).ours(), Ceilings(THREADS)
    call = ours.token()
    nbytes = ours.touched(call)[1] + ours.state_bytes(0)
    times = in_turns({"ours": call, "floor": ceilings.floor(0, nbytes)}, 15)
    seconds = statistics.median(times["ours"])
    note = f"{1e3 * seconds:.2f} ms for {nbytes / 1e6:.0f} MB; "
    note += f"of each round's own {100 * ratio(times, 'floor', 'ours'):.0f} %"
    name = "slice, autoregressive step: of the read bound"
    yield at_least(name, 100 * nbytes / ceilings.read / seconds, 70, "{:.0f}", " %", note)


def full_shape(context: Context) -> Iterator[Row]:
    """The whole model: made, opened, a block and a token, deleted."""
    name = "full shape, int4-all: weights read again from disk"
    if not context.full:
        raise Skipped("--no-full")
    free, memory = shutil.disk_usage(context.models).free, available_memory()
    if free < FULL_BYTES:
        raise Skipped(f"needs {FULL_BYTES / 1e9:.0f} GB of disk, {free / 1e9:.1f} are free")
    if memory is not None and memory < FULL_BYTES + _KEPT:
        raise Skipped(f"needs 22.5 GB of memory, {memory / 1e9:.1f} are available")
    bench = Bench(context.models, SHAPES["full"], "full", THREADS)
    path = bench.path()
    try:
        started = Paging.now()
        ours = bench.ours()  # and a prefill that reads every expert
        warmed = Paging.now()
        ms = {}
        for label, call in (("block", ours.block(0, every=False)), ("token", ours.token())):
            ms[label] = 1e3 * statistics.median(in_turns({"ours": call}, 5, inner=1)["ours"])
        measured, all_of_it = Paging.now().since(warmed), Paging.now().since(started)
        share = 100 * measured.major * mmap.PAGESIZE / ours.core.weight_bytes
        note = f"{measured.major} pages again, {all_of_it.swapped} swapped; two threads: block of "
        note += f"32 {ms['block']:.0f} ms, token {ms['token']:.1f} ms"
        holds = share <= _AGAIN and not all_of_it.swapped
        yield Row(name, f"{share:.4f} %", f"<= {_AGAIN:g} %", holds, note)
    finally:
        shutil.rmtree(path, ignore_errors=True)


CHECKS: list[Check] = [
    block_against_llama_cpp,
    steps_against_llama_cpp,
    token_against_llama_cpp,
    token_of_the_bandwidth,
    prefill_against_llama_cpp,
    full_shape,
]
