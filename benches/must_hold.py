"""Measures what the project promises: one line a row, `name, figure, bound, verdict`.

    python benches/must_hold.py foundation
    python benches/must_hold.py foundation --only kl --limit 100     # a quick look
    python benches/must_hold.py kernels --models DIR                 # keeps synthetic models there
    python benches/must_hold.py quantisation --models DIR            # wheels of real models, there
    python benches/must_hold.py families --models DIR                # likewise
    python benches/must_hold.py face --only clients --limit 10       # ten seconds of a minute

Exit code 1 if a row falls short, else 3 if one had to be skipped, else 0. The checks stand in
benches/checks/, a module for each set of rows; every figure is measured by this run.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from checks.row import Context, Row, Skipped

SETS = ("foundation", "kernels", "quantisation", "families", "decode", "face", "onnx")


def rows(context: Context, name: str, only: str | None) -> Iterable[Row]:
    """Runs the checks of a set. One that cannot run here gives a skipped row, one that breaks a
    row that falls short: the others are measured all the same."""
    for check in importlib.import_module(f"checks.{name}").CHECKS:
        label = check.__name__.replace("_", " ")
        if only and only not in label:
            continue
        try:
            yield from check(context)
        except Skipped as reason:
            yield Row(label, "-", "-", None, str(reason))
        except Exception as error:
            traceback.print_exc()
            yield Row(label, type(error).__name__, "no error", False, str(error)[:200])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("set", choices=SETS)
    parser.add_argument("--only", metavar="WORD", help="only checks whose name contains WORD")
    parser.add_argument(
        "--limit", type=int, metavar="N", help="at most N prompts of a set, N texts"
    )
    parser.add_argument("--no-install", action="store_true", help="without the fresh install")
    parser.add_argument("--checkpoint", type=Path, help="a demo checkpoint other than the bundled")
    parser.add_argument(
        "--models",
        type=Path,
        help="where synthetic models are made and kept, downloaded wheels found",
    )
    parser.add_argument("--no-full", action="store_true", help="without the model of full size")
    arguments = parser.parse_args()
    count, short, skipped = 0, False, False
    with tempfile.TemporaryDirectory(prefix="clover-edge-must-hold-") as scratch:
        context = Context(
            Path(scratch),
            arguments.limit,
            not arguments.no_install,
            arguments.checkpoint,
            arguments.models or Path(scratch),
            not arguments.no_full,
        )
        started = time.perf_counter()
        for row in rows(context, arguments.set, arguments.only):
            print(row.line(), flush=True)
            count += 1
            short, skipped = short or row.holds is False, skipped or row.holds is None
    if not count:
        parser.error(f"--only: no check of {arguments.set} has {arguments.only!r} in its name")
    print(f"{time.perf_counter() - started:.0f} s", file=sys.stderr)
    return 1 if short else 3 if skipped else 0


if __name__ == "__main__":
    sys.exit(main())
