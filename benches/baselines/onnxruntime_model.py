"""onnxruntime: the ONNX graphs of the very folder that the core runs (docs/onnx.md)."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from forward_cases import BLOCK, Ids
from numpy.typing import NDArray
from peers.codes import needs

from .side import Asked

_CHUNK = 128  # ids at once, as the core has it
_RECIPE = "int4-all"

Arrays = dict[str, NDArray[Any]]


class OnnxRuntime:
    """The state lies in numpy arrays, which the graphs read and this class writes."""

    runtime, package = "onnxruntime", "onnxruntime"

    def __init__(self, asked: Asked) -> None:
        with needs("onnx"):
            import onnxruntime
        bench = asked.bench
        self._packed = bench.path(_RECIPE, routing=asked.routing)
        self._folder = _exported(self._packed)
        self._config = json.loads((self._folder / "config.json").read_text())["clover_edge"]
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = bench.threads, 1
        options.log_severity_level = 3
        started = time.perf_counter_ns()
        self._sessions = {
            role: onnxruntime.InferenceSession(
                str(self._folder / name), options, providers=["CPUExecutionProvider"]
            )
            for role, name in self._config["graphs"].items()
            if role != "head"
        }
        self.load_ns = time.perf_counter_ns() - started
        self._context, self._ids = asked.context, Ids(bench.shape.vocab, seed=1)
        self._kept: dict[int, Arrays] = {}
        self._position = 0
        self._state = self._empty()

    def _empty(self) -> Arrays:
        """Room for `context` rows of keys and values, zeros of everything else."""
        state = {}
        for given in self._sessions["commit"].get_inputs():
            if given.name.startswith(("kv.", "delta.")):
                shape = [self._context if isinstance(n, str) else n for n in given.shape]
                state[given.name] = np.zeros(shape, np.float32)
        return state

    def facts(self) -> dict[str, Any]:
        from clover_edge.loader import read_folder
        from clover_edge.summary import summarize

        facts = summarize(read_folder(self._packed))
        return {
            "model_filename": self._folder.name,
            "model_type": f"{facts['family']} {facts['recipe']}",
            "model_size": sum(path.stat().st_size for path in self._folder.glob("*.data")),
            "model_n_params": facts["parameters"],
            "quant": facts["recipe"],
            "group_size": facts["group_size"],
            "type_k": "f32",
            "type_v": "f32",
        }

    def behind(self, depth: int) -> None:
        if depth not in self._kept:
            self._state, self._position = self._empty(), 0
            self.extend(depth)
            self._kept[depth] = {
                name: value[: self._position].copy() if name.startswith("kv.") else value
                for name, value in self._state.items()
            }
        self._position = depth
        for name, value in self._kept[depth].items():
            if name.startswith("kv."):
                self._state[name][:depth] = value
            else:
                self._state[name] = value

    def extend(self, count: int) -> None:
        for start in range(0, count, _CHUNK):
            rows = min(_CHUNK, count - start)
            new = self._run("commit", rows, [rows - 1])
            for name in self._state:
                if name.startswith("kv."):
                    end = self._position + rows
                    self._state[name][self._position : end] = new[f"{name}_new"]
                else:
                    self._state[name] = new[f"{name}_new"]
            self._position += rows

    def preview(self) -> None:
        self._run("preview", BLOCK, list(range(BLOCK)))

    def _run(self, role: str, count: int, asked: list[int]) -> Arrays:
        session, commit = self._sessions[role], role == "commit"
        numbers = np.arange(count, dtype=np.int64)
        feeds: Arrays = {
            "ids": np.array(self._ids(count), np.int64),
            "positions": self._position + numbers,
            "sees_from": np.zeros(count, np.int64),
            "sees_to": numbers + 1 if commit else np.full(count, count, np.int64),
            "rows": np.array(asked, np.int64),
            "history_width": np.array(BLOCK, np.float32),
        }
        for name, value in self._state.items():
            feeds[name] = value[: self._position] if name.startswith("kv.") else value
        names = [given.name for given in session.get_inputs()]
        wanted = [o.name for o in session.get_outputs() if o.name == "logits" or commit]
        found = session.run(wanted, {name: feeds[name] for name in names})
        return dict(zip(wanted, found, strict=True))

    def close(self) -> None:
        self._sessions.clear()


def _exported(packed: Path) -> Path:
    """The folder of graphs beside the packed one, made when it is not there."""
    folder = packed.with_name(f"{packed.name}-onnx")
    if not folder.exists():
        with needs("onnx"):
            import onnx  # noqa: F401
        from clover_edge.export.onnx import export_onnx

        export_onnx(packed, folder)
    return folder
