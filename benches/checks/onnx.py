"""ONNX: the graphs in onnxruntime against the core, in numbers, in text and in time."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from checks.row import Check, Context, Row, Skipped, at_least, at_most, relative
from measure import in_turns, ratio

import clover_edge
from clover_edge import demo
from clover_edge.backends import open_onnxruntime
from clover_edge.corpus import TASK_SETS, task_rows
from clover_edge.loader import open_core, read_folder

TOLERANCES = {"f32": 1e-4, "int4": 1e-2}
PROMPTS = 100
WIDTH = 32
COMMITTED = 128  # tokens in front of a block that is timed
THREADS = 2
ROUNDS = 9


def logits(context: Context) -> Iterator[Row]:
    """A prompt committed, a block half masked and its commit, three times in a row."""
    _needs_onnxruntime()
    for name, source in _sources(context).items():
        for recipe, bound in TOLERANCES.items():
            packed = context.pack(name, source, recipe)
            core, other = _pair(context, packed, threads=1)
            worst = {"preview": 0.0, "commit": 0.0}
            for mode, error in _errors(core, other, read_folder(packed).spec):
                worst[mode] = max(worst[mode], error)
            for mode, error in worst.items():
                label = f"{name}, {recipe}: onnxruntime against the core, {mode}"
                yield at_most(label, error, bound)


def greedy_texts(context: Context) -> Iterator[Row]:
    """The demo model's answers to held-out requests, a set after the other in turn."""
    _needs_onnxruntime()
    packed = context.demo_model("f32")
    graphs = _graphs(context, packed)
    count = min(context.limit or PROMPTS, PROMPTS)
    requests = [
        row["request"] for rows in zip(*map(task_rows, TASK_SETS), strict=False) for row in rows
    ][:count]
    with (
        clover_edge.load(packed) as core,
        clover_edge.load(graphs, backend="onnxruntime") as other,
    ):
        pairs = [tuple(model.chat(_asked(text)) for model in (core, other)) for text in requests]
    differ = sum(a.token_ids != b.token_ids for a, b in pairs)
    tokens = sum(len(a.token_ids) for a, _ in pairs)
    label = "demo model, f32: texts unlike the core's through onnxruntime"
    yield at_most(label, differ, 0, "{:.0f}", note=f"{count} held-out prompts, {tokens} tokens")


def speed(context: Context) -> Iterator[Row]:
    """One denoising pass and the reduction of its rows, int4, in turns."""
    _needs_onnxruntime()
    from synthetic import SHAPES, write

    synthetic = context.models / "100m-int4-all"
    if not synthetic.exists():
        write(synthetic, SHAPES["100m"])
    for name, packed in (("demo model", context.demo_model("int4")), ("100m model", synthetic)):
        core, other = _pair(context, packed, threads=THREADS)
        sides: dict[str, Any] = {}
        for side, model in (("core", core), ("onnxruntime", other)):
            state = model.new_state(COMMITTED + WIDTH)
            ids = _ids(read_folder(packed).spec, COMMITTED + WIDTH)
            model.commit(state, ids[:COMMITTED], logits="none")
            sides[side] = lambda m=model, s=state, b=ids[COMMITTED:]: m.time_pass(
                s, [], b, head=WIDTH
            )
        times = in_turns(sides, ROUNDS, threads=THREADS)
        median = {side: 1e3 * float(np.median(each)) for side, each in times.items()}
        label = f"{name}, int4, {THREADS} threads: onnxruntime's time for a block, core's"
        note = f"core {median['core']:.2f} ms, onnxruntime {median['onnxruntime']:.2f} ms"
        yield at_least(label, ratio(times, "onnxruntime", "core"), 2, "{:.2f}", "x", note)


_HIDDEN = """
import sys
sys.modules[{package!r}] = None  # as if it were not installed
{call}
"""


def without_the_extra(context: Context) -> Iterator[Row]:
    """What a process says that has not got the packages."""
    packed = context.demo_model("int4")
    out = str(context.scratch / "without")
    graphs = {"preview": "a", "commit": "b", "head": "c"}
    load = (
        "from dataclasses import replace\n"
        "from clover_edge.backends import open_onnxruntime\n"
        "from clover_edge.loader import read_folder\n"
        f"open_onnxruntime(replace(read_folder({str(packed)!r}), graphs={graphs!r}))"
    )
    export = (
        "from clover_edge.export.cli import main\n"
        f"sys.exit(main([{str(packed)!r}, '-o', {out!r}, '--format', 'onnx']))"
    )
    for name, package, call in (("load", "onnxruntime", load), ("export", "onnx", export)):
        done = subprocess.run(
            [sys.executable, "-c", _HIDDEN.format(package=package, call=call)],
            capture_output=True,
            text=True,
            check=False,
        )
        said = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        clear = done.returncode != 0 and "clover-edge[onnx]" in said
        label = f"{name} without the package {package}: an error that names the extra"
        yield Row(label, "named" if clear else "not named", "named", clear, said[:120])


def _needs_onnxruntime() -> None:
    if find_spec("onnx") is None or find_spec("onnxruntime") is None:
        raise Skipped("needs extra onnx")


def _sources(context: Context) -> dict[str, Path]:
    from tiny_clover import make_checkpoint

    tiny = context.scratch / "onnx-tiny"
    if not tiny.exists():
        make_checkpoint(tiny, seed=1, layers=5)
    return {"demo": context.checkpoint or demo.checkpoint_path(), "tiny Clover": tiny}


def _graphs(context: Context, packed: Path) -> Path:
    """The ONNX folder of a packed one, made once."""
    from clover_edge.export.cli import main

    out = context.scratch / f"{packed.name}-onnx"
    if not out.exists() and main([str(packed), "-o", str(out), "--format", "onnx"]):
        raise RuntimeError(f"{packed}: no ONNX folder was made")
    return out


def _pair(context: Context, packed: Path, threads: int) -> tuple[Any, Any]:
    """The core over the packed folder, and over its graphs."""
    other, _ = open_onnxruntime(read_folder(_graphs(context, packed)), threads=threads)
    return open_core(read_folder(packed), threads=threads), other


def _ids(spec: Any, count: int, seed: int = 0) -> list[int]:
    ids = np.random.default_rng(seed).integers(0, spec["valid_vocab"], count)
    return np.where(ids == spec["mask_token_id"], 0, ids).tolist()


def _errors(core: Any, other: Any, spec: Any) -> Iterator[tuple[str, float]]:
    width, mask = min(WIDTH, spec["block_size"]), spec["mask_token_id"]
    states = [model.new_state(4 * WIDTH + 3 * width) for model in (core, other)]
    for turn in range(3):
        ids = _ids(spec, WIDTH if turn == 0 else width, turn)
        noisy = np.where(np.arange(width) % 2, mask, _ids(spec, width, turn + 10)).tolist()
        found = [
            (model.commit(state, ids, logits="all"), model.preview(state, noisy))
            for model, state in zip((core, other), states, strict=True)
        ]
        yield "commit", relative(found[1][0], found[0][0])
        yield "preview", relative(found[1][1], found[0][1])


def _asked(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


CHECKS: list[Check] = [logits, greedy_texts, speed, without_the_extra]
