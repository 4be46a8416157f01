"""Energy, power mode and throttling of this machine, as far as Linux tells them.

Paths are those of the kernel's powercap (RAPL), hwmon (INA3221: the supply of a Jetson) and
cpufreq interfaces; `root` is where tests put a tree of their own.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

ROOT = Path("/")
SAMPLE_SECONDS = 0.05  # between two readings of a supply that tells power, not energy
SUPPLY = "VDD_IN"  # of the whole module


class Meter(Protocol):
    """Counts joules within `running()`; `joules` is the total of all the times."""

    source: str
    joules: float

    def running(self) -> AbstractContextManager[None]: ...


class Rapl:
    """The energy counters of the processor's packages."""

    def __init__(self, domains: Sequence[Path]) -> None:
        self.source = f"RAPL, {len(domains)} package{'s' if len(domains) > 1 else ''}"
        self.joules = 0.0
        self._domains = domains
        self._ranges = [int(_read(domain / "max_energy_range_uj") or 0) for domain in domains]

    def _counters(self) -> list[int]:
        return [int((domain / "energy_uj").read_text()) for domain in self._domains]

    @contextmanager
    def running(self) -> Iterator[None]:
        start = self._counters()
        yield
        for before, now, most in zip(start, self._counters(), self._ranges, strict=True):
            self.joules += (now - before if now >= before else now + most - before) / 1e6


class Supply:
    """A supply's power, read again and again by a thread, and summed over time."""

    def __init__(self, folder: Path, channel: str) -> None:
        self.source = f"hwmon {SUPPLY}"
        self.joules = 0.0
        self._volts, self._amperes = folder / f"in{channel}_input", folder / f"curr{channel}_input"

    def _watts(self) -> float:
        return int(self._volts.read_text()) * int(self._amperes.read_text()) / 1e6  # mV, mA

    def _sum(self, end: threading.Event) -> None:
        at, watts = time.monotonic(), self._watts()
        while True:
            ended = end.wait(SAMPLE_SECONDS)
            now, then = time.monotonic(), self._watts()
            self.joules += (watts + then) / 2 * (now - at)
            at, watts = now, then
            if ended:
                return

    @contextmanager
    def running(self) -> Iterator[None]:
        end = threading.Event()
        thread = threading.Thread(target=self._sum, args=(end,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()


def meter(root: Path = ROOT) -> tuple[Meter | None, str]:
    """What measures energy here, and a word on why it is that, or none."""
    for folder in sorted((root / "sys/class/hwmon").glob("hwmon*")):
        for label in sorted(folder.glob("in*_label")):
            channel = label.name[2 : -len("_label")]
            if _read(label) == SUPPLY and _read(folder / f"curr{channel}_input"):
                return Supply(folder, channel), f"the supply of the whole module ({SUPPLY})"
    # intel-rapl:0 is a package; intel-rapl:0:0, a part of it, would count twice
    found = sorted((root / "sys/class/powercap").glob("*-rapl:*"))
    packages = [p for p in found if p.name.count(":") == 1 and (p / "energy_uj").exists()]
    if not packages:
        return None, "no RAPL counters and no supply that tells its power"
    if any(_read(package / "energy_uj") is None for package in packages):
        return None, "RAPL counters are there, but this user may not read them (root may)"
    return Rapl(packages), "the packages of the processor, not the whole machine"


def power_mode(root: Path = ROOT) -> str | None:
    """The governors of the processors' clocks; None where the system does not say."""
    cpus = (root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor")
    return ", ".join(sorted({name for cpu in cpus if (name := _read(cpu))})) or None


def nvpmodel(root: Path = ROOT) -> str | None:
    """A Jetson's power mode, such as "0 MAXN"; None elsewhere."""
    status = re.search(r"pmode:0*(\d+)", _read(root / "var/lib/nvpmodel/status") or "")
    if status is None:
        return None
    modes = _read(root / "etc/nvpmodel.conf") or ""
    name = re.search(rf"POWER_MODEL\s+ID={status[1]}\s+NAME=(\S+?)\s*>", modes)
    return f"{status[1]} {name[1]}" if name else status[1]


def throttle_count(root: Path = ROOT) -> int | None:
    """How often the processors have been slowed for heat so far; None where nobody counts."""
    names = ("core_throttle_count", "package_throttle_count")
    cpus = (root / "sys/devices/system/cpu").glob("cpu[0-9]*/thermal_throttle")
    counts = [int(text) for cpu in cpus for name in names if (text := _read(cpu / name))]
    return sum(counts) if counts else None


def virtualised(root: Path = ROOT) -> bool | None:
    """Whether this is a virtual machine, as far as it shows."""
    kind, flags = _read(root / "sys/hypervisor/type"), _read(root / "proc/cpuinfo")
    if kind:
        return True
    return None if flags is None else bool(re.search(r"^flags\s.*\bhypervisor\b", flags, re.M))


def _read(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:  # not there, or not for this user
        return None
