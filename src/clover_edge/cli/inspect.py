"""`clover-edge inspect`: what a packed folder holds, after the checks that a run makes."""

from __future__ import annotations

import argparse
import json
from typing import Any


def add_parser(commands: Any) -> None:
    """Adds the command to the command line."""
    parser = commands.add_parser("inspect", help="what a packed folder holds", description=__doc__)
    parser.add_argument("model", metavar="MODEL", help="a packed folder")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(handler=_handle)


def _handle(arguments: argparse.Namespace) -> int:
    from ..loader import open_core, read_folder
    from ..summary import summarize

    folder = read_folder(arguments.model)
    open_core(folder, threads=1)
    facts = summarize(folder)
    if arguments.json:
        print(json.dumps(facts, indent=2))
        return 0
    kinds = facts["spec"]["layer_types"]
    print(f"{facts['path']}: {facts['family']}, recipe {facts['recipe']}")
    print(
        f"{len(kinds)} layers ({kinds.count('deltanet')} DeltaNet, {kinds.count('attention')} "
        f"attention), hidden {facts['spec']['hidden_size']}, "
        f"{facts['spec']['num_experts']} experts of which {facts['spec']['top_k']} a token, "
        f"vocabulary {facts['spec']['valid_vocab']}, context {facts['spec']['max_positions']}, "
        f"blocks of {facts['spec']['block_size']}"
    )
    print()
    print(table(facts["tensors"], facts["parameters"], facts["bytes"]))
    print()
    defaults = ", ".join(f"{name} {value}" for name, value in sorted(facts["generation"].items()))
    print(f"decode defaults: {defaults}")
    return 0


def table(rows: list[dict[str, Any]], parameters: int, stored: int) -> str:
    """Tensors by class, with bits per weight."""
    lines = [f"{'class':<16}{'tensors':>8}{'weights':>14}{'bytes':>14}{'bits':>7}  schemes"]
    total = {"class": "all", "parameters": parameters, "bytes": stored, "schemes": []}
    total["tensors"] = sum(row["tensors"] for row in rows)
    for row in [*rows, total]:
        bits = 8 * row["bytes"] / row["parameters"]
        lines.append(
            f"{row['class']:<16}{row['tensors']:>8}{row['parameters']:>14,}{row['bytes']:>14,}"
            f"{bits:>7.2f}  {', '.join(row['schemes'])}".rstrip()
        )
    return "\n".join(lines)
