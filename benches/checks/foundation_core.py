"""Core, export and import: what has one right answer."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from checks.row import ROOT, Context, Row, at_most, relative

import clover_edge

BLOCKS = 3
WIDTHS = (1, 3, 17, 32)
PROMPT = 11


def core_against_oracle(context: Context) -> Iterator[Row]:
    """f32 weights, three blocks deep, odd and full widths, every instruction set here."""
    from oracle.clover import Clover
    from tiny_clover import make_checkpoint

    from clover_edge import _core

    source = context.scratch / "tiny"
    tensors = make_checkpoint(source, seed=1, layers=5)
    oracle = Clover(tensors, json.loads((source / "config.json").read_text()))
    packed = context.pack("tiny", source, "f32")
    worst = {"preview": 0.0, "commit": 0.0}
    for isa in _core.available_isas():
        with clover_edge.load(packed, isa=isa) as model:
            for width in WIDTHS:
                for mode, error in _errors(model.core, oracle, width):
                    worst[mode] = max(worst[mode], error)
    for mode, error in worst.items():
        yield at_most(f"core (f32) against the float64 oracle, {mode}", error, 1e-4)


def _errors(core: Any, oracle: Any, width: int) -> Iterator[tuple[str, float]]:
    rng = np.random.default_rng(width)
    prompt = rng.integers(0, 250, PROMPT).tolist()
    state = core.new_state(PROMPT + BLOCKS * width)
    wanted, past = oracle.commit(oracle.start(), prompt)
    yield "commit", relative(core.commit(state, prompt, logits="all"), wanted)
    for _ in range(BLOCKS):
        ids = rng.integers(0, 250, width)
        noisy = np.where(rng.random(width) < 0.6, oracle.config.mask_token_id, ids).tolist()
        yield "preview", relative(core.preview(state, noisy), oracle.preview(past, noisy))
        wanted, past = oracle.commit(past, ids)
        yield "commit", relative(core.commit(state, ids.tolist(), logits="all"), wanted)


def commit_against_transformers(context: Context) -> Iterator[Row]:
    """The same tiny weights as Qwen3.5-MoE: the golden file, made by the script beside it."""
    from tiny_clover import make_checkpoint

    golden = np.load(ROOT / "tests" / "golden" / "qwen35_moe_commit.npz")
    source = context.scratch / "qwen"
    make_checkpoint(source, **json.loads(str(golden["maker"])))
    with clover_edge.load(context.pack("qwen", source, "f32")) as model:
        ids = golden["ids"].tolist()
        logits = model.core.commit(model.core.new_state(len(ids)), ids, logits="all")
    made_with = str(golden["made_with"]).split(",")[0]
    yield at_most(f"commit mode against {made_with}", relative(logits, golden["logits"]), 1e-3)


def export_memory(context: Context) -> Iterator[Row]:
    """Peak resident memory of an export of a 2 GB checkpoint in 16 shards."""
    # A process of its own: the peak of children is over all that this one has had.
    command = [sys.executable, str(ROOT / "benches" / "export_memory.py")]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    peak = json.loads(done.stdout)["peak_rss_bytes"] / 1e6
    yield at_most("export of 2 GB in 16 shards: peak resident memory", peak, 600, "{:.0f}", " MB")


def threads_and_splits(context: Context) -> Iterator[Row]:
    """The demo model: one thread and two give the same ids; nine rows at once or one by one."""
    packed = context.demo_model("int4")
    request = [{"role": "user", "content": "set the bedroom to 19 degrees and call Maya"}]
    texts, states = [], []
    for threads in (1, 2):
        with clover_edge.load(packed, threads=threads) as model:
            texts.append(model.chat(request).token_ids)
            prompt = model.chat_prompt(request)
            for pieces in ([prompt[:9]], [[token] for token in prompt[:9]]):
                state = model.core.new_state(9)
                for piece in pieces:
                    model.core.commit(state, piece, logits="none")
                states.append(state.arrays())
    differ = sum(a != b for a, b in zip(*texts, strict=False)) + abs(len(texts[0]) - len(texts[1]))
    yield at_most("ids that differ between 1 and 2 threads", differ, 0, "{:.0f}")
    error = max(
        relative(other[name], states[0][name]) for other in states[1:] for name in states[0]
    )
    yield at_most("state: 9 rows at once, 9 times 1, 1 and 2 threads", error, 1e-6)


_IMPORT = """
import os, socket, sys, time, threading
def refuse(*_, **__): raise SystemExit("the import opens a socket")
socket.socket.connect = socket.getaddrinfo = refuse
before, threads = dict(os.environ), threading.active_count()
started = time.perf_counter()
import clover_edge
seconds = time.perf_counter() - started
if dict(os.environ) != before: raise SystemExit("the import changes the environment")
print(seconds)
"""


def import_of_the_package(context: Context) -> Iterator[Row]:
    """In a fresh interpreter: no connection, no change of the environment; the median of five."""
    command = [sys.executable, "-c", _IMPORT]
    runs = [
        subprocess.run(command, cwd=context.scratch, capture_output=True, text=True)
        for _ in range(5)
    ]
    broken = [run.stderr.strip() for run in runs if run.returncode]
    if broken:
        yield Row("import clover_edge", broken[0].splitlines()[-1], "no side effect", False)
        return
    seconds = float(np.median([float(run.stdout) for run in runs]))
    yield at_most("import clover_edge (no side effect)", seconds, 0.5, "{:.3f}", " s")
