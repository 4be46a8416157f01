"""ONNX folders in stock onnxruntime, pass by pass; the tiny models that are exported."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tiny_blocks import make_blocks
from tiny_clover import make_checkpoint
from tiny_full_attention import make_full_attention
from tiny_gemma import make_gemma
from tiny_hybrid import make_hybrid
from tiny_nemotron import make_nemotron
from tiny_transformer import make_transformer

Ids = list[int]
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Text:
    """What is behind a model: tokens so far and caches by their names as inputs."""

    length: int
    caches: Arrays


class OnnxModel:
    """The three graphs on one thread. Passes see what the spec's mask shows them; blocks of a block
    mask are counted from the first id of a call."""

    def __init__(self, folder: Path) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        ours = json.loads((folder / "config.json").read_text())["clover_edge"]
        self.spec: dict[str, Any] = ours["spec"]
        self.sessions = {
            role: onnxruntime.InferenceSession(
                str(folder / file), options, providers=["CPUExecutionProvider"]
            )
            for role, file in ours["graphs"].items()
        }

    def start(self) -> Text:
        caches = {
            i.name: np.zeros([0 if dim == "p" else dim for dim in i.shape], np.float32)
            for i in self.sessions["commit"].get_inputs()
            if i.name.startswith(("kv.", "delta."))
        }
        return Text(0, caches)

    def commit(self, text: Text, ids: Ids) -> tuple[np.ndarray, Text]:
        """Logits of every row, and the text behind them."""
        out = self._run("commit", text, ids, float(len(ids)))
        caches = {}
        for name, old in text.caches.items():
            new = out[name + "_new"]
            caches[name] = np.concatenate([old, new]) if name.startswith("kv.") else new
        return out["logits"], Text(text.length + len(ids), caches)

    def preview(self, text: Text, ids: Ids, width: float | None = None) -> np.ndarray:
        return self._run("preview", text, ids, width or float(len(ids)))["logits"]

    def pass_of(self, role: str, text: Text, ids: Ids, rows: Ids) -> Arrays:
        """All outputs, with the logits of some rows."""
        return self._run(role, text, ids, float(len(ids)), rows)

    def head(self, hidden: np.ndarray) -> np.ndarray:
        logits: np.ndarray = self.sessions["head"].run(None, {"hidden": hidden})[0]
        return logits

    def _run(
        self, role: str, text: Text, ids: Ids, width: float, rows: Ids | None = None
    ) -> Arrays:
        n = len(ids)
        own = np.arange(n)
        if role == "preview" or self.spec.get("mask") == "full":
            end = np.full(n, n)
        elif self.spec.get("mask") == "block":
            end = np.minimum((own // self.spec["block_size"] + 1) * self.spec["block_size"], n)
        else:
            end = own + 1
        inputs = {
            "ids": np.array(ids, np.int64),
            "positions": text.length + own,
            "sees_to": end,
            "rows": own if rows is None else np.array(rows, np.int64),
            "history_width": np.array(width, np.float32),
            **text.caches,
        }
        session = self.sessions[role]
        names = [output.name for output in session.get_outputs()]
        wanted = {i.name for i in session.get_inputs()}
        found = session.run(names, {k: v for k, v in inputs.items() if k in wanted})
        return dict(zip(names, found, strict=True))


def _blocks(family: str) -> Callable[[Path], Any]:
    return lambda folder: make_blocks(folder, family, seed=3)


def _full(family: str) -> Callable[[Path], Any]:
    return lambda folder: make_full_attention(folder, family, seed=3)


# By name: writes a tiny checkpoint.
CASES: dict[str, Callable[[Path], Any]] = {
    "clover": lambda folder: make_checkpoint(folder, seed=3),
    "llada2": _blocks("llada2"),
    "sdar": _blocks("sdar"),
    "sdar_moe": _blocks("sdar_moe"),
    "fast_dllm": _blocks("fast_dllm"),
    "a2d_llama": _blocks("a2d_llama"),
    "diffcoder": _blocks("diffcoder"),
    "dream": _full("dream"),
    "llada": _full("llada"),
    "llada_moe": _full("llada_moe"),
    "a2d_qwen3_5": lambda folder: make_hybrid(folder, "a2d_qwen3_5", seed=3),
    "nemotron": lambda folder: make_nemotron(folder, seed=3),
    "gemma3": lambda folder: make_gemma(folder, seed=3),
    "qwen2": lambda folder: make_transformer(folder, "qwen2", seed=3),
    "qwen3_next": lambda folder: make_hybrid(folder, "qwen3_next", seed=3),
}
