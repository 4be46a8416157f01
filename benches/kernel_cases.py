"""Kernels at the shapes of the model, ready to be timed: ours and the peers' on the same codes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from measure import Call
from numpy.typing import NDArray
from peers import onnxruntime_ops, openvino_ops, torch_ops
from peers.codes import Codes, Missing, draw
from synthetic import Shape, write

from clover_edge import _core
from clover_edge.loader import PackedFolder, read_folder
from clover_edge.quant import CODEBOOK, Scheme

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]

# What has a float weight is compared with nobody: nothing is quantised there.
PEERS: dict[str, ModuleType] = {
    "onnxruntime": onnxruntime_ops,
    "openvino": openvino_ops,
    "torch": torch_ops,
}


@dataclass(frozen=True)
class Work:
    """What one call does: operations (a multiply-add is two) and bytes of weights and state."""

    operations: float
    nbytes: float


@dataclass
class Product:
    """Rows [m, k] times `copies` matrices [n, k], one call each."""

    scheme: Scheme
    n: int
    k: int
    copies: int
    threads: int
    isa: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        self.codes: list[Codes] = []
        if self.scheme.name in ("int4", "int8"):
            bits = 4 if self.scheme.name == "int4" else 8
            one = draw(self.n, self.k, self.scheme.group, bits, rng)
            # Other matrices are the first one with its rows moved: quick to make, and other bytes.
            rolls = [16 * i for i in range(self.copies)]
            self.codes = [
                Codes(np.roll(one.codes, r, 0), np.roll(one.scales, r, 0), bits) for r in rolls
            ]
            self.stored = [codes.packed() for codes in self.codes]
        else:
            self.stored = [_random_bytes(self.scheme, self.n, self.k, rng)] * self.copies
            self.stored = [each.copy() for each in self.stored]

    def work(self, m: int) -> Work:
        """Of all copies."""
        nbytes = sum(each.nbytes for each in self.stored)
        return Work(2.0 * m * self.n * self.k * self.copies, nbytes)

    def rows(self, m: int) -> Floats:
        return np.random.default_rng(m).standard_normal((m, self.k), np.float32)

    def ours(self, m: int, *, rounding: bool = True) -> Call:
        """All copies once; `rounding` counts the rounding of the rows to int8, as peers do."""
        timer = _core.timing.Product(
            self.isa,
            self.threads,
            self.stored,
            self.scheme.name,
            self.n,
            self.k,
            self.scheme.group,
            self.rows(m),
            list(self.scheme.codebook),
        )
        return lambda: sum(timer.run(rounding) for _ in self.stored)

    def peer(self, name: str) -> Peer:
        """A peer on the same codes. Raises Missing."""
        if not self.codes:
            raise Missing(f"{name} has no {self.scheme.name}")
        return Peer(PEERS[name].MatMul(self.codes, self.threads), self.rows)


@dataclass
class Peer:
    """A peer's matrices; `call(m)` sets the rows and gives what runs them."""

    product: Any
    rows: Callable[[int], Floats]

    def call(self, m: int) -> Call:
        x = self.rows(m)

        def run() -> None:
            self.product.run()

        self.product.bind(x)
        return run


def _random_bytes(scheme: Scheme, n: int, k: int, rng: np.random.Generator) -> Bytes:
    """A stored matrix of any scheme with finite values; n is a multiple of 16."""
    if not scheme.quantised:
        values = rng.standard_normal(n * k, np.float32) / np.float32(np.sqrt(k))
        bits = values.view(np.uint32)
        return (values if scheme.name == "f32" else (bits >> 16).astype(np.uint16)).view(np.uint8)
    stored = np.frombuffer(bytearray(rng.bytes(scheme.nbytes((n, k)))), np.uint8)
    groups = stored.reshape(-1, scheme.group_bytes)
    groups[:, :32] = np.full((len(groups), 16), 0.01, "<f2").view(np.uint8)
    return stored


def schemes(names: Sequence[str] = ()) -> list[Scheme]:
    """Every scheme and group, or those named, e.g. "int4 g32"."""
    every = [Scheme(name, group) for name in ("int4", "int8") for group in (32, 64, 128)]
    every += [Scheme("codebook4", 32, CODEBOOK), Scheme("int3", 64), Scheme("bf16"), Scheme("f32")]
    return [scheme for scheme in every if not names or label(scheme) in names]


def label(scheme: Scheme) -> str:
    return f"{scheme.name} g{scheme.group}" if scheme.group else scheme.name


@dataclass
class Layer:
    """Single layers of a synthetic model."""

    folder: PackedFolder
    timer: Any
    threads: int

    def rows(self, m: int) -> Floats:
        width = self.folder.spec["hidden_size"]
        return np.random.default_rng(m).standard_normal((m, width), np.float32)

    def feed_forward(self, m: int) -> tuple[Call, int]:
        """What runs the experts of layer 0, and how many of them that touches."""
        x = self.rows(m)
        touched = self.timer.feed_forward(0, x)[1]
        return (lambda: self.timer.feed_forward(0, x)[0]), touched

    def mixer(self, layer: int, m: int, *, preview: bool) -> Call:
        x = self.rows(m)
        return lambda: self.timer.mixer(layer, x, preview)

    def work(self, m: int, touched: int) -> Work:
        """Of the feed-forward half without a shared expert: router and touched experts."""
        spec, entry = self.folder.spec, self.folder.entries["layers.0.experts"]
        hidden, inner = spec["hidden_size"], spec["expert_intermediate"]
        router = spec["num_experts"] * hidden
        parts = sum(part["bytes"] for part in entry["parts"].values())
        operations = 2.0 * m * (3 * spec["top_k"] * hidden * inner + router)
        return Work(operations, touched * parts + 4 * router)

    def peer(self) -> Peer:
        """onnxruntime's router and QMoE at this shape, and with this router. Raises Missing."""
        spec, rng = self.folder.spec, np.random.default_rng(1)
        experts, hidden = spec["num_experts"], spec["hidden_size"]
        inner, group = spec["expert_intermediate"], self.folder.group_size
        router = self._stored("layers.0.router").view(np.float32).reshape(experts, hidden)
        moe = onnxruntime_ops.MoE(
            router,
            draw(experts * 2 * inner, hidden, group, 4, rng),
            draw(experts * hidden, inner, group, 4, rng),
            spec["top_k"],
            self.threads,
        )
        return Peer(moe, self.rows)

    def _stored(self, name: str) -> Bytes:
        row = next(row for row in self.folder.table if row["name"] == name)
        file = self.folder.files[row["file"]]
        return np.fromfile(file, np.uint8, row["bytes"], offset=row["offset"])


@contextmanager
def layers(
    shape: Shape,
    threads: int,
    isa: str | None = None,
    *,
    recipe: str = "int4-all",
    group: int = 32,
    committed: int = 0,
) -> Iterator[Layer]:
    """Layers of a synthetic model, behind `committed` tokens; the folder goes away again."""
    with tempfile.TemporaryDirectory(prefix="clover-edge-layers-") as scratch:
        write(Path(scratch) / "model", shape, recipe=recipe, group=group)
        folder = read_folder(Path(scratch) / "model")
        timer = _core.timing.Layers(
            dict(folder.spec),
            [str(file) for file in folder.files],
            [dict(row) for row in folder.table],
            threads,
            isa,
            committed + 1024,
        )
        if committed:
            ids = np.random.default_rng(0).integers(0, folder.spec["vocab_size"] // 2, committed)
            timer.commit(ids.tolist())
        yield Layer(folder, timer, threads)
