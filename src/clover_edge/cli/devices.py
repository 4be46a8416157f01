"""`clover-edge devices`: instruction sets and threads that this machine offers."""

from __future__ import annotations

import argparse
import json
from typing import Any


def add_parser(commands: Any) -> None:
    """Adds the command to the command line."""
    parser = commands.add_parser(
        "devices", help="instruction sets and threads here", description=__doc__
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(handler=_handle)


def _handle(arguments: argparse.Namespace) -> int:
    from .. import _core
    from ..machine import isa

    isas = _core.available_isas()
    threads, used = _core.default_threads(), isa()
    if arguments.json:
        print(json.dumps({"isas": isas, "isa": used.chosen, "threads": threads}))
        return 0
    print(f"instruction sets: {', '.join(isas)} (in use: {used.chosen or 'none'}, {used.why})")
    print(f"threads: {threads} (affinity, cgroup quota and physical cores allow no more)")
    return 0
