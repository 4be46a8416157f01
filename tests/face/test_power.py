"""Energy, power mode and throttling, from trees like those of Linux."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from clover_edge import power


def tree(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def rapl(root: Path, package: int, microjoules: int) -> None:
    folder = root / f"sys/class/powercap/intel-rapl:{package}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "energy_uj").write_text(f"{microjoules}\n")
    (folder / "max_energy_range_uj").write_text("1000000\n")


def test_nothing_that_measures(tmp_path: Path) -> None:
    found, why = power.meter(tmp_path)
    assert found is None
    assert "no RAPL counters" in why
    assert power.power_mode(tmp_path) is power.nvpmodel(tmp_path) is None
    assert power.throttle_count(tmp_path) is power.virtualised(tmp_path) is None


def test_rapl_counts_packages_and_wraps(tmp_path: Path) -> None:
    rapl(tmp_path, 0, 900_000)
    rapl(tmp_path, 1, 100_000)
    part = tmp_path / "sys/class/powercap/intel-rapl:0:0"  # of a package: not counted twice
    part.mkdir()
    (part / "energy_uj").write_text("5\n")
    meter, why = power.meter(tmp_path)
    assert meter is not None and "processor" in why
    with meter.running():
        rapl(tmp_path, 0, 100_000)
        rapl(tmp_path, 1, 400_000)
    assert meter.joules == pytest.approx(0.2 + 0.3)
    with meter.running():
        rapl(tmp_path, 1, 500_000)
    assert meter.joules == pytest.approx(0.6)


def test_rapl_that_only_root_may_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rapl(tmp_path, 0, 1)
    read = power._read

    def refused(path: Path) -> str | None:  # as the system does; these tests may run as root
        return None if path.name == "energy_uj" else read(path)

    monkeypatch.setattr(power, "_read", refused)
    found, why = power.meter(tmp_path)
    assert found is None
    assert "may not read" in why


def test_the_supply_of_a_jetson(tmp_path: Path) -> None:
    folder = tmp_path / "sys/class/hwmon/hwmon3"
    folder.mkdir(parents=True)
    readings = {"in1_label": "VDD_IN", "in1_input": "5000", "curr1_input": "2000"}
    for name, text in readings.items():
        (folder / name).write_text(text)
    meter, _ = power.meter(tmp_path)
    assert meter is not None and "VDD_IN" in meter.source
    started = time.monotonic()
    with meter.running():
        time.sleep(0.12)
    taken = time.monotonic() - started
    assert 0.1 * 10 <= meter.joules <= taken * 10  # 5 V, 2 A
    before = meter.joules
    with meter.running():
        pass
    assert before <= meter.joules < before + taken * 10


def test_modes_and_throttling(tmp_path: Path) -> None:
    cpu = tmp_path / "sys/devices/system/cpu"
    for number, governor, count in ((0, "performance", 2), (1, "schedutil", 3)):
        for name, text in (
            ("cpufreq/scaling_governor", governor),
            ("thermal_throttle/core_throttle_count", str(count)),
        ):
            path = cpu / f"cpu{number}" / name
            path.parent.mkdir(parents=True)
            path.write_text(text + "\n")
    assert power.power_mode(tmp_path) == "performance, schedutil"
    assert power.throttle_count(tmp_path) == 5


def test_the_power_mode_of_a_jetson(tmp_path: Path) -> None:
    tree(tmp_path, var__lib__nvpmodel__status="pmode:0002")
    assert power.nvpmodel(tmp_path) == "2"
    conf = tmp_path / "etc/nvpmodel.conf"
    conf.parent.mkdir()
    conf.write_text("< POWER_MODEL ID=0 NAME=MAXN >\n< POWER_MODEL ID=2 NAME=15W >\n")
    assert power.nvpmodel(tmp_path) == "2 15W"


def test_a_virtual_machine_shows(tmp_path: Path) -> None:
    tree(tmp_path, proc__cpuinfo="flags\t\t: fpu avx2 hypervisor sse")
    assert power.virtualised(tmp_path) is True
    tree(tmp_path, proc__cpuinfo="flags\t\t: fpu avx2")
    assert power.virtualised(tmp_path) is False
