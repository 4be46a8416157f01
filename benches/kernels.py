"""Times the kernels a pass spends its time in, beside this machine's ceilings and what others do.

    python benches/kernels.py                              # tables, one and two threads
    python benches/kernels.py --threads 1 --only products --m 1 8 32 --n 2048
    python benches/kernels.py --isa avx2 --json

Products: rows [m, k] times W [n, k]^T from float rows to float results, rounding of the rows to
int8 included on every side; several matrices in turn, "hot" ones that fit the last cache together
or, at m = 1, "cold" ones that are far larger. GOP/s counts 2 m n k. Peers run in the same rounds,
where they are installed (extras `bench`, `peers`); a number after × is their time over ours.
Fractions are of the ceilings that the same run measures.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import kernel_cases as cases
import numpy as np
from measure import Call, Ceilings, in_turns, ratio
from peers.codes import Missing
from synthetic import Shape

from clover_edge import _core

HEADS, WIDTH = 32, 128
HOT_BYTES, COLD_BYTES = 10 << 20, 256 << 20
Row = dict[str, Any]


def _row(group: str, case: str, seconds: float, work: cases.Work, ceilings: Ceilings) -> Row:
    return {
        "group": group,
        "case": case,
        "threads": ceilings.threads,
        "ms": 1e3 * seconds,
        "gops": work.operations / seconds / 1e9,
        "gbs": work.nbytes / seconds / 1e9,
        "of_dot": work.operations / seconds / ceilings.dot,
        "of_fma": work.operations / seconds / ceilings.fma,
        "of_read": work.nbytes / seconds / ceilings.read,
        "peers": {},
    }


def products(options: argparse.Namespace, ceilings: Ceilings) -> Iterator[Row]:
    """Matrix products of every scheme."""
    for scheme in cases.schemes(options.scheme):
        for n in options.n:
            nbytes = scheme.nbytes((n, options.k))
            copies = max(1, min(4, HOT_BYTES // nbytes))
            product = cases.Product(scheme, n, options.k, copies, ceilings.threads, options.isa)
            peers = dict(_peers(product, options.peers))
            for m in options.m:
                sides: dict[str, Call] = {"ours": product.ours(m)}
                sides.update({name: peer.call(m) for name, peer in peers.items()})
                times = in_turns(sides, options.rounds, threads=ceilings.threads)
                seconds = statistics.median(times["ours"]) / copies
                work = product.work(m)
                one = cases.Work(work.operations / copies, work.nbytes / copies)
                case = f"{cases.label(scheme)}, n {n}, m {m}"
                row = _row("products", case, seconds, one, ceilings)
                row["peers"] = {name: ratio(times, name, "ours") for name in peers}
                yield row


def _peers(product: cases.Product, names: list[str]) -> Iterator[tuple[str, cases.Peer]]:
    for name in names:
        try:
            yield name, product.peer(name)
        except Missing:
            continue


def cold(options: argparse.Namespace, ceilings: Ceilings) -> Iterator[Row]:
    """One row, weights that no cache holds: memory speed."""
    for scheme in cases.schemes(options.scheme):
        n = 8192
        copies = COLD_BYTES // scheme.nbytes((n, options.k)) + 1
        product = cases.Product(scheme, n, options.k, copies, ceilings.threads, options.isa)
        times = in_turns({"ours": product.ours(1)}, 5, inner=3)
        seconds, work = statistics.median(times["ours"]), product.work(1)
        case = f"{cases.label(scheme)}, n {n}, m 1, {copies} matrices"
        yield _row("cold", case, seconds, work, ceilings)


def experts(options: argparse.Namespace, ceilings: Ceilings) -> Iterator[Row]:
    """The experts of a layer, hidden 2048, inner 512, top-8, router included, no shared expert."""
    for count in (64, 256):
        shape = Shape(1, 512, experts=count, shared=0)
        with cases.layers(shape, ceilings.threads, options.isa, group=options.group) as layer:
            try:
                peer = layer.peer() if "onnxruntime" in options.peers else None
            except Missing:
                peer = None
            for m in options.m:
                ours, touched = layer.feed_forward(m)
                sides = {"ours": ours, **({"onnxruntime": peer.call(m)} if peer else {})}
                times = in_turns(sides, options.rounds, inner=3, threads=ceilings.threads)
                work, seconds = layer.work(m, touched), statistics.median(times["ours"])
                case = f"{count} experts, m {m}, {touched} touched"
                row = _row("experts", case, seconds, work, ceilings)
                row["of_roofline"] = ceilings.seconds(work.operations, work.nbytes) / seconds
                row["peers"] = {
                    name: ratio(times, name, "ours") for name in sides if name != "ours"
                }
                yield row


def mixers(options: argparse.Namespace, ceilings: Ceilings) -> Iterator[Row]:
    """Mixer halves of the model's shape, projections included, int4 g32."""
    for committed in (0, 1024, 4096):
        shape = Shape(4, 16_384, experts=16)
        with cases.layers(shape, ceilings.threads, options.isa, committed=committed) as layer:
            for number, kind in ((0, "deltanet"), (3, "attention")):
                if kind == "deltanet" and committed:
                    continue  # its cost does not depend on the past
                for preview in (False, True):
                    for m in options.m:
                        call = layer.mixer(number, m, preview=preview)
                        times = in_turns({"ours": call}, options.rounds)["ours"]
                        mode = "preview" if preview else "commit"
                        case = f"{kind}, {mode}, past {committed}, m {m}"
                        work = _mixer_work(layer, number, m, committed)
                        yield _row("mixers", case, statistics.median(times), work, ceilings)


def _mixer_work(layer: cases.Layer, number: int, m: int, committed: int) -> cases.Work:
    """Projections, and keys and values or recurrent matrices once."""
    spec, entries = layer.folder.spec, layer.folder.entries
    kind = "attn" if spec["layer_types"][number] == "attention" else "delta"
    names = [f"layers.{number}.{kind}.{part}" for part in ("in", "out")]
    parameters = sum(float(np.prod(entries[name]["shape"])) for name in names)
    nbytes = float(sum(layer.folder.sizes[name] for name in names))
    if kind == "attn":
        width = spec["head_dim"] * spec["num_kv_heads"]
        keys = committed + m
        pairs = 2.0 * 2 * m * keys * spec["head_dim"] * spec["num_heads"]
        return cases.Work(2 * m * parameters + pairs, nbytes + 2 * 4 * width * keys)
    state = spec["delta_v_heads"] * spec["delta_k_dim"] * spec["delta_v_dim"]
    return cases.Work(2 * m * parameters + 3 * 2.0 * m * state, nbytes + 4 * state)


def heads(options: argparse.Namespace, ceilings: Ceilings) -> Iterator[Row]:
    """Kernels that mix rows, all heads of a layer, one thread."""
    timing, isa = _core.timing, options.isa
    for m in options.m:
        state = 4.0 * WIDTH**2 * HEADS
        walk = cases.Work(3 * 2.0 * m * WIDTH**2 * HEADS, state)
        look = cases.Work(2.0 * m * WIDTH * (WIDTH + 2 * m) * HEADS, state)
        for kind, work in (("commit", walk), ("closed", walk), ("preview", look)):
            call = timing.delta(isa, kind, m, HEADS, WIDTH)
            yield _single("heads", f"delta {kind}, m {m}", call, work, ceilings, options)
        work = cases.Work(2.0 * m * 8192 * 4, 4.0 * 8192 * (2 * m + 7))
        call = timing.conv(isa, m, 8192, 4)
        yield _single("heads", f"convolution, 8192 channels, m {m}", call, work, ceilings, options)
        for past in (1024, 4096):
            keys = past + m
            for kv, width in (("f32", 4 * 256), ("f16", 2 * 256), ("int8", 4 + 256)):
                work = cases.Work(4.0 * 16 * m * keys * 256, 2.0 * 2 * keys * width)
                call = timing.attention(isa, m, 16, 2, 256, past, kv)
                case = f"attention, past {past}, {kv}, m {m}"
                yield _single("heads", case, call, work, ceilings, options)


def _single(
    group: str,
    case: str,
    call: Any,
    work: cases.Work,
    ceilings: Ceilings,
    options: argparse.Namespace,
) -> Row:
    times = in_turns({"ours": call.run}, options.rounds)["ours"]
    return _row(group, case, statistics.median(times), work, ceilings)


def head_stats(options: argparse.Namespace, ceilings: Ceilings) -> Iterator[Row]:
    """Projection onto the vocabulary and its statistics, one thread."""
    n, k, rng = 24_832, options.k, np.random.default_rng(2)
    for scheme in cases.schemes(options.scheme or ["int4 g32", "int8 g32"]):
        product = cases.Product(scheme, n, k, 1, 1, options.isa)
        for m in options.m:
            x = rng.standard_normal((m, k), np.float32)
            stored = (product.stored[0], scheme.name, n, k, scheme.group, x, n)
            extra = {"codebook": np.array(scheme.codebook, np.int8)} if scheme.codebook else {}
            run = partial(_core.kernels.head, options.isa, *stored, **extra)
            taken = in_turns({"ours": lambda run=run: run() and None}, options.rounds)["ours"]
            case = f"{cases.label(scheme)}, n {n}, m {m}"
            yield _row("head", case, statistics.median(taken), product.work(m), ceilings)


GROUPS = {
    "products": products,
    "cold": cold,
    "experts": experts,
    "mixers": mixers,
    "heads": heads,
    "head": head_stats,
}
SINGLE = ("heads", "head")  # timed on one thread only


def _print(row: Row) -> None:
    cells = [row["case"], f"{row['ms']:.3f}", f"{row['gops']:.0f}", f"{row['gbs']:.1f}"]
    cells += [f"{100 * row[name]:.0f} %" for name in ("of_dot", "of_fma", "of_read")]
    cells.append(", ".join(f"{name} ×{value:.2f}" for name, value in row["peers"].items()))
    print("| " + " | ".join(cells) + " |", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--isa", help="an instruction set of _core.available_isas()")
    parser.add_argument("--json", action="store_true", help="one object a line")
    parser.add_argument("--only", nargs="+", choices=GROUPS, default=list(GROUPS))
    parser.add_argument("--scheme", nargs="+", default=[], metavar='"int4 g32"')
    parser.add_argument("--n", type=int, nargs="+", default=[512, 2048, 8192])
    parser.add_argument("--k", type=int, default=2048)
    parser.add_argument("--m", type=int, nargs="+", default=[1, 4, 8, 16, 32, 64])
    parser.add_argument("--group", type=int, default=32, help="of the experts")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--peers", nargs="*", choices=cases.PEERS, default=list(cases.PEERS))
    return parser.parse_args()


def main() -> int:
    options = _options()
    for threads in options.threads:
        ceilings = Ceilings(threads, options.isa)
        if options.json:
            found = {"dot": ceilings.dot, "fma": ceilings.fma, "read": ceilings.read}
            print(json.dumps({"ceilings": found, "threads": threads}))
        else:
            print(f"\n{options.isa or _core.available_isas()[-1]}, {ceilings}")
        for name in options.only:
            if name in SINGLE and threads > 1:
                continue
            if not options.json:
                print(f"\n| {name} | ms | GOP/s | GB/s | of int8 | of f32 | of read | peers |")
                print("| --- |" + " ---: |" * 6 + " --- |")
            for row in GROUPS[name](options, ceilings):
                print(json.dumps(row), flush=True) if options.json else _print(row)
    return 0


if __name__ == "__main__":
    sys.exit(main())
