"""Experts of one layer, and the kernels without AVX-512."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from checks.row import Check, Context, Row, Skipped, at_least, at_most
from forward_cases import Bench
from kernel_cases import Product, layers
from measure import Call, Ceilings, geometric_mean, in_turns, ratio
from peers.codes import Missing
from synthetic import SHAPES, Shape

from clover_edge import _core
from clover_edge.quant import Scheme

ROWS = 32
WIDE, NARROW = "avx512vnni", "avx2"


def _experts(count: int) -> Shape:
    """Hidden 2048, inner 512, top-8, no shared expert: what QMoE computes."""
    return Shape(1, 512, experts=count, shared=0)


def experts_of_the_roofline(context: Context) -> Iterator[Row]:
    """Against the longer of touched bytes over bandwidth and operations over the int8 ceiling."""
    ceilings = Ceilings(1)
    for count, bound in ((64, 2.0), (256, 1.25)):
        with layers(_experts(count), 1) as layer:
            call, touched = layer.feed_forward(ROWS)
            work = layer.work(ROWS, touched)
            sides = {"ours": call, "floor": ceilings.floor(work.operations, work.nbytes)}
            times = in_turns(sides, 9, inner=3)
        floor = ceilings.seconds(work.operations, work.nbytes)
        seconds = statistics.median(times["ours"])
        note = f"{touched} touched, {1e3 * seconds:.1f} ms, roofline {1e3 * floor:.1f} ms; "
        note += f"of each round's own {ratio(times, 'ours', 'floor'):.2f}x"
        name = f"{count} experts, m 32, 1 thread: of the roofline time"
        yield at_most(name, seconds / floor, bound, "{:.2f}", "x", note)


def experts_against_onnxruntime(context: Context) -> Iterator[Row]:
    """QMoE with int8 activations, behind the same router."""
    for count in (64, 256):
        with layers(_experts(count), 1) as layer:
            try:
                peer = layer.peer()
            except Missing as reason:
                raise Skipped(str(reason)) from reason
            call, _ = layer.feed_forward(ROWS)
            times = in_turns({"ours": call, "onnxruntime": peer.call(ROWS)}, 9, inner=3)
        yield at_least(
            f"{count} experts, m 32, 1 thread: against onnxruntime QMoE",
            ratio(times, "onnxruntime", "ours"),
            1.9,
            "{:.2f}",
            "x",
        )


def avx2_forced(context: Context) -> Iterator[Row]:
    """The same shapes: products, experts, and the slice's block and token."""
    if not {WIDE, NARROW} <= set(_core.available_isas()):
        raise Skipped(f"this processor does not run {WIDE}")
    speeds = {}
    for group in (32, 128):
        for n in (512, 2048, 8192):
            for m in (1, 4, 8, 16, 32, 64):
                product = {isa: _product(group, n, isa).ours(m) for isa in (WIDE, NARROW)}
                speeds[f"g{group}, n {n}, m {m}"] = _speed(product)
    for count in (64, 256):
        with layers(_experts(count), 1, WIDE) as wide, layers(_experts(count), 1, NARROW) as narrow:
            calls = {WIDE: wide.feed_forward(ROWS)[0], NARROW: narrow.feed_forward(ROWS)[0]}
            speeds[f"{count} experts"] = _speed(calls)
    bench = Bench(context.models, SHAPES["slice"], "slice", threads=2)
    models = {isa: bench.ours(isa=isa) for isa in (WIDE, NARROW)}
    for name in ("block", "token"):
        calls = {
            isa: model.block(0, every=False) if name == "block" else model.token()
            for isa, model in models.items()
        }
        speeds[name] = _speed(calls)
    worst = min(speeds, key=speeds.__getitem__)
    mean = geometric_mean(list(speeds.values()))
    note = f"worst {speeds[worst]:.2f}x at {worst}; {len(speeds)} shapes"
    yield at_least(f"{NARROW} of {WIDE}, speed, geometric mean", mean, 0.45, "{:.2f}", "x", note)


def _product(group: int, n: int, isa: str) -> Product:
    return Product(Scheme("int4", group), n, 2048, 1, 1, isa)


def _speed(calls: dict[str, Call]) -> float:
    return 1 / ratio(in_turns(calls, 7, inner=3), NARROW, WIDE)


CHECKS: list[Check] = [experts_of_the_roofline, experts_against_onnxruntime, avx2_forced]
