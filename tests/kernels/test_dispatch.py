"""Which kernel table runs: what the processor has, what the environment and the caller ask for."""

from __future__ import annotations

import platform
from pathlib import Path

import numpy as np
import pytest

from clover_edge import _core
from clover_edge.errors import UnsupportedDeviceError

NEEDS = {
    "avx2": {"avx2", "fma", "f16c"},
    "avxvnni": {"avx2", "fma", "f16c", "avx_vnni"},
    "vnni256": {"avx2", "fma", "f16c", "avx512f", "avx512vl", "avx512_vnni"},
    "avx512vnni": {
        *("avx2", "fma", "f16c"),
        *("avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_vnni"),
    },
    "neon_dotprod": {"asimddp"},
    "neon_i8mm": {"asimddp", "i8mm"},
}


def processor_flags() -> set[str]:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("flags", "Features")):
            return set(line.partition(":")[2].split())
    return set()


def test_tables_are_those_that_the_kernel_says_the_processor_runs() -> None:
    if platform.machine() not in ("x86_64", "aarch64"):
        assert _core.available_isas() == ["reference"]
        return
    if not processor_flags():
        pytest.skip("/proc/cpuinfo names no flags here")
    runnable = [isa for isa, needs in NEEDS.items() if needs <= processor_flags()]
    assert _core.available_isas() == ["reference", *runnable]


def test_unknown_name() -> None:
    with pytest.raises(UnsupportedDeviceError, match=r"'sse9' is not in this build.*reference"):
        _core.kernels.quantize("sse9", np.zeros((1, 32), np.float32))


def test_environment_forces_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).standard_normal((4, 500)).astype(np.float32)
    w = np.ones(500, np.float32)
    for isa in _core.available_isas():
        monkeypatch.setenv("CLOVER_ISA", isa)
        forced = _core.kernels.rmsnorm(None, x, w, 0.0, 1e-6)
        np.testing.assert_array_equal(forced, _core.kernels.rmsnorm(isa, x, w, 0.0, 1e-6))
    monkeypatch.setenv("CLOVER_ISA", "sse9")
    with pytest.raises(UnsupportedDeviceError, match="sse9"):
        _core.kernels.rmsnorm(None, x, w, 0.0, 1e-6)
    _core.kernels.rmsnorm("reference", x, w, 0.0, 1e-6)  # a named table wins over the environment


def test_best_table_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(1).standard_normal((4, 500)).astype(np.float32)
    best = _core.kernels.l2norm(_core.available_isas()[-1], x, 1, 1.0)
    for value in (None, ""):
        if value is None:
            monkeypatch.delenv("CLOVER_ISA", raising=False)
        else:
            monkeypatch.setenv("CLOVER_ISA", value)
        np.testing.assert_array_equal(_core.kernels.l2norm(None, x, 1, 1.0), best)
