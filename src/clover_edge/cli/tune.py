"""`clover-edge tune`: how to decode a model on this machine, measured."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError
from ..generation import QUALITIES

if TYPE_CHECKING:
    from ..tuning import Candidate, Plan


def add_parser(commands: Any) -> None:
    """Adds the command to the command line."""
    parser = commands.add_parser(
        "tune", help="choose how to decode a model on this machine", description=__doc__
    )
    parser.add_argument("model", metavar="MODEL", help="a packed folder")
    parser.add_argument(
        "--quality",
        choices=QUALITIES,
        default="balanced",
        help="exact: no approximation; balanced: decided rows are skipped; fast: and experts of a "
        "block limited (default balanced)",
    )
    parser.add_argument(
        "--prompts", type=Path, metavar="FILE", help="a prompt a line; default: the package's own"
    )
    parser.add_argument(
        "--max-new-tokens", type=int, default=48, metavar="N", help="of each prompt (default 48)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--threads", type=int, metavar="N", help="default: as many as are fastest")
    parser.add_argument("--isa", metavar="NAME", help="force an instruction set (see: devices)")
    parser.set_defaults(handler=_handle)


def _handle(arguments: argparse.Namespace) -> int:
    from ..model import load
    from ..tuning import plan_for

    if arguments.max_new_tokens < 1:
        raise ArgumentError(f"max-new-tokens: {arguments.max_new_tokens} is below 1")
    prompts = None if arguments.prompts is None else _lines(arguments.prompts)
    threads = arguments.threads or _threads(arguments.model, arguments.isa)
    with load(arguments.model, threads=threads, isa=arguments.isa) as model:
        plan = plan_for(
            model,
            arguments.quality,
            prompts=prompts,
            new=True,
            new_tokens=arguments.max_new_tokens,
            progress=lambda what: print(f"measuring {what}", file=sys.stderr),
        )
    print(json.dumps(plan.to_dict(), indent=2) if arguments.json else table(plan))
    return 0


def _threads(path: str, isa: str | None) -> int:
    """As many as make a token and a block fastest."""
    from .._core import default_threads
    from ..loader import open_core, read_folder
    from ..synthetic import synthetic_ids
    from ..tuning.costs import seconds_by_threads

    folder, most = read_folder(path), default_threads()
    if most == 1:
        return 1
    text, width = synthetic_ids(folder.spec, 64), folder.spec.get("block_size", 16)
    found = seconds_by_threads(
        lambda threads: open_core(folder, threads=threads, isa=isa), most, text, width
    )
    for threads, seconds in found.items():
        print(f"{threads} threads: a token and a block {1e3 * seconds:.2f} ms", file=sys.stderr)
    return min(found, key=found.__getitem__)


def _lines(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as problem:
        raise ArgumentError(f"prompts: {path}: is not UTF-8 at byte {problem.start}") from None
    except OSError as problem:
        raise ArgumentError(f"prompts: {path}: {problem.strerror or problem}") from None
    prompts = [line for line in lines if line.strip()]
    if not prompts:
        raise ArgumentError(f"prompts: {path}: holds no line of text")
    return prompts


def table(plan: Plan) -> str:
    """What a forward costs, and every setting: the choice first."""
    rows = [f"{'rows':>6} {'forward ms':>11} {'head ms':>8}"]
    for n, forward, head in zip(plan.costs.rows, plan.costs.free, plan.costs.head, strict=True):
        rows.append(f"{n:>6} {1e3 * forward:>11.2f} {1e3 * head:>8.2f}")
    names = [_named(each) for each in plan.candidates]
    width = max(map(len, names))
    rows += ["", f"{'setting':<{width}} {'predicted tok/s':>16} {'measured':>9}"]
    for name, each in zip(names, plan.candidates, strict=True):
        measured = "" if each.measured_tps is None else f"{each.measured_tps:.1f}"
        rows.append(f"{name:<{width}} {each.predicted_tps:>16.1f} {measured:>9}".rstrip())
    chosen = " ".join(_flag(name, value) for name, value in plan.options.items())
    rows += ["", f"chosen for --quality {plan.quality}: --threads {plan.threads} {chosen}"]
    return "\n".join(rows)


def _named(candidate: Candidate) -> str:
    parts = [candidate.mode]
    if candidate.mode != "ar":
        parts.append(f"{candidate.block_length} wide")
    if candidate.skip_rows:
        every = f", all every {candidate.refresh} steps" if candidate.refresh else ""
        parts.append(f"rows skipped{every}")
    if candidate.cache:
        parts.append(f"cache {candidate.cache}")
    if candidate.coreset_size:
        parts.append(f"coreset {candidate.coreset_size}")
    if candidate.coreset_share:
        parts.append(f"{candidate.coreset_share:.0%} of the experts")
    return ", ".join(parts)


def _flag(name: str, value: object) -> str:
    flag = "--" + name.replace("_", "-")
    return flag if value is True else f"{flag} {value}"
