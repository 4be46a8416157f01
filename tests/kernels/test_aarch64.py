"""The AArch64 tables under emulation: the best that the processor has, equal to the reference."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = ("aarch64-linux-gnu-g++", "qemu-aarch64", "cmake")


@pytest.fixture(scope="module")
def compare_tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of that name, cross-compiled."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"AArch64 is not tested here, no {', '.join(missing)} (.ci/aarch64 installs)")
    if not (ROOT / "CMakeLists.txt").exists():
        pytest.skip("the sources are not beside the tests")
    build = tmp_path_factory.mktemp("aarch64")
    configure = [
        *("cmake", "-S", ROOT, "-B", build, "-DCLOVER_KERNEL_TESTS=ON"),
        f"-DCMAKE_TOOLCHAIN_FILE={ROOT / 'cmake/aarch64-linux-gnu.cmake'}",
        "-DCMAKE_EXE_LINKER_FLAGS=-static",  # the emulator needs no libraries of the other machine
    ]
    subprocess.run(configure, check=True)
    subprocess.run(["cmake", "--build", build, "--parallel"], check=True)
    return build / "compare_tables"


def run(
    program: Path, processor: str, *tables: str, force: str = ""
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["qemu-aarch64", "-cpu", processor, program, *tables],
        env={**os.environ, "CLOVER_ISA": force},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.parametrize(
    ("processor", "tables"),
    [
        ("max", ["neon_i8mm", "neon_dotprod"]),  # the first is to be chosen
        ("cortex-a76", ["neon_dotprod"]),
        ("cortex-a53", ["reference"]),
    ],
)
def test_the_best_table_is_chosen_and_right(
    compare_tables: Path, processor: str, tables: list[str]
) -> None:
    result = run(compare_tables, processor, *tables)
    assert result.returncode == 0, result.stdout + result.stderr
    compared = {line.partition(":")[0] for line in result.stdout.splitlines()} - {"chosen"}
    assert compared == set(tables) - {"reference"}


@pytest.mark.parametrize("processor", ["max", "cortex-a76"])
def test_a_lesser_table_can_be_forced(compare_tables: Path, processor: str) -> None:
    assert run(compare_tables, processor, "reference", force="reference").returncode == 0


@pytest.mark.parametrize(
    ("processor", "table", "lacks"),
    [
        ("cortex-a76", "neon_i8mm", "i8mm"),
        ("cortex-a53", "neon_i8mm", "asimddp, i8mm"),
        ("cortex-a53", "neon_dotprod", "asimddp"),
    ],
)
def test_a_table_that_the_processor_cannot_run_is_an_error(
    compare_tables: Path, processor: str, table: str, lacks: str
) -> None:
    result = run(compare_tables, processor, force=table)
    assert result.returncode == 2, result.stdout + result.stderr  # not an illegal instruction
    assert result.stderr.strip().endswith(f"this processor lacks {lacks}")
