"""`clover-edge bench -o json` as those take it who read llama-bench's records."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from checks.row import Context, Row

# llama-bench's names, and what its readers expect behind them.
KINDS: dict[str, type | tuple[type, ...]] = {
    "build_commit": str,
    "build_number": int,
    "cpu_info": str,
    "gpu_info": str,
    "backends": str,
    "model_filename": str,
    "model_type": str,
    "model_size": int,
    "model_n_params": int,
    "n_batch": int,
    "n_ubatch": int,
    "n_threads": int,
    "type_k": str,
    "type_v": str,
    "n_gpu_layers": int,
    "split_mode": str,
    "main_gpu": int,
    "tensor_split": str,
    "tensor_buft_overrides": str,
    "no_kv_offload": bool,
    "no_op_offload": int,
    "flash_attn": bool,
    "embeddings": bool,
    "use_mmap": bool,
    "cpu_mask": str,
    "cpu_strict": bool,
    "poll": int,
    "n_prompt": int,
    "n_gen": int,
    "n_depth": int,
    "test_time": str,
    "avg_ns": int,
    "stddev_ns": int,
    "avg_ts": (int, float),
    "stddev_ts": (int, float),
    "samples_ns": list,
    "samples_ts": list,
}
FIGURES = ("ns", "ts")  # llama-bench's own, whose mean is called avg_
REPETITIONS = 3


def faults(record: dict[str, Any]) -> Iterator[str]:
    """What a reader would stumble over."""
    for name, kind in KINDS.items():
        if not isinstance(record.get(name), kind):
            yield f"{name}: {record.get(name)!r:.40}"
    samples = {name.removeprefix("samples_") for name in record if name.startswith("samples_")}
    spreads = {name.removeprefix("stddev_") for name in record if name.startswith("stddev_")}
    if samples != spreads or not samples.issuperset(FIGURES):
        yield f"figures {sorted(samples ^ spreads)} are not whole"
    for name in samples & spreads:
        values = record[f"samples_{name}"]
        mean = record.get(f"avg_{name}" if name in FIGURES else name)
        if len(values) != REPETITIONS or mean is None:
            yield f"{name}: {len(values)} samples, mean {mean}"
        elif not _near(name, mean, statistics.fmean(values)):
            yield f"{name}: mean {mean}, its samples' {statistics.fmean(values)}"
        elif not _near(name, record[f"stddev_{name}"], statistics.stdev(values)):
            yield f"{name}: deviation {record[f'stddev_{name}']} is not its samples'"


def _near(name: str, found: float, wanted: float) -> bool:
    whole = 1.0 if name == "ns" else 0.0  # llama-bench's times are whole nanoseconds
    return abs(found - wanted) <= max(whole, 1e-9 * abs(wanted))


def bench_records(context: Context) -> Iterator[Row]:
    """Of the demo model, with and without tokens in front."""
    command = [sys.executable, "-m", "clover_edge.cli.main", "bench"]
    flags = ["-p", "64", "-n", "32", "-d", "0,128", "-r", str(REPETITIONS), "-o", "json"]
    path = str(context.demo_model("int4"))
    done = subprocess.run([*command, path, *flags], capture_output=True, text=True, check=True)
    records = json.loads(done.stdout)
    found = [f"{record.get('test')}: {fault}" for record in records for fault in faults(record)]
    yield Row(
        "clover-edge bench -o json: faults in llama-bench records",
        str(len(found)),
        "<= 0",
        not found and len(records) == 8,
        "; ".join(found[:3]) or f"{len(records)} records, {len(KINDS)} fields of llama-bench each",
    )
