"""The thread pool, the mapped file and the count of threads."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from clover_edge import _core

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def check(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """base_check.cc, built from the sources; a wheel has no other way to its pool."""
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    if compiler is None:
        pytest.skip("no C++ compiler")
    if not (ROOT / "csrc/base/thread_pool.cc").exists():
        pytest.skip("the sources are not beside the tests")
    program = tmp_path_factory.mktemp("check") / "base_check"
    sources = [Path(__file__).with_name("base_check.cc"), *sorted(ROOT.glob("csrc/base/*.cc"))]
    subprocess.run(
        [compiler, "-std=c++17", "-O1", f"-I{ROOT / 'csrc'}", *sources, "-o", program, "-pthread"],
        check=True,
    )
    return program


@pytest.mark.parametrize(
    "name",
    ["items", "parked", "nested", "exception", "callers", "fork", "fork_destroys", "one", "many"],
)
def test_pool(check: Path, name: str) -> None:
    done = subprocess.run([check, name], timeout=60, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_file_map(check: Path, tmp_path: Path) -> None:
    empty, full = tmp_path / "empty", tmp_path / "full"
    empty.touch()
    full.write_bytes(bytes(range(256)) * 100)
    arguments = [check, "map", full, empty, tmp_path / "absent", tmp_path]
    done = subprocess.run(arguments, timeout=60, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"{empty}: file: is empty",
        f"{tmp_path / 'absent'}: file: cannot be opened: No such file or directory",
        f"{tmp_path}: file: is not a regular file",
    ]


def write(root: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return str(root)


def machine(allowed: str, siblings: dict[int, str], cgroup: str = "") -> dict[str, str]:
    """A fake /proc and /sys: CPUs that may be used, and which hardware threads share a core."""
    files = {
        "proc/self/status": f"Name:\tpython\nCpus_allowed:\tff\nCpus_allowed_list:\t{allowed}",
        "proc/self/cgroup": cgroup,
    }
    for cpu, group in siblings.items():
        files[f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"] = group
    return files


EIGHT = {cpu: f"{cpu % 4},{cpu % 4 + 4}" for cpu in range(8)}  # four cores, two threads each


def test_what_limits_threads(tmp_path: Path) -> None:
    files = machine("0-2,5", EIGHT, "0::/a")
    want = {"allowed": 4, "cores": 3, "quota": None, "threads": 3}
    assert _core.thread_limits(write(tmp_path, files)) == want
    quota = {"sys/fs/cgroup/a/cpu.max": "150000 100000"}
    assert _core.thread_limits(write(tmp_path, quota)) == want | {"quota": 1.5, "threads": 1}


@pytest.mark.parametrize(
    ("allowed", "cores"),
    [("0-7", 4), ("0-3", 4), ("0,4", 1), ("0,4-5", 2), ("6", 1), ("1-2,5-6", 2)],
)
def test_affinity_and_cores(tmp_path: Path, allowed: str, cores: int) -> None:
    assert _core.default_threads(write(tmp_path, machine(allowed, EIGHT))) == cores


def test_cores_without_topology_are_cpus(tmp_path: Path) -> None:
    assert _core.default_threads(write(tmp_path, machine("0-5", {}))) == 6


@pytest.mark.parametrize(
    ("quota", "threads"),
    [
        ("max 100000", 4),
        ("400000 100000", 4),
        ("399999 100000", 3),
        ("150000 100000", 1),
        ("50000 100000", 1),
        ("1000 1000000", 1),
        ("900000 100000", 4),
    ],
)
def test_quota_of_cgroup_v2(tmp_path: Path, quota: str, threads: int) -> None:
    files = machine("0-7", EIGHT, "0::/a/b")
    assert (
        _core.default_threads(write(tmp_path, {**files, "sys/fs/cgroup/a/b/cpu.max": quota}))
        == threads
    )


@pytest.mark.parametrize("place", ["", "a/", "a/b/"])
def test_quota_may_stand_anywhere_above(tmp_path: Path, place: str) -> None:
    files = machine("0-7", EIGHT, "0::/a/b")
    files[f"sys/fs/cgroup/{place}cpu.max"] = "200000 100000"
    assert _core.default_threads(write(tmp_path, files)) == 2


@pytest.mark.parametrize(
    ("quota", "threads"), [("-1", 4), ("300000", 3), ("250000", 2), ("10000", 1)]
)
@pytest.mark.parametrize("mount", ["cpu", "cpu,cpuacct"])
def test_quota_of_cgroup_v1(tmp_path: Path, mount: str, quota: str, threads: int) -> None:
    files = machine("0-7", EIGHT, "5:memory:/x\n4:cpu,cpuacct:/docker/1\n0::/")
    files[f"sys/fs/cgroup/{mount}/docker/1/cpu.cfs_quota_us"] = quota
    files[f"sys/fs/cgroup/{mount}/docker/1/cpu.cfs_period_us"] = "100000"
    assert _core.default_threads(write(tmp_path, files)) == threads


def test_strange_files_leave_at_least_one_thread(tmp_path: Path) -> None:
    files = machine("x,,9-", {}, "nonsense\n0::relative\n::")
    files["sys/fs/cgroup/cpu.max"] = "nan"
    assert _core.default_threads(write(tmp_path, files)) >= 1


def test_this_machine() -> None:
    assert 1 <= _core.default_threads() <= len(os.sched_getaffinity(0))
