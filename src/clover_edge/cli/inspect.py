"""`clover-edge inspect`: what a packed folder or an ONNX folder holds, after the checks that a run
makes; of graphs those that need no onnxruntime."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from typing import Any

from ..generation import is_autoregressive


def add_parser(commands: Any) -> None:
    """Adds the command to the command line."""
    parser = commands.add_parser("inspect", help="what a packed folder holds", description=__doc__)
    parser.add_argument("model", metavar="MODEL", help="a packed or ONNX folder")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(handler=_handle)


def _handle(arguments: argparse.Namespace) -> int:
    from ..loader import open_core, read_folder
    from ..summary import summarize

    folder = read_folder(arguments.model)
    if not folder.graphs:  # whose check would need onnxruntime
        open_core(folder, threads=1)
    facts = summarize(folder)
    if arguments.json:
        print(json.dumps(facts, indent=2))
        return 0
    print(f"{facts['path']}: {facts['family']}, recipe {facts['recipe']}")
    print(", ".join(shape_of(facts["spec"])))
    print()
    if folder.graphs:
        print(f"ONNX graphs, {facts['bytes']:,} bytes: {', '.join(facts['files'])}")
    else:
        print(table(facts["tensors"], facts["parameters"], facts["bytes"]))
    print()
    defaults = ", ".join(f"{name} {value}" for name, value in sorted(facts["generation"].items()))
    print(f"decode defaults: {defaults}")
    return 0


def shape_of(spec: Mapping[str, Any]) -> Iterator[str]:
    """The model's shape, a few words each."""
    kinds = spec["layer_types"]
    deltanet, attention = kinds.count("deltanet"), kinds.count("attention")
    yield f"{len(kinds)} layers ({deltanet} DeltaNet, {attention} attention)"
    yield f"hidden {spec['hidden_size']}"
    feed_forward = spec.get("ffn_types", ["experts"])
    if any(kind != "experts" for kind in feed_forward):
        yield f"feed-forward {spec['dense_intermediate']}"
    if any(kind != "dense" for kind in feed_forward):
        yield f"{spec['num_experts']} experts of which {spec['top_k']} a token"
    yield f"vocabulary {spec['valid_vocab']}"
    yield f"context {spec['max_positions']}"
    yield "autoregressive" if is_autoregressive(spec) else f"blocks of {spec['block_size']}"


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
