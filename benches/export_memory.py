"""Peak resident memory of an export of a 2 GB synthetic checkpoint in 16 shards.

The export runs in its own process and reads without mapping, so that its peak is what it holds.
Prints one JSON object. Needs about 3.5 GB of disk in the temporary folder.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from math import ceil, prod
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from tiny_clover import RELEASE_WIDTHS, Shapes, draw, tensor_shapes, tiny_config, to_bf16

SHARDS = 16
_POOL = 1 << 20  # large tensors repeat this many random values: drawing a billion takes longer
_SMALL = 1 << 18


def config_of(gigabytes: float) -> dict[str, Any]:
    """Widths of the real model, and as many layers of 32 experts as the size asks for."""
    layer = 2 * (3 * 32 * 512 * 2048 + 8 * 2048 * 2048)
    vocab = 32768
    layers = max(1, ceil((gigabytes * 1e9 - 4 * vocab * 2048) / layer))
    return tiny_config(
        hidden=2048, layers=layers, experts=32, top_k=8, vocab=vocab, overrides=RELEASE_WIDTHS
    )


def make_checkpoint(folder: Path, gigabytes: float = 2.0) -> int:
    """Write the checkpoint in small pieces; returns the bytes of its tensors."""
    config = config_of(gigabytes)
    (folder / "config.json").write_text(json.dumps(config))
    shapes = {
        name if name == "lm_head.weight" else "model." + name: shape
        for name, shape in tensor_shapes(config).items()
    }
    total = 2 * sum(prod(shape) for shape in shapes.values())
    shards: list[Shapes] = [{} for _ in range(SHARDS)]
    done = 0
    for name, shape in shapes.items():
        shards[done * SHARDS // total][name] = shape
        done += 2 * prod(shape)
    rng = np.random.default_rng(0)
    pool = rng.standard_normal(_POOL, np.float32)
    weight_map = {}
    for number, shard in enumerate(shards):
        file = f"model-{number + 1:05d}-of-{SHARDS:05d}.safetensors"
        _write_shard(folder / file, shard, rng, pool)
        weight_map.update(dict.fromkeys(shard, file))
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return total


def _write_shard(
    path: Path, shapes: Shapes, rng: np.random.Generator, pool: np.ndarray[Any, Any]
) -> None:
    header, offset = {}, 0
    for name, shape in shapes.items():
        end = offset + 2 * prod(shape)
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, shape in shapes.items():
            for values in _values(name, shape, rng, pool):
                file.write(to_bf16(values).data)


def _values(
    name: str, shape: tuple[int, ...], rng: np.random.Generator, pool: np.ndarray[Any, Any]
) -> Iterator[np.ndarray[Any, Any]]:
    left = prod(shape)
    if left <= _SMALL:
        yield draw(name.removeprefix("model."), shape, rng)
        return
    scaled = pool / np.float32(np.sqrt(shape[-1]))
    while left > 0:
        yield scaled[:left]
        left -= len(scaled)


def measure(recipe: str = "int4", gigabytes: float = 2.0) -> dict[str, Any]:
    """Make the checkpoint, export it in a child process, and report the child's peak memory."""
    with tempfile.TemporaryDirectory(prefix="clover-export-memory-") as name:
        folder = Path(name) / "checkpoint"
        folder.mkdir()
        size = make_checkpoint(folder, gigabytes)
        out = Path(name) / "packed"
        command = [sys.executable, "-m", "clover_edge.export", str(folder), "-o", str(out)]
        started = time.monotonic()
        subprocess.run(
            [*command, "--recipe", recipe], check=True, stdout=subprocess.DEVNULL, stderr=None
        )
        seconds = time.monotonic() - started
        # Kilobytes on Linux. The only child so far, and this process stayed smaller than it.
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        packed = sum(path.stat().st_size for path in out.glob("*.safetensors"))
    return {
        "recipe": recipe,
        "shards": SHARDS,
        "checkpoint_bytes": size,
        "packed_bytes": packed,
        "peak_rss_bytes": usage.ru_maxrss * 1024,
        "seconds": round(seconds, 1),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipe", default="int4")
    parser.add_argument("--gigabytes", type=float, default=2.0)
    options = parser.parse_args()
    print(json.dumps(measure(options.recipe, options.gigabytes)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
