"""Compares devices and runtimes: one table, and pictures, of records of `clover-edge bench`.

    python benches/compare.py benches/results/*.jsonl                       # the table, on stdout
    python benches/compare.py benches/results/*.jsonl --pictures DIR        # pictures as well
    python benches/compare.py benches/results/*.jsonl --docs                # docs/benchmarks.md

Files hold what `clover-edge bench -o jsonl` (or json) writes, or benches/device.py, which measures
other runtimes, too. Pictures need the extra `plot`; without it they are left out, with a line on
stderr that says so.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from comparison import tables
from comparison.page import page
from comparison.plots import NoPlots, draw
from comparison.results import BadResults, read

DOCS = Path(__file__).parents[1] / "docs"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--pictures", type=Path, metavar="DIR", help="draw pictures there")
    parser.add_argument("--format", choices=("svg", "png"), default="svg", help="of pictures")
    parser.add_argument(
        "--docs", action="store_true", help="write docs/benchmarks.md and its pictures instead"
    )
    arguments = parser.parse_args()
    try:
        results = read(arguments.results)
    except BadResults as error:
        parser.error(str(error))
    if not any(not result.skipped for result in results):
        parser.error("no record was measured")
    if arguments.docs:
        (DOCS / "benchmarks.md").write_text(page(results), encoding="utf-8")
    else:
        print(tables.table(results))
        for line in tables.not_measured(results):
            print(f"not measured: {line}", file=sys.stderr)
    folder = DOCS / "images" if arguments.docs else arguments.pictures
    if folder is not None:
        try:
            for path in draw(results, folder, "svg" if arguments.docs else arguments.format):
                print(path, file=sys.stderr)
        except NoPlots as reason:
            print(f"no pictures: {reason}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
