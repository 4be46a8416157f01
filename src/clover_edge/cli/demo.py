"""`clover-edge demo`: the whole pipeline in one command, offline.

Packs the bundled checkpoint into a temporary folder and turns spoken requests into tool calls.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .. import demo
from ..loader import read_folder
from ..model import Model, load
from ..quant import RECIPES
from ..results import Event
from ..summary import summarize
from .options import add_runtime_options
from .output import Result, counters_table, show

SAMPLES = (
    "could you set the bedroom to 19 degrees, also text Maya that dinner is ready",
    "wake me up at 6:45 on Friday",
    "what's the weather like in Lisbon tomorrow?",
    "tell me a joke about penguins",
)
SHOWN_SECONDS = 0.1  # each state of a block, on a terminal


def add_parser(commands: Any) -> None:
    """Adds the command to the command line."""
    parser = commands.add_parser("demo", help="pack and run the bundled model", description=__doc__)
    parser.add_argument(
        "--prompt", metavar="TEXT", action="append", help="a request of your own (repeatable)"
    )
    parser.add_argument("--recipe", default="int4", choices=list(RECIPES))
    parser.add_argument("--ar", action="store_true", help="autoregressively: one token a forward")
    parser.add_argument(
        "--show",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="on a terminal, show the blocks denoise",
    )
    add_runtime_options(parser)
    parser.set_defaults(handler=_handle)


def _handle(arguments: argparse.Namespace) -> int:
    started = time.perf_counter()
    handle = demo.pack(arguments.recipe)
    with handle:
        path = demo.packed_path(handle)
        packed = time.perf_counter() - started
        _note(_packing_line(path, arguments.recipe, packed))
        with load(path, threads=arguments.threads, isa=arguments.isa, kv=arguments.kv) as model:
            _note(f"loaded: {model.core.isa} kernels, {model.core.threads} threads\n")
            results = [
                _answer(model, request, arguments) for request in arguments.prompt or SAMPLES
            ]
    print(counters_table(result.counters for result in results))
    _note(f"\ndone in {time.perf_counter() - started:.1f} s")
    return 0


def _answer(model: Model, request: str, arguments: argparse.Namespace) -> Result:
    events: Iterable[Event] = model.stream(
        [{"role": "user", "content": request}], mode="ar" if arguments.ar else "diffusion"
    )
    print(f"> {request}".encode(errors="replace").decode(), flush=True)
    if arguments.show and sys.stdout.isatty():
        events = list(events)  # generated at full speed, shown at a pace that an eye can follow
    result = show(events, drafts=arguments.show, pause=SHOWN_SECONDS)
    print(flush=True)
    return result


def _packing_line(path: Path, recipe: str, seconds: float) -> str:
    source = sum(file.stat().st_size for file in demo.checkpoint_path().glob("*.safetensors"))
    facts = summarize(read_folder(path))
    return (
        f"packed the bundled model to {recipe} in {seconds:.1f} s: "
        f"{facts['parameters']:,} weights, {source / 1e6:.1f} MB -> {facts['bytes'] / 1e6:.1f} MB"
    )


def _note(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
