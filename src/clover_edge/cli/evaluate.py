"""`clover-edge eval`: the quality of a packed model on real text, alone or against another one."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from .options import add_generation_options, add_runtime_options, generation_options
from .progress import Bars


def add_parser(commands: Any) -> None:
    """Adds the command to the command line."""
    parser = commands.add_parser(
        "eval", help="perplexity, divergence and tasks of a packed folder", description=__doc__
    )
    parser.add_argument("model", metavar="PACKED", help="a packed folder")
    parser.add_argument(
        "--against",
        type=Path,
        metavar="FOLDER",
        help="compare with this packed folder or checkpoint (packed to float for the while)",
    )
    parser.add_argument(
        "--text",
        type=Path,
        metavar="FILE",
        help='.txt, or .jsonl of "text" or "messages"; default: text that comes with the package',
    )
    parser.add_argument(
        "--tasks",
        action=argparse.BooleanOptionalAction,
        help="exact match on the demo model's requests (default: where it is the demo model)",
    )
    parser.add_argument(
        "--limit",
        type=int,
        default=128,
        metavar="N",
        help="sequences at most, and requests of each task set (default 128)",
    )
    parser.add_argument(
        "--sequence-length", type=int, default=512, metavar="N", help="tokens at most (default 512)"
    )
    parser.add_argument(
        "--masks", type=int, default=1, metavar="N", help="previews of each block (default 1)"
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="write quality.md, .json and (extra plot) .png here"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, not Markdown")
    add_generation_options(parser)
    add_runtime_options(parser)
    parser.set_defaults(handler=_handle)


def _handle(arguments: argparse.Namespace) -> int:
    from ..evaluation import evaluate
    from ..model import load

    options = {"seed": 0, **generation_options(arguments)}
    with (
        load(
            arguments.model, threads=arguments.threads, isa=arguments.isa, kv=arguments.kv
        ) as model,
        Bars() as bars,
    ):
        found = evaluate(
            model,
            against=arguments.against,
            text=arguments.text,
            tasks=arguments.tasks,
            limit=arguments.limit,
            sequence_length=arguments.sequence_length,
            masks=arguments.masks,
            progress=bars.update,
            **options,
        )
    print(json.dumps(found.as_dict(), indent=2) if arguments.json else found.markdown(), end="")
    if arguments.json:
        print()
    if arguments.out is not None:
        for path in found.write(arguments.out):
            print(f"wrote {path}", file=sys.stderr)
    return 0
