"""Writes packed models of Clover's shape with random weights, of any size, a few blocks in memory.

    python benches/synthetic.py OUT --shape slice                   # a tenth of the model
    python benches/synthetic.py OUT --shape full --routing correlated
    python benches/synthetic.py OUT --shape slice --layers 8 --experts 64 --recipe int4

The folder is planned and laid out by the exporter, from a checkpoint that is names and shapes,
so the loader and the core open it like any other; only the codes are random bytes. Scales are those
of a random model whose activations stay near 1. There is no tokenizer: it takes ids.

Routing: "random" embeddings are independent, so 32 rows of 256 experts touch about 163;
"correlated" ones share a direction, so that they touch about 69, as trained models do.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from tiny_clover import draw, tensor_shapes, tiny_config, to_bf16

from clover_edge.export import Checkpoint, Plan, plan_export
from clover_edge.export.packed_file import PackedWriter
from clover_edge.export.pipeline import FORMAT_VERSION
from clover_edge.export.plan import PlannedExperts, PlannedTensor
from clover_edge.export.sources import Opened, TensorInfo
from clover_edge.export.sources.base import Source
from clover_edge.quant import Scheme, encode
from clover_edge.quant.schemes import TILE_ROWS

Bytes = NDArray[np.uint8]

# Share of a row's square that the direction common to all rows takes. 0.58 makes 32 rows touch 69
# of 256 experts where router logits are Gaussian; later layers add a little of their own.
COMMON = {"random": 0.0, "correlated": 0.58}
_BLOCK = 16 << 20  # bytes of random codes made at once, then repeated
_BANK = 8  # different expert records
_ENCODED_ROWS = 1024  # different embedding rows where they are correlated
# Root mean square of a code's level, its scale being 1.
_LEVELS = {
    "int8": math.sqrt((127**2 + 127) / 3),
    "int4": math.sqrt(sum((c - 8) ** 2 for c in range(16)) / 16),
    "int3": math.sqrt(sum((c - 4) ** 2 for c in range(8)) / 8),
}


@dataclass(frozen=True)
class Shape:
    """A model's dimensions; those left out are the release's."""

    layers: int
    vocab: int
    hidden: int = 2048
    experts: int = 256
    top_k: int = 8
    inner: int = 512
    shared: int = 512
    heads: int = 16
    kv_heads: int = 2
    head_dim: int = 256
    delta_k_heads: int = 16
    delta_v_heads: int = 32
    delta_dim: int = 128

    def config(self) -> dict[str, Any]:
        """The configuration of a checkpoint of this shape; every fourth layer is attention."""
        return tiny_config(
            hidden=self.hidden,
            layers=self.layers,
            experts=self.experts,
            top_k=self.top_k,
            vocab=self.vocab,
            overrides={
                "max_position_embeddings": 262_144,
                "num_attention_heads": self.heads,
                "num_key_value_heads": self.kv_heads,
                "head_dim": self.head_dim,
                "linear_num_key_heads": self.delta_k_heads,
                "linear_num_value_heads": self.delta_v_heads,
                "linear_key_head_dim": self.delta_dim,
                "linear_value_head_dim": self.delta_dim,
                "moe_intermediate_size": self.inner,
                "shared_expert_intermediate_size": self.shared,
                "num_shared_experts": 1 if self.shared else 0,
            },
        )


SHAPES = {
    "100m": Shape(4, 8192, 512, 64, 4, 256, 256, 4, 2, 128, 4, 8, 64),
    "slice": Shape(4, 24_832),
    "full": Shape(40, 248_320),
}


def write(
    out: str | Path,
    shape: Shape,
    *,
    recipe: str = "int4-all",
    group: int = 32,
    routing: str = "random",
    seed: int = 0,
) -> Plan:
    """Writes the folder `out`, which must not exist, and returns its plan."""
    out, config = Path(out), shape.config()
    with header_only(config) as checkpoint:
        plan = plan_export(checkpoint, recipe, group)
    free = shutil.disk_usage(out.parent).free
    if plan.file_bytes > free:
        raise SystemExit(f"{out}: needs {plan.file_bytes:,} bytes, {free:,} are free")
    out.mkdir()
    fill = Fill(np.random.default_rng(seed), COMMON[routing])
    with PackedWriter(out, list(plan.files)) as writer:
        for item in plan.tensors:
            if isinstance(item, PlannedExperts):
                fill.experts(writer, item)
            else:
                fill.tensor(writer, item)
        writer.finish()
    _write_config(out, config, plan)
    return plan


class _Header(Source):
    """Tensors that are names and shapes, which is all that a plan looks at."""

    def __init__(self, path: Path, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.tensors = {
            name: TensorInfo("BF16", shape, path, 2 * math.prod(shape))
            for name, shape in shapes.items()
        }


def header_only(config: dict[str, Any], path: Path | None = None) -> Checkpoint:
    """A Clover checkpoint as its configuration says it is, without weights: enough for a plan.

    `path`: of the configuration, for errors. Raises KeyError naming a key that is missing.
    """
    path = path or Path("config.json")
    shapes = {
        name if name.startswith("lm_head") else f"model.{name}": shape
        for name, shape in tensor_shapes(config.get("text_config", config)).items()
    }
    text = json.dumps(config).encode()
    return Checkpoint(Opened(path, config, text, _Header(path, shapes), lambda name: None))


def _write_config(out: Path, config: dict[str, Any], plan: Plan) -> None:
    ours = {
        "format_version": FORMAT_VERSION,
        "family": plan.model.family,
        "recipe": plan.recipe,
        "group_size": plan.group_size,
        "spec": {**plan.model.spec, "norm_offset": 1.0},
        "generation": plan.model.generation,
        "tensors": {item.name: item.entry for item in plan.tensors},
    }
    (out / "config.json").write_text(json.dumps({**config, "clover_edge": ours}, indent=2))


class Fill:
    """Makes tensors' bytes. Blocks of random rows are made once for each scheme and width."""

    def __init__(self, rng: np.random.Generator, common: float) -> None:
        self._rng, self._common = rng, common
        self._blocks: dict[tuple[Any, ...], Bytes] = {}
        self._banks: dict[tuple[Any, ...], list[Bytes]] = {}

    def tensor(self, writer: PackedWriter, item: PlannedTensor) -> None:
        """Writes a whole vector or matrix."""
        if item.kind == "float":
            writer.write(item.name, self._drawn(item).data)
            return
        width = item.source.shape[-1]
        if item.name == "embed" and self._common:
            block = self._common_rows(item.scheme, width)
        else:
            block = self._block(item.scheme, width, _deviation(item.name, width))
        tile = item.scheme.nbytes((TILE_ROWS, width))
        left = item.blob.nbytes
        at = tile * int(self._rng.integers(len(block) // tile))
        while left:
            piece = block[at : at + left]
            writer.write(item.name, piece.data)
            left, at = left - len(piece), 0

    def experts(self, writer: PackedWriter, item: PlannedExperts) -> None:
        """Writes the records of a layer, each one of a few."""
        key = (item.record_bytes, *(part.scheme for part in item.parts.values()))
        if key not in self._banks:
            self._banks[key] = [self._record(item) for _ in range(_BANK)]
        for number in self._rng.integers(_BANK, size=item.source.experts):
            writer.write(item.name, self._banks[key][number].data)

    def _record(self, item: PlannedExperts) -> Bytes:
        record = np.zeros(item.record_bytes, np.uint8)
        for name, part in item.parts.items():
            width = part.source.shape[-1]
            block = self._block(part.scheme, width, _deviation(name, width))
            tile = part.scheme.nbytes((TILE_ROWS, width))
            at = tile * int(self._rng.integers(len(block) // tile))
            values = np.resize(np.roll(block, -at), part.nbytes)
            record[part.offset : part.offset + part.nbytes] = values
        return record

    def _block(self, scheme: Scheme, width: int, deviation: float) -> Bytes:
        """Whole tiles of random rows with this standard deviation."""
        key = (scheme, width, deviation)
        if key not in self._blocks:
            tile = scheme.nbytes((TILE_ROWS, width))
            tiles = max(1, _BLOCK // tile)
            make = self._codes if scheme.quantised else self._floats
            self._blocks[key] = make(scheme, tiles * TILE_ROWS, width, deviation)
        return self._blocks[key]

    def _floats(self, scheme: Scheme, rows: int, width: int, deviation: float) -> Bytes:
        values = self._rng.standard_normal(rows * width, np.float32) * np.float32(deviation)
        return (values if scheme.name == "f32" else to_bf16(values)).view(np.uint8)

    def _codes(self, scheme: Scheme, rows: int, width: int, deviation: float) -> Bytes:
        groups = rows // TILE_ROWS * (width // scheme.group)
        out = np.frombuffer(
            bytearray(self._rng.bytes(groups * scheme.group_bytes)), np.uint8
        ).reshape(groups, scheme.group_bytes)
        levels = scheme.codebook or None
        rms = math.sqrt(np.mean(np.square(levels))) if levels else _LEVELS[scheme.name]
        scales = np.full((groups, TILE_ROWS), deviation / rms, "<f2")
        if scheme.name == "int8":
            codes = out[:, 2 * TILE_ROWS :]
            codes[codes == 0x80] = 0x81  # -128 is no code
        else:  # levels lean to one side, so signs alternate
            scales *= self._rng.choice(np.array([-1, 1], "<f2"), scales.shape)
        out[:, : 2 * TILE_ROWS] = scales.view(np.uint8)
        return out.reshape(-1)

    def _common_rows(self, scheme: Scheme, width: int) -> Bytes:
        """Rows of deviation 1 of which a share is the same in all."""
        rows = self._rng.standard_normal((_ENCODED_ROWS, width), np.float32)
        rows *= math.sqrt(1 - self._common)
        rows += math.sqrt(self._common) * self._rng.standard_normal(width, np.float32)
        return encode(rows, scheme).reshape(-1).view(np.uint8)

    def _drawn(self, item: PlannedTensor) -> Bytes:
        """Float tensors, piece by piece as the tests' tiny checkpoints draw them."""
        width = item.source.shape[-1]
        values = [
            draw(piece.source.removeprefix("model."), (piece.stop - piece.start, width), self._rng)
            for piece in item.source.pieces
        ]
        return np.concatenate(values).astype("<f4").reshape(-1).view(np.uint8)


def _deviation(name: str, width: int) -> float:
    """Of a matrix's weights: embeddings have unit elements, products keep their size, and what a
    layer adds is half as large, so that the rows of a deep model stay apart."""
    if name == "embed":
        return 1.0
    gain = 2.5 if name == "head" else 0.5 if name.endswith(("out", "down")) else 1.0
    return gain / math.sqrt(width)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--shape", choices=SHAPES, default="slice")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--experts", type=int)
    parser.add_argument("--vocab", type=int)
    parser.add_argument("--recipe", default="int4-all")
    parser.add_argument("--group", type=int, default=32)
    parser.add_argument("--routing", choices=COMMON, default="random")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    changes = {
        name: value
        for name in ("layers", "experts", "vocab")
        if (value := getattr(arguments, name)) is not None
    }
    started = time.perf_counter()
    plan = write(
        arguments.out,
        replace(SHAPES[arguments.shape], **changes),
        recipe=arguments.recipe,
        group=arguments.group,
        routing=arguments.routing,
        seed=arguments.seed,
    )
    taken, size = time.perf_counter() - started, plan.file_bytes
    print(
        f"{arguments.out}: {plan.parameters / 1e9:.2f} B parameters, {size / 1e9:.2f} GB, ", end=""
    )
    print(f"{taken:.1f} s, {size / taken / 1e6:.0f} MB/s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
