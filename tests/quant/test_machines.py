"""The same bytes on x86-64 and on AArch64, under emulation."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Those of CMakeLists.txt that concern arithmetic.
FLAGS = ("-std=c++17", "-O3", "-ffp-contract=off", "-fno-math-errno", "-pthread")
TOOLS = ("aarch64-linux-gnu-g++", "qemu-aarch64")


def built(compiler: str, program: Path, *flags: str) -> Path:
    parts = ("portable", "quantise", "rows", "factor")
    sources = [
        Path(__file__).with_name("same_bytes.cc"),
        *(ROOT / f"csrc/quant/{part}.cc" for part in parts),
        *sorted(ROOT.glob("csrc/base/*.cc")),
    ]
    subprocess.run(
        [compiler, *FLAGS, *flags, f"-I{ROOT / 'csrc'}", *sources, "-o", program], check=True
    )
    return program


def test_another_machine_makes_the_same_bytes(tmp_path: Path) -> None:
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    here = os.environ.get("CXX", "c++")
    if missing or shutil.which(here) is None:
        pytest.skip(f"AArch64 is not tested here, no {', '.join(missing or [here])}")
    if not (ROOT / "csrc/quant").exists():
        pytest.skip("the sources are not beside the tests")
    ours = subprocess.check_output([built(here, tmp_path / "here")], text=True)
    other = built(TOOLS[0], tmp_path / "other", "-static")
    theirs = subprocess.check_output([TOOLS[1], other], text=True)
    assert len(set(ours.splitlines())) == 30
    assert theirs == ours
