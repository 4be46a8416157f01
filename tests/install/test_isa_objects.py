"""Files compiled for a wider instruction set must not lend their functions to anybody else.

An inline function that the compiler emits there is a weak symbol; the linker keeps one copy of it
for the whole program, and on an older processor that copy is an illegal instruction.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CSRC = ROOT / "csrc"
AVX2 = ["-mavx2", "-mfma", "-mf16c"]
AVX512 = [*AVX2, *(f"-mavx512{name}" for name in ("f", "bw", "vl", "dq", "vnni"))]
NEON = ["-march=armv8.2-a+dotprod"]
I8MM = ["-march=armv8.2-a+dotprod+i8mm"]
VNNI256 = [*AVX2, "-mavx512f", "-mavx512vl", "-mavx512vnni", "-DCLOVER_VNNI_EVEX"]
FILES = {
    "kernels/avx2.cc": AVX2,
    "kernels/avxvnni.cc": [*AVX2, "-mavxvnni"],
    "kernels/avxvnni.cc again": VNNI256,
    "kernels/ceilings_avxvnni.cc": [*AVX2, "-mavxvnni"],
    "kernels/ceilings_avxvnni.cc again": VNNI256,
    "kernels/avx2_mixers.cc": AVX2,
    "kernels/ceilings_avx2.cc": AVX2,
    "kernels/avx512vnni.cc": AVX512,
    "kernels/avx512vnni_mixers.cc": AVX512,
    "kernels/ceilings_avx512vnni.cc": AVX512,
    "kernels/neon_dotprod.cc": NEON,
    "kernels/neon_mixers.cc": NEON,
    "kernels/neon_i8mm.cc": I8MM,
    "kernels/ceilings_neon.cc": NEON,
    "kernels/ceilings_neon.cc again": I8MM,
    "quant/avx2.cc": AVX2,
    "quant/avx512.cc": AVX512,
}
HEADERS = ("<immintrin.h>", "<arm_neon.h>")
WEAK = set("wWvVu")  # weak and unique symbols, in nm's letters
# What a table offers to dispatch.cc and to its own other file; everything else is local.
PUBLIC = re.compile(
    r"clover::(k\w+(Kernels|Ceilings)|quant::k\w+Coder|(avx2|avx512vnni|neon)::(delta_\w+|attention)\(.*\))"
)


def compiler_for(machine: str) -> str | None:
    """This machine's own compiler if it makes code for `machine`, else Debian's cross compiler."""
    for name in (os.environ.get("CXX", "c++"), f"{machine}-linux-gnu-g++"):
        if path := shutil.which(name):
            target = subprocess.run([path, "-dumpmachine"], capture_output=True, text=True)
            if target.stdout.startswith(machine):
                return path
    return None


@pytest.fixture(scope="module", params=FILES)
def symbols(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Defined, non-local symbols of one file, as "letter name", compiled here with its flags."""
    source: str = request.param
    machine = "aarch64" if "neon" in source else "x86_64"
    compiler = compiler_for(machine)
    if compiler is None:
        pytest.skip(f"no compiler here makes code for {machine}")
    if not CSRC.exists():
        pytest.skip("the sources are not beside the tests")
    asked = [compiler, "-print-prog-name=nm"]
    nm = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    if shutil.which(nm) is None:
        pytest.skip(f"needs nm for {machine}")
    made = tmp_path_factory.mktemp("object") / "kernels.o"
    flags = ["-std=c++17", "-O0", "-ffp-contract=off", "-fPIC", f"-I{CSRC}"]
    subprocess.run(
        [compiler, *flags, *FILES[source], "-c", CSRC / source.split()[0], "-o", made],
        check=True,
    )
    listing = subprocess.run(
        [nm, "--extern-only", "--defined-only", "--demangle", made],
        capture_output=True,
        text=True,
        check=True,
    )
    return [line.split(maxsplit=1)[1] for line in listing.stdout.splitlines()]


def test_no_weak_symbol(symbols: list[str]) -> None:
    """At -O0, where nothing is inlined and every leak shows."""
    assert symbols
    assert [symbol for symbol in symbols if symbol[0] in WEAK] == []


def test_public_names_are_the_tables_alone(symbols: list[str]) -> None:
    names = [symbol[2:] for symbol in symbols]
    assert [name for name in names if not PUBLIC.fullmatch(name)] == []


def test_every_file_is_checked() -> None:
    """A file that needs an instruction set's own header is in the list above."""
    vector = (
        {
            str(path.relative_to(CSRC))
            for path in CSRC.glob("*/*.cc")
            if any(header in path.read_text() for header in HEADERS)
        }
        if CSRC.exists()
        else {name.split()[0] for name in FILES}
    )
    assert vector == {name.split()[0] for name in FILES}
