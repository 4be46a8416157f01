"""llama.cpp on a GGUF of the shape, whose 4-bit blocks (Q4_0) are as large as ours."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from forward_cases import BLOCK, Ids
from peers.llama_cpp_model import Model

from .side import Asked

_KIND = "Q4_0"
_CHUNK = 2048  # ids at once, as llama-bench has it


class LlamaCpp:
    """Tokens that a test stands behind are kept in a file and read back."""

    runtime, package = "llama.cpp", "llama-cpp-python"

    def __init__(self, asked: Asked) -> None:
        bench = asked.bench
        self._path = bench.gguf(_KIND, asked.routing)
        started = time.perf_counter_ns()
        self._model = Model(self._path, bench.threads, asked.context, repack=True)
        self.load_ns = time.perf_counter_ns() - started
        self._ids = Ids(bench.shape.vocab, seed=1)
        self._kept = tempfile.TemporaryDirectory(prefix="clover-edge-baseline-")

    def facts(self) -> dict[str, Any]:
        size, parameters = self._model.size
        return {
            "model_filename": self._path.name,
            "model_type": f"qwen35moe {_KIND}",
            "model_size": size,
            "model_n_params": parameters,
            "quant": _KIND,
            "group_size": 32,
            "type_k": "f16",
            "type_v": "f16",
        }

    def behind(self, depth: int) -> None:
        kept = Path(self._kept.name) / f"{depth}.state"
        if kept.exists():
            self._model.load(kept, depth)
            return
        self._model.reset()
        self.extend(depth)
        if depth:
            self._model.save(kept)

    def extend(self, count: int) -> None:
        for start in range(0, count, _CHUNK):
            self._model.decode(self._ids(min(_CHUNK, count - start)))

    def preview(self) -> None:
        self._model.block_step(self._ids(BLOCK))

    def close(self) -> None:
        self._model.close()
        self._kept.cleanup()
