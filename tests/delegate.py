"""An external object for the core that lets another core compute: what it is asked can be checked,
and what comes out must be the other's bit for bit."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from clover_edge import _core

Arrays = Mapping[str, np.ndarray]


def _digest(arrays: Arrays) -> bytes:
    digest = hashlib.sha256()
    for name, values in sorted(arrays.items()):
        assert values.dtype == np.float32
        digest.update(f"{name} {values.shape}".encode() + values.tobytes())
    return digest.digest()


def _caches(state: Any) -> dict[str, np.ndarray]:
    """A state's arrays by the names of the interface."""
    found = {}
    for name, values in state.arrays().items():
        if name != "logits":
            _, layer, part = name.split(".")
            found[f"{'kv' if part in 'kv' else 'delta'}.{layer}.{part}"] = values
    return found


class Delegate:
    """Knows states of `core` by what they hold, and logits by the hidden row they come from."""

    def __init__(self, core: Any, spec: Mapping[str, Any], capacity: int = 600) -> None:
        self.core, self.spec = core, spec
        self.calls: list[tuple[str, int]] = []  # (mode, rows)
        self._states: dict[bytes, Any] = {}
        self._logits: dict[bytes, np.ndarray] = {}
        self._remember(core.new_state(capacity))

    def open(self, **options: Any) -> Any:
        """The core around it."""
        return _core.Model(self.spec, [], [], external=self, threads=1, **options)

    def forward(
        self,
        mode: str,
        ids: np.ndarray,
        positions: np.ndarray,
        sees_to: np.ndarray,
        history_width: float,
        caches: Arrays,
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        assert not any(values.flags.writeable for values in caches.values())
        state = self._states[_digest(caches)].snapshot()
        past, n = state.position, len(ids)
        assert positions.tolist() == list(range(past, past + n))
        assert sees_to.tolist() == [self._sees(mode, past, i, n) for i in range(n)]
        self.calls.append((mode, n))
        if mode == "commit":
            return self._commit(state, ids.tolist())
        return self._preview(state, ids.tolist(), round(history_width))

    def head(self, hidden: np.ndarray) -> np.ndarray:
        return np.stack([self._logits[row.tobytes()] for row in hidden])

    def _remember(self, state: Any) -> None:
        self._states[_digest(_caches(state))] = state

    def _sees(self, mode: str, past: int, row: int, n: int) -> int:
        mask = self.spec.get("mask", "causal")
        if mask == "causal":
            return row + 1 if mode == "commit" else n
        if mask == "full":
            return n
        width = self.spec["block_size"]
        start = (
            past if self.spec["block_origin"] == "absolute" else -n
        )  # a block ends with the call
        first = (start + row) // width * width - start
        return min(n, first + width)

    def _commit(self, state: Any, ids: list[int]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        past, whole = state.position, len(ids)
        if self.spec.get("mask") == "block" and self.spec["block_origin"] == "absolute":
            width = self.spec["block_size"]
            whole = max(0, (past + whole) // width * width - past)
        hidden = []
        if whole:
            hidden.append(self._watch(lambda: self.core.commit(state, ids[:whole], logits="all")))
            self._remember(state)
        found = _caches(state)
        if whole < len(ids):
            tail = state.snapshot()
            hidden.append(self._watch(lambda: self.core.commit(tail, ids[whole:], logits="all")))
        return np.concatenate(hidden), self._behind(found, past, len(ids))

    def _preview(
        self, state: Any, ids: list[int], width: int
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        past = state.position
        hidden = self._watch(lambda: self.core.preview(state, ids, width=width, coreset=0))
        if self.spec.get("mask") == "block" and self.spec["mask_token_id"] not in ids:
            self.core.commit(state, ids)  # a commit of these ids takes no pass of its own
            self._remember(state)
        return hidden, self._behind(_caches(state), past, len(ids))

    def _behind(self, found: Arrays, past: int, n: int) -> dict[str, np.ndarray]:
        """Keys and values of n rows; of those that are not kept, what nobody may read."""
        new = dict(found)
        for name, values in found.items():
            if name.startswith("kv."):
                new[name] = np.full((n, *values.shape[1:]), np.nan, np.float32)
                new[name][: len(values) - past] = values[past:]
        return new

    def _watch(self, run: Any) -> np.ndarray:
        """The rows behind the last layer of a pass; their logits are kept."""
        last, rows = len(self.spec["layer_types"]) - 1, []

        def look(layer: int, half: str, arrays: Arrays) -> None:
            if (layer, half) == (last, "feed_forward"):
                rows.append(arrays["residual"] + arrays["output"])

        self.core.observe(look)
        try:
            logits = run()
        finally:
            self.core.observe(None)
        hidden: np.ndarray = np.concatenate(rows)
        self._logits |= {row.tobytes(): one for row, one in zip(hidden, logits, strict=True)}
        return hidden
