"""`clover-edge doctor`: what this machine offers, what is used and why, whether a model fits."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any

from ..domains import integer_of
from ..errors import ArgumentError

CONTEXT = 4096  # tokens, or what the model has


def add_parser(commands: Any) -> None:
    """Adds the command to the command line."""
    parser = commands.add_parser(
        "doctor", help="what this machine offers, and whether a model fits", description=__doc__
    )
    parser.add_argument("model", metavar="MODEL", nargs="?", help="a packed or ONNX folder")
    parser.add_argument(
        "--context",
        type=int,
        metavar="N",
        help=f"tokens of prompt and answer that are to fit (default {CONTEXT}, or the model's)",
    )
    parser.add_argument(
        "--kv", choices=("f32", "f16", "int8"), default="f32", help="how keys and values are kept"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(handler=_handle)


def _handle(arguments: argparse.Namespace) -> int:
    from ..loader import read_folder
    from ..machine import describe, fit, fit_onnx

    found = describe()
    if arguments.model is not None and found["isa"]["chosen"] is not None:
        folder = read_folder(arguments.model)
        limit = folder.spec["max_positions"]
        context = min(CONTEXT, limit) if arguments.context is None else arguments.context
        if integer_of(context) is None or not 1 <= context <= limit:
            raise ArgumentError(f"context: {context} is not an integer from 1 to {limit}")
        told = fit_onnx(folder) if folder.graphs else fit(folder, context, arguments.kv)
        found["model"] = {"path": str(folder.path), **told}
    if arguments.json:
        print(json.dumps(found, indent=2))
    else:
        print("\n".join(_lines(found)))
    refused = found["isa"]["chosen"] is None
    verdict = found.get("model", {}).get("verdict")
    return int(refused or verdict in ("does not fit", "needs extra onnx"))


def _lines(found: dict[str, Any]) -> Iterator[str]:
    versions, isa, threads = found["versions"], found["isa"], found["threads"]
    there = [f"{name} {number}" for name, number in versions.items() if number]
    absent = [name for name, number in versions.items() if not number]
    yield f"versions: {', '.join(there)}"
    if absent:
        yield f"not installed: {', '.join(absent)} (optional)"
    yield f"system: {found['platform']}"
    yield f"processor: {found['cpu']['name']}"
    yield "features: " + ", ".join(
        name if present else f"no {name}" for name, present in found["cpu"]["features"].items()
    )
    yield f"instruction set: {isa['chosen'] or 'none'} ({isa['why']})"
    for name, lacks in isa["lacks"].items():
        yield f"  {name}: {'lacks ' + lacks if lacks else 'runs here'}"
    yield f"threads: {threads['threads']} ({threads['why']})"
    memory = found["memory"]
    yield f"memory: {_bytes(memory['available'])} available of {_bytes(memory['total'])}"
    yield f"CUDA: {found['cuda']}"
    if "model" in found:
        yield from _model_lines(found["model"])


def _model_lines(model: dict[str, Any]) -> Iterator[str]:
    yield f"model: {model['path']}"
    weights = _bytes(model["weights"])
    if "providers" in model:
        providers = ", ".join(model["providers"])
        yield f"  graphs and their data: {weights}, for --backend onnxruntime"
        yield f"  providers: {providers}" if providers else "  needs extra onnx: clover-edge[onnx]"
        return
    yield f"  weights: {weights} mapped, of which every pass reads {_bytes(model['dense'])}"
    if "state" in model:
        yield f"  state: {_bytes(model['state'])} for {model['context']} tokens"
        yield f"  working memory: {_bytes(model['working'])}"
    words = {
        "fits": "fits in memory",
        "pages experts": "runs, but experts are read from disk as they are chosen",
        "does not fit": "does not fit",
    }
    yield f"  {words[model['verdict']]} ({_bytes(model['available'])} available)"


def _bytes(count: int | None) -> str:
    if count is None:
        return "an unknown amount"
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
