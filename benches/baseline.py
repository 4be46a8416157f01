"""Another runtime on the shapes that `clover-edge bench` measures, as records of the same fields.

    python benches/baseline.py llama.cpp --shape 100m --folder DIR
    python benches/baseline.py pytorch --shape 100m --folder DIR -p 512 -n 32 -d 0,4096

Tests: ppN reads a prompt, blk32 makes the passes that a block takes in a number of steps, arN
appends N tokens one by one. Models have random weights (benches/synthetic.py) and are made in the
folder when they are not there. A runtime that is not installed gives one record that says so.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from baselines import SIDES
from baselines.side import Asked, records
from forward_cases import BLOCK, Bench
from peers.codes import Missing
from synthetic import COMMON, SHAPES

from clover_edge import _core


def numbers(text: str) -> list[int]:
    """A list of counts, none of them below 0."""
    found = [int(part) for part in text.split(",")]
    if min(found) < 0:
        raise argparse.ArgumentTypeError(f"{min(found)} is below 0")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runtime", choices=SIDES)
    parser.add_argument("--shape", choices=SHAPES, default="100m")
    parser.add_argument("--routing", choices=COMMON, default="correlated")
    parser.add_argument("--folder", type=Path, required=True, help="where models are made and kept")
    parser.add_argument(*("-p", "--n-prompt"), type=numbers, default=[512], metavar="N[,N]")
    parser.add_argument(*("-n", "--n-gen"), type=numbers, default=[32], metavar="N[,N]")
    parser.add_argument(*("-d", "--n-depth"), type=numbers, default=[0], metavar="N[,N]")
    parser.add_argument("--steps", type=int, default=8, help="of a block; 0: no block")
    parser.add_argument(*("-r", "--repetitions"), type=int, default=3)
    parser.add_argument("--threads", type=int, default=_core.default_threads())
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    prompts, texts = ([n for n in given if n] for given in (options.n_prompt, options.n_gen))
    context = max(options.n_depth) + max([*prompts, *texts, 2 * BLOCK])
    bench = Bench(options.folder, SHAPES[options.shape], options.shape, options.threads)
    asked = Asked(bench, options.routing, context)
    try:
        for record in records(
            lambda: SIDES[options.runtime](asked),
            prompts,
            texts,
            options.n_depth,
            options.steps,
            options.repetitions,
            options.threads,
        ):
            print(json.dumps(record), flush=True)
    except Missing as reason:
        skipped = {"runtime": options.runtime, "test": "all", "skipped": str(reason)}
        print(json.dumps(skipped), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
