"""What the kernels promise, as ratios of one run: products against ceilings and peers.

Rates are medians over rounds; a ceiling is the best of seven runs at the same thread count.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from functools import cache

from checks import kernels_forward, kernels_layers
from checks.row import Check, Context, Row, Skipped, at_least
from kernel_cases import Product
from measure import Ceilings, geometric_mean, in_turns, ratio
from peers.codes import Missing

from clover_edge.quant import Scheme

HIDDEN = 2048
THREADS = (1, 2)
WIDTHS = (512, 2048, 8192)
HOT_BYTES, COLD_BYTES = 10 << 20, 512 << 20
ROUNDS = 9
PEER_ROWS = (1, 8, 16, 32, 64)


@cache
def ceilings(threads: int) -> Ceilings:
    return Ceilings(threads)


def _hot(group: int, n: int, threads: int) -> Product:
    scheme = Scheme("int4", group)
    copies = max(1, min(4, HOT_BYTES // scheme.nbytes((n, HIDDEN))))
    return Product(scheme, n, HIDDEN, copies, threads)


def _of_dot(group: int, rows: tuple[int, ...], bound: float) -> Iterator[Row]:
    """The worst shape's share of the int8 ceiling; the rows are int8 already."""
    for threads in THREADS:
        median, paired = {}, []
        for n in WIDTHS:
            product = _hot(group, n, threads)
            for m in rows:
                operations = product.work(m).operations
                floor = ceilings(threads).floor(operations, 0)
                call = product.ours(m, rounding=False)
                times = in_turns({"ours": call, "floor": floor}, ROUNDS)
                seconds = statistics.median(times["ours"])
                median[f"n {n}, m {m}"] = 100 * operations / ceilings(threads).dot / seconds
                paired.append(100 * ratio(times, "floor", "ours"))
        worst = min(median, key=median.__getitem__)
        name = f"int4 g{group}, m {rows[0]}..{rows[-1]}, {_threads(threads)}: of the int8 ceiling"
        mean, share = geometric_mean(list(median.values())), geometric_mean(paired)
        note = f"worst at {worst}; mean {mean:.0f} %, of each round's own ceiling {share:.0f} %"
        yield at_least(name, median[worst], bound, "{:.0f}", " %", note)


def int4_g32_hot(context: Context) -> Iterator[Row]:
    """Many rows: as fast as the dot products are."""
    yield from _of_dot(32, (4, 8, 16, 32, 64), 78)


def int4_g128_hot(context: Context) -> Iterator[Row]:
    """The same, fewer scales."""
    yield from _of_dot(128, (8, 16, 32, 64), 88)


def int4_g32_cold(context: Context) -> Iterator[Row]:
    """One row, weights that no cache holds: as fast as memory is read."""
    for threads in THREADS:
        scheme, n = Scheme("int4", 32), 8192
        product = Product(scheme, n, HIDDEN, COLD_BYTES // scheme.nbytes((n, HIDDEN)) + 1, threads)
        nbytes, call = product.work(1).nbytes, product.ours(1, rounding=False)
        sides = {"ours": call, "floor": ceilings(threads).floor(0, nbytes)}
        times = in_turns(sides, 7, inner=3)
        share = 100 * nbytes / ceilings(threads).read / statistics.median(times["ours"])
        name = f"int4 g32, m 1, cold, {_threads(threads)}: of read bandwidth"
        note = f"of each round's own {100 * ratio(times, 'floor', 'ours'):.0f} %"
        yield at_least(name, share, 85, "{:.0f}", " %", note)


def _against(name: str, group: int) -> Iterator[tuple[int, dict[str, float]]]:
    """By thread count, how many times as long the peer takes, rows rounded on both sides."""
    for threads in THREADS:
        ratios = {}
        for n in (2048, 8192):
            product = _hot(group, n, threads)
            try:
                peer = product.peer(name)
            except Missing as reason:
                raise Skipped(str(reason)) from reason
            for m in PEER_ROWS:
                sides = {"ours": product.ours(m), name: peer.call(m)}
                times = in_turns(sides, ROUNDS, threads=threads)
                ratios[f"n {n}, m {m}"] = ratio(times, name, "ours")
        yield threads, ratios


def int4_against_onnxruntime(context: Context) -> Iterator[Row]:
    """MatMulNBits with int8 activations."""
    for threads, ratios in _against("onnxruntime", 32):
        name = f"int4 g32 against MatMulNBits, {_threads(threads)}"
        mean = geometric_mean(list(ratios.values()))
        yield at_least(f"{name}: geometric mean", mean, 2.2, "{:.2f}", "x")
        worst = min(ratios, key=ratios.__getitem__)
        note = f"worst at {worst}"
        yield at_least(f"{name}: never slower", ratios[worst], 1, "{:.2f}", "x", note)


def int4_against_openvino(context: Context) -> Iterator[Row]:
    """int4 with dynamic quantisation of the same group."""
    for group, bound in ((32, 1.15), (128, 1.05)):
        for threads, ratios in _against("openvino", group):
            name = f"int4 g{group} against OpenVINO, {_threads(threads)}: geometric mean"
            mean, worst = geometric_mean(list(ratios.values())), min(ratios, key=ratios.__getitem__)
            note = f"worst {ratios[worst]:.2f}x at {worst}"
            yield at_least(name, mean, bound, "{:.2f}", "x", note)


def _threads(count: int) -> str:
    return f"{count} thread" + ("s" if count > 1 else "")


CHECKS: list[Check] = [
    int4_g32_hot,
    int4_g32_cold,
    int4_g128_hot,
    int4_against_onnxruntime,
    int4_against_openvino,
    *kernels_layers.CHECKS,
    *kernels_forward.CHECKS,
]
