"""What a record says beside its test: the model, the machine, and figures with their spread."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .. import _core, power
from ..loader import PackedFolder
from ..machine import cpu_name, threads_why, total_memory
from ..summary import active_parameters, summarize

if TYPE_CHECKING:
    from .._core import Model as CoreModel

# What llama-bench can vary and this runtime cannot: its scripts refuse records without these.
ALWAYS: dict[str, Any] = {
    "n_gpu_layers": 0,
    "split_mode": "none",
    "main_gpu": 0,
    "tensor_split": "0.00",
    "tensor_buft_overrides": "none",
    "no_kv_offload": False,
    "no_op_offload": 0,
    "flash_attn": False,
    "embeddings": False,
    "use_mmap": True,
    "cpu_mask": "0x0",
    "cpu_strict": False,
    "poll": 0,
}
COUNTED = ("forward_passes", "experts_touched", "bytes_read")


def spread(name: str, samples: Sequence[float]) -> dict[str, Any]:
    """A figure: its mean under its own name, standard deviation and samples beside it."""
    return {
        name: statistics.fmean(samples),
        f"stddev_{name}": deviation(samples),
        f"samples_{name}": list(samples),
    }


def deviation(samples: Sequence[float]) -> float:
    """Standard deviation of a sample; 0 of a single value."""
    return float(statistics.stdev(samples)) if len(samples) > 1 else 0.0


def timed(tokens: int, nanoseconds: Sequence[int]) -> dict[str, Any]:
    """llama-bench's six: time and tokens a second."""
    rates = [tokens * 1e9 / taken for taken in nanoseconds]
    return {
        "avg_ns": round(statistics.fmean(nanoseconds)),
        "stddev_ns": round(deviation(nanoseconds)),
        "avg_ts": statistics.fmean(rates),
        "stddev_ts": deviation(rates),
        "samples_ns": list(nanoseconds),
        "samples_ts": rates,
    }


def counted(
    tokens: int, nanoseconds: Sequence[int], counters: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """What generations count of themselves, a mapping for each repetition."""
    found: dict[str, Any] = {}
    for name in COUNTED:
        found |= spread(name, [each[name] for each in counters])
    forwards = [each["forward_passes"] for each in counters]
    found |= spread("tokens_per_forward", [tokens / n if n else 0.0 for n in forwards])
    found |= spread("ttfb_ns", [round(1e9 * each["first_block_seconds"]) for each in counters])
    pairs = zip(counters, nanoseconds, strict=True)  # bytes a nanosecond are GB a second
    return found | spread("effective_gbps", [each["bytes_read"] / taken for each, taken in pairs])


def model_facts(folder: PackedFolder, core: CoreModel, kv: str) -> dict[str, Any]:
    """Of the model, and of the way it runs, under llama-bench's names where it has one."""
    from .. import __version__

    facts = summarize(folder)
    return {
        "build_commit": "unknown",  # a wheel is not told
        "build_number": 0,
        "build_version": __version__,
        "cpu_info": cpu_name(),
        "gpu_info": "",
        "isa": core.isa,
        "model_filename": folder.path.resolve().name,
        "model_type": f"{facts['family']} {facts['recipe']}",
        "model_size": facts["bytes"],
        "model_n_params": facts.get("parameters", 0),  # graphs do not say
        "n_active_params": active_parameters(folder),
        "n_batch": core.chunk_rows,
        "n_ubatch": core.chunk_rows,
        "n_threads": core.threads,
        "type_k": kv,
        "type_v": kv,
        **ALWAYS,
        "device": "cpu",
        "quant": facts["recipe"],
        "group_size": facts["group_size"],
        "runtime": "clover-edge",
        "runtime_version": __version__,
    }


def machine_facts(
    core: CoreModel, ceilings: Mapping[str, float] | None, energy: tuple[str | None, str]
) -> dict[str, Any]:
    """Of the machine. `energy`: what measures it, and why it is that or none."""
    limits = _core.thread_limits()
    return {
        "cpu": cpu_name(),
        "isa": core.isa,
        "threads": core.threads,
        "threads_why": threads_why(limits),
        "memory_bytes": total_memory(),
        "virtualised": power.virtualised(),
        "ceilings": ceilings,
        "energy_source": energy[0],
        "energy_why": energy[1],
    }
