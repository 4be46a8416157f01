"""What an observer sees of a pass: the rows that products read, and the sums they lead to."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from tiny_core import LAYERS, E, H, I, TinyFile, committed, same, tokens, write_tiny

from clover_edge.errors import ArgumentError, CloverError

Arrays = dict[str, np.ndarray]
PROMPT, BLOCK = tokens(9, 1), tokens(16, 2)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> TinyFile:
    return write_tiny(tmp_path_factory.mktemp("observed") / "weights.bin")


def observed(core: Any, *, preview: bool) -> list[tuple[int, str, Arrays]]:
    seen: list[tuple[int, str, Arrays]] = []
    state = committed(core, PROMPT)
    core.observe(lambda *event: seen.append(event))
    if preview:
        core.preview(state, BLOCK, rows=[], coreset=4)
    else:
        core.commit(state, BLOCK, logits="none")
    core.observe(None)
    core.commit(state, PROMPT, logits="none")  # nobody looks any more
    return seen


def weights(file: TinyFile, name: str) -> np.ndarray:
    row = file.row(name)
    raw = np.fromfile(file.path, "<f4")[row["offset"] // 4 :]
    if not row["stride"]:
        return raw[: np.prod(row["shape"])].reshape(row["shape"]).astype(np.float64)
    experts = [raw[e * row["stride"] // 4 :][: row["bytes"] // 4] for e in range(E)]
    return np.stack(experts).reshape(row["shape"]).astype(np.float64)


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


@pytest.mark.parametrize("preview", [False, True])
def test_halves_follow_each_other(file: TinyFile, preview: bool) -> None:
    seen = observed(file.open(threads=2), preview=preview)
    halves = [(i, half) for i in range(len(LAYERS)) for half in ("mixer", "feed_forward")]
    assert [(layer, half) for layer, half, _ in seen] == halves
    for (_, _, one), (_, _, next_) in pairwise(seen):
        np.testing.assert_allclose(next_["residual"], one["residual"] + one["output"], rtol=1e-6)
    embed = weights(file, "embed")[BLOCK]
    np.testing.assert_allclose(seen[0][2]["residual"], embed, rtol=1e-6)


@pytest.mark.parametrize("preview", [False, True])
def test_arrays_are_what_products_read(file: TinyFile, preview: bool) -> None:
    """Every output follows in numpy from the arrays in front of it."""
    for layer, half, seen in observed(file.open(), preview=preview):
        prefix = f"layers.{layer}."
        norm = weights(file, prefix + ("norm1" if half == "mixer" else "norm2")) + 1
        h = seen["residual"].astype(np.float64)
        x = h / np.sqrt((h**2).mean(axis=1, keepdims=True) + 1e-6) * norm
        np.testing.assert_allclose(seen["input"], x, rtol=1e-4, atol=1e-5)
        if half == "mixer":
            out = prefix + ("attn.out" if LAYERS[layer] == "attention" else "delta.out")
            want = seen["mixed"] @ weights(file, out).T
        else:
            want = feed_forward(file, prefix, x, seen)
        np.testing.assert_allclose(seen["output"], want, rtol=1e-3, atol=1e-4)


def feed_forward(file: TinyFile, prefix: str, x: np.ndarray, seen: Arrays) -> np.ndarray:
    gate, up, down = (weights(file, f"{prefix}experts.{part}") for part in ("gate", "up", "down"))
    ids = seen["expert_ids"]
    logits = x @ weights(file, prefix + "router").T
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    chosen = np.take_along_axis(p, ids, axis=1)
    chosen /= chosen.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(seen["expert_weights"], chosen, rtol=1e-3)
    hidden = silu(np.einsum("nh,nkih->nki", x, gate[ids])) * np.einsum("nh,nkih->nki", x, up[ids])
    np.testing.assert_allclose(seen["expert_hidden"], hidden, rtol=1e-3, atol=1e-4)
    out = np.einsum("nk,nki,nkhi->nh", chosen, hidden, down[ids])
    gate_x, up_x = np.split(x @ weights(file, prefix + "shared.gate_up").T, 2, axis=1)
    np.testing.assert_allclose(seen["shared_hidden"], silu(gate_x) * up_x, rtol=1e-3, atol=1e-4)
    share = 1 / (1 + np.exp(-x @ weights(file, prefix + "shared_gate").T))
    return out + share * (seen["shared_hidden"] @ weights(file, prefix + "shared.down").T)


def test_looking_changes_nothing(file: TinyFile) -> None:
    watched, plain = file.open(), file.open()
    watched.observe(lambda *_: None)
    a, b = (committed(core, PROMPT, BLOCK) for core in (watched, plain))
    same(a.arrays(), b.arrays())


def test_shapes(file: TinyFile) -> None:
    mixer, feed = (arrays for _, _, arrays in observed(file.open(), preview=False)[2:4])
    assert mixer["mixed"].shape == (16, 64) and mixer["input"].shape == (16, H)
    assert feed["expert_hidden"].shape == (16, 2, I) and feed["shared_hidden"].shape == (16, 32)


def test_an_observer_that_fails_ends_the_pass(file: TinyFile) -> None:
    core = file.open()

    def fail(layer: int, half: str, arrays: Arrays) -> None:
        raise LookupError("enough")

    state, other = committed(core, PROMPT), committed(core, PROMPT)
    core.observe(fail)
    with pytest.raises(LookupError, match="enough"):
        core.commit(state, BLOCK)
    core.observe(None)
    with pytest.raises(CloverError, match="half way"):
        core.commit(state, BLOCK)
    core.commit(other, BLOCK)


def test_an_observer_cannot_use_the_model(file: TinyFile) -> None:
    core = file.open()
    core.observe(lambda *_: core.new_state(10))
    with pytest.raises(ArgumentError, match="in use"):
        core.commit(committed(core), PROMPT)
    core.observe(None)
