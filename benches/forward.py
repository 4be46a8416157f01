"""Times whole forwards: a denoising step of 32 rows, an autoregressive step, a prefill of 512.

    python benches/forward.py --slice                      # a tenth of Clover-35B-A3B, 2 GB
    python benches/forward.py --slice --routing correlated --no-peers
    python benches/forward.py --full --no-peers            # the whole shape, 19.5 GB of disk
    python benches/forward.py --model PATH                 # any packed folder

Models have random weights (benches/synthetic.py); llama.cpp runs a GGUF of the same shape in the
same rounds, where llama-cpp-python is installed (extra `peers`). Rows of a block are random ids, so
that every row routes for itself: rows that all hold the mask would share their experts. GB/s counts
the weights that a pass reads and the state. --folder keeps the models for another run.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from forward_cases import BLOCK, SAMPLING, Bench, Llama, Ours
from measure import Call, Ceilings, in_turns, ratio
from peers.codes import Missing
from synthetic import COMMON, SHAPES

Row = dict[str, Any]


def rows(
    ours: Ours, others: dict[str, Llama], ceilings: Ceilings, options: argparse.Namespace
) -> Iterator[Row]:
    """Every case in the order in which llama.cpp's one sequence can follow."""
    for count in (BLOCK, 512):
        call = ours.block(0, every=False) if count == BLOCK else ours.prompt(count)
        name = "block of 32, logits of the last row" if count == BLOCK else f"prefill of {count}"
        sides = {label: other.prompt(count) for label, other in others.items()}
        yield _row(name, count, call, sides, ours, 0, ceilings, options)
    sides = {label: other.token() for label, other in others.items()}
    yield _row("autoregressive step", 1, ours.token(), sides, ours, 0, ceilings, options)
    for committed in options.committed:
        name = f"block of 32 behind {committed}, logits of all rows"
        sides = {label: other.block(committed) for label, other in others.items() if committed}
        call = ours.block(committed, every=True)
        yield _row(name, BLOCK, call, sides, ours, committed, ceilings, options)
    if options.sampling:
        sides = {name: ours.denoise(8, **how) for name, how in SAMPLING.items()}
        times = in_turns(sides, options.rounds, threads=ceilings.threads, warm=True)
        for name in SAMPLING:
            case, cost = f"block in 8 steps, {name}", ratio(times, name, "greedy")
            print(
                json.dumps({"case": case, "of_greedy": cost})
                if options.json
                else f"{case}: {cost:.2f} times as long as greedy"
            )


def _row(
    name: str,
    tokens: int,
    call: Call,
    sides: dict[str, Call],
    ours: Ours,
    committed: int,
    ceilings: Ceilings,
    options: argparse.Namespace,
) -> Row:
    slow = tokens > BLOCK
    times = in_turns(
        {"ours": call, **sides},
        3 if slow else options.rounds,
        inner=1 if slow else 3,
        threads=ceilings.threads,
        warm=not slow,
    )
    seconds = statistics.median(times["ours"])
    experts, nbytes = ours.touched(call)
    rate = (nbytes + ours.state_bytes(committed)) / seconds
    return {
        "case": name,
        "tokens": tokens,
        "threads": ceilings.threads,
        "ms": 1e3 * seconds,
        "tokens_per_second": tokens / seconds,
        "experts": experts,
        "gbs": rate / 1e9,
        "of_read": rate / ceilings.read,
        "peers": {
            label: {
                "ms": 1e3 * statistics.median(times[label]),
                "ratio": ratio(times, label, "ours"),
            }
            for label in sides
        },
    }


def _print(row: Row) -> None:
    cells = [row["case"], f"{row['ms']:.1f}", f"{row['tokens_per_second']:.0f}"]
    experts = f"{row['experts']:.0f}" if row["tokens"] <= BLOCK else "all"  # in several chunks
    cells += [experts, f"{row['gbs']:.1f}", f"{100 * row['of_read']:.0f} %"]
    cells.append(
        ", ".join(
            f"{label} {peer['ms']:.0f} ms ×{peer['ratio']:.2f}"
            for label, peer in row["peers"].items()
        )
    )
    print("| " + " | ".join(cells) + " |", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--model", type=Path, help="a packed folder")
    which.add_argument("--slice", action="store_const", const="slice", dest="shape")
    which.add_argument("--full", action="store_const", const="full", dest="shape")
    which.add_argument("--shape", choices=SHAPES)
    parser.add_argument("--recipe", default="int4-all")
    parser.add_argument("--routing", nargs="+", choices=COMMON, default=list(COMMON))
    parser.add_argument("--committed", type=int, nargs="*", default=[0, 1024, 4096])
    parser.add_argument("--threads", type=int, nargs="+", default=[2])
    parser.add_argument("--isa")
    parser.add_argument("--kv", choices=("f32", "f16", "int8"), default="f32")
    parser.add_argument("--copy", action="store_true", help="weights in huge pages, not mapped")
    parser.add_argument("--sampling", action="store_true", help="what a choice of tokens costs")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--folder", type=Path, help="where models are made and kept")
    parser.add_argument("--json", action="store_true", help="one object a line")
    return parser.parse_args()


def _measure(options: argparse.Namespace, bench: Bench, routing: str) -> None:
    ceilings = Ceilings(bench.threads, bench.isa)
    with ExitStack() as stack:
        others: dict[str, Llama] = {}
        if options.model:
            ours = Ours(options.model, bench.threads, bench.isa, **bench.options)
            ours.warm()
        else:
            ours = bench.ours(routing, recipe=options.recipe)
        if not options.no_peers and not options.model:
            try:
                others = stack.enter_context(bench.llama(routing))
            except Missing as reason:
                print(f"without llama.cpp: {reason}", file=sys.stderr)
        if not options.json:
            what = options.model or f"{bench.name}, {options.recipe}, {routing} routing"
            print(f"\n{what}; {ours.core.isa}, {ceilings}\n")
            print("| case | ms | tok/s | experts a layer | GB/s | of read | llama.cpp |")
            print("| --- |" + " ---: |" * 5 + " --- |")
        for row in rows(ours, others, ceilings, options):
            print(json.dumps({**row, "routing": routing}), flush=True) if options.json else _print(
                row
            )


def main() -> int:
    options = _options()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="clover-edge-forward-"))
    folder.mkdir(exist_ok=True)
    name = options.shape or "slice"
    try:
        for threads in options.threads:
            how = {"kv": options.kv, "mmap": not options.copy}
            bench = Bench(folder, SHAPES[name], name, threads, options.isa, options=how)
            for routing in ["-"] if options.model else options.routing:
                _measure(options, bench, routing)
    finally:
        if not options.folder:
            shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
