"""What this machine offers, and how much of it a model takes."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from . import _core
from .errors import OutOfMemoryError
from .loader import PackedFolder, open_core

PACKAGES = ("clover-edge", "numpy", "tokenizers", "jinja2", "tqdm")
OPTIONAL = ("torch", "gguf", "matplotlib", "llguidance", "fastapi", "uvicorn", "onnxruntime")
UNKNOWN_MEMORY = 2**63 - 1


@dataclass(frozen=True)
class Isa:
    """The instruction set that models use here, and why it is that one."""

    chosen: str | None  # None: CLOVER_ISA names one that cannot run
    why: str
    lacks: dict[str, str]  # of every one in this build, best last: what the processor lacks for it


def isa() -> Isa:
    """The best one that runs, or what the environment forces."""
    lacks = _core.isas()
    forced = os.environ.get("CLOVER_ISA")
    if forced:
        if forced not in lacks:
            return Isa(None, f"CLOVER_ISA={forced}: is not in this build", lacks)
        if lacks[forced]:
            why = f"CLOVER_ISA={forced}: this processor lacks {lacks[forced]}"
            return Isa(None, why, lacks)
        return Isa(forced, "CLOVER_ISA forces it", lacks)
    best = [name for name, missing in lacks.items() if not missing][-1]
    return Isa(best, "the best of this build that the processor has", lacks)


def threads_why(limits: dict[str, Any]) -> str:
    """What the number of threads comes from."""
    allowed, cores, quota = limits["allowed"], limits["cores"], limits["quota"]
    parts = [f"{cores} physical cores" + (f" of {allowed} CPUs allowed" if allowed else "")]
    parts.append("no cgroup quota" if quota is None else f"a cgroup quota of {quota:g} CPUs")
    return ", ".join(parts)


def cpu_name() -> str:
    """The processor's name, as far as the system tells it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:  # no Linux
        pass
    return platform.processor() or platform.machine()


def total_memory() -> int | None:
    """Bytes of memory; None where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # no such call, or no such name
        return None


def available_memory() -> int | None:
    """Bytes that the system can still give; None where it does not say."""
    found = _core.available_memory()
    return None if found == UNKNOWN_MEMORY else found


def cuda_state() -> str:
    """Whether this build computes on NVIDIA GPUs, and whether there is a driver for one."""
    built = find_spec("clover_edge._cuda") is not None
    driver = Path("/proc/driver/nvidia/version").exists() or Path("/dev/nvhost-gpu").exists()
    return ("built" if built else "not built") + (
        ", a driver is there" if driver else ", no driver"
    )


def versions() -> dict[str, str | None]:
    """Of Python and of packages; None where an optional one is not installed."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for name in (*PACKAGES, *OPTIONAL):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def describe() -> dict[str, Any]:
    """All of it; plain values."""
    chosen, limits = isa(), _core.thread_limits()
    return {
        "versions": versions(),
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}",
        "executable": sys.executable,
        "cpu": {"name": cpu_name(), "features": _core.cpu_features()},
        "isa": {"chosen": chosen.chosen, "why": chosen.why, "lacks": chosen.lacks},
        "threads": {**limits, "why": threads_why(limits)},
        "memory": {"total": total_memory(), "available": available_memory()},
        "cuda": cuda_state(),
    }


def fit_onnx(folder: PackedFolder) -> dict[str, Any]:
    """What is known of an ONNX folder before it is opened, and the providers that this build of
    onnxruntime has; "verdict": "runs" or "needs extra onnx"."""
    if find_spec("onnxruntime") is None:
        providers = []
    else:
        import onnxruntime

        providers = onnxruntime.get_available_providers()
    return {
        "weights": sum(file.stat().st_size for file in folder.files),
        "providers": providers,
        "verdict": "runs" if providers else "needs extra onnx",
    }


def fit(
    folder: PackedFolder, context: int, kv: Literal["f32", "f16", "int8"] = "f32"
) -> dict[str, Any]:
    """What a model takes for so many tokens of prompt and answer, and whether that is there.

    "verdict": "fits", "pages experts" (all but experts fits; those are read from disk as they are
    chosen), "does not fit". Errors: `loader.open_core`, but for memory.
    """
    total = sum(folder.sizes.values())
    try:
        core = open_core(folder, threads=1, kv=kv)
    except OutOfMemoryError as error:
        found = {"weights": total, "dense": error.needed, "context": context}
        return {**found, "available": error.available, "verdict": "does not fit"}
    state, working = core.needs(context)
    available, resident = _core.available_memory(), core.dense_bytes + state + working
    if resident > available:
        verdict = "does not fit"
    else:
        verdict = "fits" if core.weight_bytes + state + working <= available else "pages experts"
    return {
        "weights": core.weight_bytes,
        "dense": core.dense_bytes,
        "context": context,
        "state": state,
        "working": working,
        "available": None if available == UNKNOWN_MEMORY else available,
        "verdict": verdict,
    }
