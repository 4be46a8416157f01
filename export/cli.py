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
from .onnx import (
    import_onnx,
    is_packed,
    packing_place,
    plan_onnx,
    read_spec,
    refuse_packing,
    write_onnx,
)
from .partial import unfinished
from .pipeline import check_target, plan_export, write_plan
from .plan import SHARD_BYTES, Plan
from .recipe_file import find_recipe
from .report import Report, loss_table, plan_dict, plan_table

_BASES = ("int4", "int8", "bf16", "f32")
_METHODS = tuple(method for method in METHODS if method != "absmax")


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 done, 1 failed or interrupted, 2 wrong usage."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.out is None and not options.dry_run:
        parser.error("-o OUT is needed (or --dry-run)")
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        return _run_onnx(parser, options) if options.format == "onnx" else _run(parser, options)
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
        "checkpoint",
        type=Path,
        metavar="CHECKPOINT",
        help="Hugging Face folder, or GGUF file; for ONNX a packed folder, too",
    )
    parser.add_argument("-o", "--out", type=Path, metavar="OUT", help="new or empty folder")
    parser.add_argument(
        "--format",
        choices=("packed", "onnx"),
        default="packed",
        help="a packed folder (default), or ONNX graphs of one for onnxruntime",
    )
    parser.add_argument(
        "--activations",
        choices=("int8", "float", "core"),
        help="of ONNX graphs: what quantised weights meet (default int8: the fastest)",
    )
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


def _run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    if options.activations:
        parser.error("--activations is of --format onnx")
    started = time.monotonic()
    recipe = find_recipe(_recipe(parser, options))
    plan, report = _pack(options, recipe, options.out)
    if report is None:
        return 0
    _print_end(options.out, plan.file_bytes, started)
    if options.json:
        _print_json(report.as_dict())
    return _measure(options) if options.report else 0


def _pack(
    options: argparse.Namespace, recipe: Recipe, out: Path, *, graphs: bool = False
) -> tuple[Plan, Report | None]:
    """The checkpoint's packed folder; no report where the plan is all that is asked for. `graphs`:
    it is to become ONNX."""
    coding = Coding(options.method, threads=options.threads)
    with Checkpoint(options.checkpoint, preview_tensors=options.preview_tensors) as source:
        plan = plan_export(source, recipe, options.group_size, options.shard_size)
        if graphs:
            read_spec(plan.model.spec)
        print(plan_table(plan), file=sys.stderr)
        for warning in plan.warnings:
            print(f"warning: {warning}", file=sys.stderr)
        if options.dry_run:
            if options.json:
                _print_json(plan_dict(plan))
            return plan, None
        passages = calibration_passages(
            source, plan.model.spec, options.method, options.calib, options.calib_tokens
        )
        with _Bar(plan.parameters, "w") as bar:
            report = write_plan(
                source,
                plan,
                out,
                coding=coding,
                passages=passages,
                norm=options.norm,
                resume=options.resume,
                progress=bar.update,
            )
    for warning in report.coding.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    print(loss_table(report), file=sys.stderr)
    return plan, report


def _run_onnx(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    import_onnx()
    given = [flag for name, flag in _PACKING.items() if _is_given(parser, options, name)]
    given += [f"--{options.base}"] if options.base else []
    if is_packed(options.checkpoint):
        refuse_packing(options.checkpoint, given)
        return _write_onnx(options, options.checkpoint)
    recipe = find_recipe(_recipe(parser, options))
    for flag in ("--resume", "--report"):
        if flag in given:
            parser.error(f"{flag} is not of --format onnx: pack first, then export what is packed")
    if options.dry_run:
        _pack(options, recipe, options.out, graphs=True)
        return 0
    check_target(options.out)
    with packing_place(options.out) as packed:
        _pack(options, recipe, packed, graphs=True)
        return _write_onnx(options, packed)


def _write_onnx(options: argparse.Namespace, packed: Path) -> int:
    started = time.monotonic()
    plan = plan_onnx(packed, activations=options.activations or "int8")
    if not options.dry_run:
        with _Bar(plan.nbytes, "B") as bar:
            write_onnx(plan, options.out, progress=bar.update)
        _print_end(options.out, plan.nbytes, started)
    else:
        print(f"{', '.join(plan.files.values())}: {plan.nbytes:,} bytes", file=sys.stderr)
    if options.json:
        _print_json(plan.as_dict())
    return 0


# Options that say how to pack, by where argparse keeps them.
_PACKING = {
    "recipe": "--recipe",
    "group_size": "--group-size",
    "method": "--method",
    "calib": "--calib",
    "calib_tokens": "--calib-tokens",
    "threads": "--threads",
    "norm": "--norm",
    "shard_size": "--shard-size",
    "resume": "--resume",
    "preview_tensors": "--preview-tensors",
    "report": "--report",
}


def _is_given(parser: argparse.ArgumentParser, options: argparse.Namespace, name: str) -> bool:
    return bool(getattr(options, name) != parser.get_default(name))


def _print_end(out: Path, nbytes: int, started: float) -> None:
    print(f"{out}: {nbytes:,} bytes in {time.monotonic() - started:.1f} s", file=sys.stderr)


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

    def __init__(self, total: int, unit: str) -> None:
        self._total, self._unit = total, unit

    def __enter__(self) -> _Bar:
        from tqdm import tqdm

        self._bar: Any = tqdm(
            total=self._total, unit=self._unit, unit_scale=True, disable=None, file=sys.stderr
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
