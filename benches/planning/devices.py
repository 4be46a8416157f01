"""Devices that a model can be planned for: figures from public pages, nominal unless it says so.

int8 is dense: of GPUs half of what vendors state with structured sparsity, without the separate
accelerators of the Jetsons. Of processors it is cores × int8 operations a cycle × clock, a
multiply-add being two: 64 where two 128-bit dot products start in a cycle (Cortex-A76, A78AE), 128
where four do (Apple's performance cores; the others are left out) or with 512-bit VNNI of Zen 4,
64 with AVX2. Apple states no clocks; these are what its cores are commonly measured to run at.
Memory that the system keeps is an assumption: 1.5 GiB of boards, 4 of desktops, 1 of video memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from measure import Ceilings

from clover_edge import machine
from clover_edge.errors import ArgumentError

MEASURED = "measured"
_GIB = 1 << 30
_BOARD, _DESKTOP, _VIDEO = 1.5, 4.0, 1.0  # GiB that are not the model's
_A7X, _APPLE, _ZEN4, _AVX2 = 64, 128, 128, 64  # int8 operations a cycle of a core
_ORIN_SM = 4096  # of a multiprocessor of Orin's GPU, dense


@dataclass(frozen=True)
class Device:
    """`memory`, `usable`: GiB. `bandwidth`: GB/s, `attainable`: the share of it that reads were
    measured to reach, None: nobody is cited. `int8`: GOP/s."""

    name: str
    memory: float
    usable: float
    bandwidth: float
    int8: float
    unit: Literal["CPU", "GPU"]
    source: str
    attainable: float | None = None

    @property
    def usable_bytes(self) -> float:
        return self.usable * _GIB

    @property
    def read(self) -> float:
        """Bytes a second."""
        return 1e9 * self.bandwidth * (1 if self.attainable is None else self.attainable)

    def reaching(self, read: float, int8: float) -> Device:
        """The device whose reads and arithmetic reach these shares of what is stated."""
        return replace(self, attainable=read, int8=int8 * self.int8)

    def seconds(self, operations: float, nbytes: float) -> float:
        """The roofline: the longer of computing and reading."""
        return max(operations / (1e9 * self.int8), nbytes / self.read)

    def bound(self, operations: float, nbytes: float) -> str:
        """Which of the two is the longer."""
        return "computing" if operations / (1e9 * self.int8) > nbytes / self.read else "reading"


def _jetson(
    name: str, memory: float, bandwidth: float, sm_clock: tuple[int, float], cores: float
) -> list[Device]:
    """GPU and CPU of an Orin module. `sm_clock`: multiprocessors, GHz; `cores`: cores × GHz."""
    multiprocessors, clock = sm_clock
    source = "NVIDIA, Jetson Orin module data sheets; Orin Nano and NX in their Super mode"
    gpu = Device(
        name,
        memory,
        memory - _BOARD,
        bandwidth,
        multiprocessors * clock * _ORIN_SM,
        "GPU",
        source,
    )
    return [gpu, replace(gpu, name=f"{name}-cpu", int8=cores * _A7X, unit="CPU")]


def _cpu(
    name: str,
    memory: float,
    reserved: float,
    bandwidth: float,
    int8: float,
    source: str,
    attainable: float | None = None,
) -> Device:
    return Device(
        name, memory, memory - reserved, bandwidth, round(int8), "CPU", source, attainable
    )


def _mac(
    name: str, memory: float, bandwidth: float, cores: float, attainable: float | None = None
) -> Device:
    """`memory`: the most that is sold. `cores`: performance cores × GHz."""
    source = "Apple, technical specifications"
    if attainable is not None:
        source += "; reads of all cores: AnandTech 17024"
    return _cpu(name, memory, _DESKTOP, bandwidth, cores * _APPLE, source, attainable)


def _rtx(name: str, memory: float, bandwidth: float, sparse_tops: float) -> Device:
    return Device(
        f"rtx-{name}-laptop",
        memory,
        memory - _VIDEO,
        bandwidth,
        1e3 * sparse_tops / 2,
        "GPU",
        "NVIDIA, comparison of GeForce laptops: AI TOPS, halved, at the highest clock",
    )


_ALL = (
    *_jetson("jetson-orin-nano-4gb", 4, 51.2, (4, 1.02), 6 * 1.7),
    *_jetson("jetson-orin-nano-8gb", 8, 102.4, (8, 1.02), 6 * 1.7),
    *_jetson("jetson-orin-nx-8gb", 8, 102.4, (8, 1.173), 6 * 2.0),
    *_jetson("jetson-orin-nx-16gb", 16, 102.4, (8, 1.173), 8 * 2.0),
    *_jetson("jetson-agx-orin-32gb", 32, 204.8, (14, 0.93), 8 * 2.2),
    *_jetson("jetson-agx-orin-64gb", 64, 204.8, (16, 1.3), 12 * 2.2),
    Device(
        "jetson-thor-t5000",
        128,
        128 - _BOARD,
        273,
        517_000,
        "GPU",
        "NVIDIA, Jetson Thor modules: dense FP8, a quarter of 2070 sparse FP4; int8 is not stated",
    ),
    *(
        _cpu(
            f"raspberry-pi-5-{memory}gb",
            memory,
            _BOARD,
            17.1,
            4 * 2.4 * _A7X,
            "Raspberry Pi 5 product brief: LPDDR4X-4267, 32 bits; four Cortex-A76 at 2.4 GHz",
        )
        for memory in (4, 8, 16)
    ),
    _mac("apple-m1", 16, 68.3, 4 * 3.2),
    _mac("apple-m1-pro", 32, 200, 8 * 3.2),
    _mac("apple-m1-max", 64, 400, 8 * 3.2, 243 / 400),
    _mac("apple-m2", 24, 100, 4 * 3.5),
    _mac("apple-m2-pro", 32, 200, 8 * 3.5),
    _mac("apple-m2-max", 96, 400, 8 * 3.7),
    _mac("apple-m3", 24, 100, 4 * 4.05),
    _mac("apple-m3-pro", 36, 150, 6 * 4.05),
    _mac("apple-m3-max", 128, 400, 12 * 4.05),
    _mac("apple-m4", 32, 120, 4 * 4.4),
    _mac("apple-m4-pro", 64, 273, 10 * 4.5),
    _mac("apple-m4-max", 128, 546, 12 * 4.5),
    _cpu(
        "laptop-8-cores-avx512",
        32,
        _DESKTOP,
        89.6,
        8 * 3.8 * _ZEN4,
        "AMD, Ryzen 7 7840HS: eight Zen 4 cores, base clock 3.8 GHz, two channels of DDR5-5600",
    ),
    _cpu(
        "laptop-8-cores-avx2",
        32,
        _DESKTOP,
        76.8,
        8 * 3.2 * _AVX2,
        "AMD, Ryzen 7 6800H: eight Zen 3+ cores, base clock 3.2 GHz, two channels of DDR5-4800",
    ),
    _rtx("4050", 6, 192, 194),
    _rtx("4060", 8, 256, 233),
    _rtx("4070", 8, 256, 321),
    _rtx("4090", 16, 576, 686),
)
DEVICES = {device.name: device for device in _ALL}


def find(name: str, *, threads: int = 0, isa: str | None = None) -> Device:
    """A device of the table, or this machine measured with `threads` (0: as models use).

    Raises ArgumentError naming the known ones.
    """
    if name == MEASURED:
        return _measured(threads, isa)
    if name not in DEVICES:
        known = ", ".join((MEASURED, *DEVICES))
        raise ArgumentError(f"device: {name!r} is not known (there are: {known})")
    return DEVICES[name]


def _measured(threads: int, isa: str | None) -> Device:
    from clover_edge import _core

    found = Ceilings(threads or _core.default_threads(), isa)
    memory, usable = machine.total_memory(), machine.available_memory()
    if memory is None or usable is None:
        raise ArgumentError(f"device: {MEASURED!r}: the system does not say how much memory it has")
    return Device(
        MEASURED,
        round(memory / _GIB, 1),
        round(usable / _GIB, 1),
        round(found.read / 1e9, 1),
        round(found.dot / 1e9),
        "CPU",
        f"{machine.cpu_name()}, {found}",
        1.0,
    )
