"""ONNX: the graphs in onnxruntime against the core, in numbers, in text and in time."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from checks.onnx_bench import bench_records
from checks.row import Check, Context, Row, Skipped, at_least, at_most
from measure import in_turns, ratio
from numpy.typing import NDArray

import clover_edge
from clover_edge.backends import open_onnxruntime
from clover_edge.corpus import TASK_SETS, task_rows
from clover_edge.loader import open_core, read_folder

PROMPTS = 100
TEXTS = 50
WIDTH = 32
COMMITTED = 128  # tokens in front of a block that is timed
THREADS = 2
ROUNDS = 9


def logits_in_float(context: Context) -> Iterator[Row]:
    """Prompts committed, their answers as blocks, half of them masked: the worst pass."""
    _needs_onnxruntime()
    for name in ("demo model", "tiny Clover"):
        found = _passes(context, name, "f32", "float")
        for mode, errors in found.items():
            label = f"{name}, f32: onnxruntime against the core, {mode}"
            yield at_most(label, max(map(np.max, errors)), 1e-4, note=f"{len(errors)} texts")


def logits_in_int4(context: Context) -> Iterator[Row]:
    """The same codes. Where both round activations by one definition, the median pass: a value
    that the two round to different codes moves all behind it, and now and then a choice of experts.
    Against float32 activations, which the core never has, the median row: their distance is what
    int8 activations cost. (A random model's outputs cancel too much to tell anything there.)"""
    _needs_onnxruntime()
    for name in ("demo model", "tiny Clover"):
        for mode, errors in _passes(context, name, "int4", "core").items():
            worst = [float(each.max()) for each in errors]
            label = f"{name}, int4, rounding alike: against the core, {mode}"
            note = f"median of {len(worst)} texts, worst {max(worst):.1e}"
            yield at_most(label, float(np.median(worst)), 1e-2, note=note)
    for mode, errors in _passes(context, "demo model", "int4", "float").items():
        rows = np.concatenate(errors)
        label = f"demo model, int4, float rows: against the core, {mode}"
        note = f"median of {len(rows)} rows; {np.mean(rows > 1e-2):.0%} of them above, worst "
        yield at_most(label, float(np.median(rows)), 1e-2, note=note + f"{rows.max():.1e}")


def greedy_texts(context: Context) -> Iterator[Row]:
    """The demo model's answers to held-out requests, a set after the other in turn."""
    _needs_onnxruntime()
    packed = context.demo_model("f32")
    graphs = _graphs(context, packed, "float")
    requests = [row["request"] for row in _held_out(context, PROMPTS)]
    with (
        clover_edge.load(packed) as core,
        clover_edge.load(graphs, backend="onnxruntime") as other,
    ):
        pairs = [tuple(model.chat(_asked(text)) for model in (core, other)) for text in requests]
    differ = sum(a.token_ids != b.token_ids for a, b in pairs)
    tokens = sum(len(a.token_ids) for a, _ in pairs)
    label = "demo model, f32: onnxruntime's texts unlike the core's"
    yield at_most(
        label, differ, 0, "{:.0f}", note=f"{len(pairs)} held-out prompts, {tokens} tokens"
    )


def speed(context: Context) -> Iterator[Row]:
    """One denoising pass and the reduction of its rows, int4, in turns with both kinds of graphs:
    products with float32 activations, and such as onnxruntime's kernels may round to int8."""
    _needs_onnxruntime()
    from synthetic import SHAPES, write

    synthetic = context.models / "100m-int4-all"
    if not synthetic.exists():
        write(synthetic, SHAPES["100m"])
    for name, packed in (("demo model", context.demo_model("int4")), ("100m model", synthetic)):
        cores = {
            "core": open_core(read_folder(packed), threads=THREADS),
            "float32": _opened(context, packed, "float", THREADS),
            "int8": _opened(context, packed, "int8", THREADS),
        }
        ids = _ids(read_folder(packed).spec, COMMITTED + WIDTH)
        sides = {side: _block_pass(core, ids) for side, core in cores.items()}
        times = in_turns(sides, ROUNDS, threads=THREADS)
        median = {side: 1e3 * float(np.median(each)) for side, each in times.items()}
        slow = min(("float32", "int8"), key=median.__getitem__)
        label = f"{name}, int4, {THREADS} threads: onnxruntime / core"
        note = ", ".join(f"{side} {each:.2f} ms" for side, each in median.items())
        yield at_least(label, ratio(times, slow, "core"), 2, "{:.2f}", "x", note)


def _block_pass(core: Any, ids: list[int]) -> Callable[[], float]:
    """Seconds of a pass over the last WIDTH ids behind the others."""
    state = core.new_state(len(ids))
    core.commit(state, ids[:-WIDTH], logits="none")
    return lambda: core.time_pass(state, [], ids[-WIDTH:], head=WIDTH)


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
        label = f"{name} without {package}: the error names the extra"
        yield Row(label, "named" if clear else "not named", "named", clear, said[:120])


def _needs_onnxruntime() -> None:
    if find_spec("onnx") is None or find_spec("onnxruntime") is None:
        raise Skipped("needs extra onnx")


def _graphs(context: Context, packed: Path, activations: str) -> Path:
    """The ONNX folder of a packed one, made once."""
    from clover_edge.export.onnx import export_onnx

    out = context.scratch / f"{packed.name}-onnx-{activations}"
    if not out.exists():
        export_onnx(packed, out, activations=activations)
    return out


def _opened(context: Context, packed: Path, activations: str, threads: int) -> Any:
    """The core over the graphs of a packed folder."""
    graphs = read_folder(_graphs(context, packed, activations))
    return open_onnxruntime(graphs, threads=threads)[0]


def _passes(
    context: Context, name: str, recipe: str, activations: str
) -> dict[str, list[NDArray[np.float64]]]:
    """By mode, of each text the relative error of every row."""
    if name == "demo model":
        packed, texts = context.demo_model(recipe), list(_demo_texts(context))
    else:
        from tiny_clover import make_checkpoint

        tiny = context.scratch / "onnx-tiny"
        if not tiny.exists():
            make_checkpoint(tiny, seed=1, layers=5)
        packed = context.pack("onnx-tiny", tiny, recipe)
        spec = read_folder(packed).spec
        texts = [(_ids(spec, 24, seed), _ids(spec, 16, 99 + seed)) for seed in range(25)]
    mask = read_folder(packed).spec["mask_token_id"]
    cores = open_core(read_folder(packed), threads=1), _opened(context, packed, activations, 1)
    errors: dict[str, list[NDArray[np.float64]]] = {"commit": [], "preview": []}
    for prompt, answer in texts:
        block = [token if i % 2 else mask for i, token in enumerate(answer)]
        states = [core.new_state(len(prompt) + len(block)) for core in cores]
        pairs = list(zip(cores, states, strict=True))
        committed = [core.commit(state, prompt, logits="all") for core, state in pairs]
        previewed = [core.preview(state, block) for core, state in pairs]
        errors["commit"].append(_by_row(*committed))
        errors["preview"].append(_by_row(*previewed))
    return errors


def _demo_texts(context: Context) -> Iterator[tuple[list[int], list[int]]]:
    """Held-out requests and the first block of their answers."""
    with clover_edge.load(context.demo_model("f32"), threads=1) as model:
        for row in _held_out(context, TEXTS):
            yield model.chat_prompt(_asked(row["request"])), model.tokenize(row["answer"])[:WIDTH]


def _held_out(context: Context, count: int) -> list[dict[str, Any]]:
    """A row of each held-out set in turn."""
    rows = [row for rows in zip(*map(task_rows, TASK_SETS), strict=False) for row in rows]
    return rows[: min(context.limit or count, count)]


def _by_row(reference: NDArray[Any], found: NDArray[Any]) -> NDArray[np.float64]:
    difference = np.abs(found.astype(float) - reference).max(axis=1)
    errors: NDArray[np.float64] = difference / np.abs(reference).max()
    return errors


def _ids(spec: Any, count: int, seed: int = 0) -> list[int]:
    ids = np.random.default_rng(seed).integers(0, spec["valid_vocab"], count)
    return np.where(ids == spec["mask_token_id"], 0, ids).tolist()


def _asked(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


CHECKS: list[Check] = [
    logits_in_float,
    logits_in_int4,
    greedy_texts,
    speed,
    bench_records,
    without_the_extra,
]
