"""clover-export: pack a checkpoint folder. Data goes to stdout, everything else to stderr."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from ..errors import CloverError
from ..quant import GROUPS, METHODS, RECIPES, Recipe
from .calibration import DEFAULT_TOKENS, calibration_passages
from .checkpoint import Checkpoint
from .coding import Coding
from .norms import NORMS
from .partial import unfinished
from .pipeline import plan_export, write_plan
from .plan import SHARD_BYTES, Plan
from .recipe_file import find_recipe
from .report import loss_table, plan_dict, plan_table

_BASES = ("int4", "int8", "bf16", "f32")
_METHODS = tuple(method for method in METHODS if method != "absmax")


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 done, 1 failed or interrupted, 2 wrong usage."""
    parser = _parser()
    options = parser.parse_args(arguments)
    choice = _recipe(parser, options)
    if options.out is None and not options.dry_run:
        parser.error("-o OUT is needed (or --dry-run)")
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        return _run(options, find_recipe(choice))
    except CloverError as problem:
        print(f"clover-export: {problem}", file=sys.stderr)
    except KeyboardInterrupt:
        print(f"clover-export: interrupted; {_left(options.out)}", file=sys.stderr)
    finally:
        signal.signal(signal.SIGTERM, before)
    return 1


def _left(out: Path | None) -> str:
    """What an interruption has left."""
    if out is None or not unfinished(out.resolve()).exists():
        return "nothing was written"
    return f"the same command with --resume goes on ({unfinished(out)} holds what is done)"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="clover-export",
        description="Pack a PyTorch checkpoint folder for clover-edge, quantising it on the way.",
    )
    parser.add_argument(
        "checkpoint", type=Path, metavar="CHECKPOINT", help="Hugging Face folder, or GGUF file"
    )
    parser.add_argument("-o", "--out", type=Path, metavar="OUT", help="new or empty folder")
    base = parser.add_mutually_exclusive_group()
    for name in _BASES:
        base.add_argument(
            f"--{name}", dest="base", action="store_const", const=name, help=_help(name)
        )
    parser.add_argument(
        "--recipe",
        metavar="NAME|FILE.toml",
        help=f"exact recipe, instead of the above: {', '.join(RECIPES)}, or a file of your own",
    )
    parser.add_argument(
        "--group-size",
        type=int,
        choices=GROUPS,
        help="columns that share a scale; default 32, where it fits",
    )
    parser.add_argument(
        "--method", choices=_METHODS, default="rtn", help="how codes are found (default rtn)"
    )
    parser.add_argument(
        "--calib",
        type=Path,
        metavar="FILE.txt|jsonl",
        help="calibration text for the methods weighted and gptq; default: a small built-in set",
    )
    parser.add_argument(
        "--calib-tokens",
        type=_count,
        default=DEFAULT_TOKENS,
        metavar="N",
        help=f"tokens of it to run (default {DEFAULT_TOKENS})",
    )
    parser.add_argument(
        "--threads", type=_count, default=0, metavar="N", help="default: as many as fit the machine"
    )
    _add_details(parser)
    return parser


def _add_details(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--norm",
        choices=("auto", *NORMS),
        default="auto",
        help="norm convention, where the weights do not tell it",
    )
    parser.add_argument(
        "--shard-size", type=_gigabytes, default=SHARD_BYTES, metavar="GB", help="default 4"
    )
    parser.add_argument(
        "--resume", action="store_true", help="go on where an interrupted export to OUT stopped"
    )
    parser.add_argument(
        "--preview-tensors", type=Path, metavar="FOLDER", help="where a GGUF lost Clover's own"
    )
    parser.add_argument(
        "--report",
        action="store_true",
        help="then measure quality against the checkpoint: quality.md, .json, .png in OUT",
    )
    parser.add_argument("--dry-run", action="store_true", help="print the plan, write nothing")
    parser.add_argument("--json", action="store_true", help="plan or report as JSON on stdout")


def _help(base: str) -> str:
    return {
        "int4": "experts 4 bits, what every token uses 8 bits (recipe int4)",
        "int8": "every matrix 8 bits",
        "bf16": "every matrix bfloat16",
        "f32": "every value float32, for checking",
    }[base]


def _gigabytes(text: str) -> int:
    size = int(float(text) * 1e9)
    if size <= 0:
        raise argparse.ArgumentTypeError(f"{text} is not a size")
    return size


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number above 0")
    return count


def _recipe(parser: argparse.ArgumentParser, options: argparse.Namespace) -> str:
    base, exact = options.base, options.recipe
    if base is None and exact is None:
        parser.error("one of --int4, --int8, --bf16, --f32 or --recipe NAME is needed")
    if exact and exact not in RECIPES and Path(exact).suffix != ".toml":
        parser.error(f"--recipe {exact}: is neither a .toml file nor one of {', '.join(RECIPES)}")
    if base and exact and exact.partition("-")[0] != base:
        parser.error(f"--{base} contradicts --recipe {exact}")
    return str(exact or base)


def _run(options: argparse.Namespace, recipe: Recipe) -> int:
    started = time.monotonic()
    coding = Coding(options.method, threads=options.threads)
    with Checkpoint(options.checkpoint, preview_tensors=options.preview_tensors) as source:
        plan = plan_export(source, recipe, options.group_size, options.shard_size)
        print(plan_table(plan), file=sys.stderr)
        for warning in plan.warnings:
            print(f"warning: {warning}", file=sys.stderr)
        if options.dry_run:
            if options.json:
                _print_json(plan_dict(plan))
            return 0
        passages = calibration_passages(
            source, plan.model.spec, options.method, options.calib, options.calib_tokens
        )
        with _Bar(plan) as bar:
            report = write_plan(
                source,
                plan,
                options.out,
                coding=coding,
                passages=passages,
                norm=options.norm,
                resume=options.resume,
                progress=bar.update,
            )
    for warning in report.coding.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    print(loss_table(report), file=sys.stderr)
    seconds = time.monotonic() - started
    print(f"{options.out}: {plan.file_bytes:,} bytes in {seconds:.1f} s", file=sys.stderr)
    if options.json:
        _print_json(report.as_dict())
    return _measure(options) if options.report else 0


def _measure(options: argparse.Namespace) -> int:
    """The quality report. What goes wrong here leaves a packed folder that is complete."""
    from ..cli.progress import Bars
    from ..evaluation import evaluate
    from ..evaluation.reference import packed_to_float

    try:
        with (
            Bars() as bars,
            packed_to_float(
                options.checkpoint,
                bars.update,
                norm=options.norm,
                preview_tensors=options.preview_tensors,
            ) as reference,
        ):
            found = evaluate(options.out, against=reference, progress=bars.update)
        for path in found.write(options.out):
            print(f"wrote {path}", file=sys.stderr)
    except (CloverError, OSError, KeyboardInterrupt) as problem:
        reason = str(problem) or "interrupted"
        print(
            f"clover-export: {options.out} is complete, without report: {reason}", file=sys.stderr
        )
        return 1
    return 0


class _Bar:
    """A progress bar on a terminal, nothing elsewhere."""

    def __init__(self, plan: Plan) -> None:
        self._total = plan.parameters

    def __enter__(self) -> _Bar:
        from tqdm import tqdm

        self._bar: Any = tqdm(
            total=self._total, unit="w", unit_scale=True, disable=None, file=sys.stderr
        )
        return self

    def update(self, done: int, total: int, name: str) -> None:
        self._bar.set_postfix_str(name, refresh=False)
        self._bar.update(done - self._bar.n)

    def __exit__(self, *exception: object) -> None:
        self._bar.close()


def _print_json(value: dict[str, Any]) -> None:
    print(json.dumps(value, indent=2))


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """A request to end takes the same way out as Ctrl-C: temporary files go."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
