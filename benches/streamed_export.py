"""Exports the whole shape of Clover-35B-A3B, 69 GB of random bfloat16 weights that no disk holds.

    python benches/streamed_export.py --recipe int4 --out DIR      # needs up to 21 GB of disk

The source draws its rows when they are asked for; everything behind it is what a checkpoint on disk
goes through. Prints one JSON object: sizes, seconds, and the process's peak resident memory above
what it held before (Linux). The packed folder is removed, unless --keep.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from tiny_clover import RELEASE_WIDTHS, draw, tensor_shapes, tiny_config

from clover_edge.export.checkpoint import Checkpoint
from clover_edge.export.coding import Coding
from clover_edge.export.pipeline import plan_export, write_plan
from clover_edge.export.sources import Opened, Rows, Source, TensorInfo

KEYS = {**RELEASE_WIDTHS, "coreset_size": 48, "mask_token_id": 248_070}
_POOL = 1 << 24  # values drawn; large tensors go around in them
_SMALL = 1 << 16


class Drawn(Source):
    """Tensors of random values: the same ones whenever and in whatever pieces they are read."""

    def __init__(self, config: dict[str, Any]) -> None:
        shapes = {
            name if name == "lm_head.weight" else "model." + name: shape
            for name, shape in tensor_shapes(config).items()
        }
        place = Path(__file__)  # as good as any other
        self.tensors = {
            name: TensorInfo("BF16", shape, place, 2 * prod(shape))
            for name, shape in shapes.items()
        }
        normal = np.random.default_rng(0).standard_normal(_POOL, np.float32)
        normal *= np.float32(2048**-0.5)
        self._pool = (normal.view(np.uint32) >> 16).astype(np.uint16)
        self._starts = {name: 7919 * n for n, name in enumerate(shapes)}

    def read_rows(self, name: str, start: int, out: Rows) -> None:
        bits = self._bits(name, start * out.shape[1], out.size).reshape(out.shape)
        out[...] = bits if out.dtype == np.uint16 else (bits.astype(np.uint32) << 16).view("f4")

    def _bits(self, name: str, first: int, count: int) -> np.ndarray[Any, Any]:
        shape = self.tensors[name].shape
        if prod(shape) <= _SMALL:  # norms and decays have values of a kind
            values = draw(name.removeprefix("model."), shape, np.random.default_rng(1))
            flat = values.reshape(-1)[first : first + count]
            return (np.ascontiguousarray(flat).view(np.uint32) >> 16).astype(np.uint16)
        places = np.arange(self._starts[name] + first, self._starts[name] + first + count)
        return self._pool.take(places, mode="wrap")


def opened(layers: int = 40) -> Opened:
    """The checkpoint, as an export takes it."""
    config = tiny_config(
        hidden=2048, layers=layers, experts=256, top_k=8, vocab=248_320, overrides=KEYS
    )
    data = json.dumps(config).encode()
    return Opened(Path("drawn/config.json"), config, data, Drawn(config), lambda name: None)


def _status(field: str) -> int:
    """A figure of /proc/self/status, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise KeyError(field)


def export(recipe: str, out: Path, layers: int = 40) -> dict[str, Any]:
    """Exports and measures; leaves the packed folder."""
    with Checkpoint(opened(layers)) as source:
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins again
        before = _status("VmRSS")
        started = time.monotonic()
        plan = plan_export(source, recipe)
        write_plan(source, plan, out, coding=Coding())
        seconds = time.monotonic() - started
        peak = _status("VmHWM")
        source_bytes = source.nbytes
    return {
        "recipe": recipe,
        "source_bytes": source_bytes,
        "planned_bytes": plan.file_bytes,
        "packed_bytes": sum(path.stat().st_size for path in out.glob("*.safetensors")),
        "peak_above_bytes": peak - before,
        "seconds": round(seconds, 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recipe", default="int4")
    parser.add_argument("--out", type=Path, help="where; default: a temporary folder")
    parser.add_argument("--layers", type=int, default=40, help="fewer, for a quick look")
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="clover-edge-streamed-", dir=options.out))
    try:
        print(json.dumps(export(options.recipe, folder, options.layers)))
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
