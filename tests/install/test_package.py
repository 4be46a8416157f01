"""The package as it is installed: what is in it, what it needs, what it links to."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib.metadata import distribution, requires
from importlib.resources import files
from pathlib import Path

import pytest

import clover_edge
from clover_edge import _core, demo

SCRIPTS = Path(sys.executable).parent


def test_both_mapped_packages_are_inside() -> None:
    import clover_edge.export
    import clover_edge.quant

    for module in (clover_edge.export, clover_edge.quant):
        assert module.__name__.startswith("clover_edge.")
    assert not {"quant", "export"} & set(sys.modules), "a second copy was imported from the root"


@pytest.mark.parametrize("name", ["py.typed", "_core.pyi"])
def test_types_are_shipped(name: str) -> None:
    assert files(clover_edge).joinpath(name).is_file()


def test_the_demo_checkpoint_is_shipped_in_the_real_layout() -> None:
    folder = demo.checkpoint_path()
    names = {path.name for path in folder.iterdir()}
    assert names >= {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
    }
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 12e6


def test_a_plain_install_needs_little() -> None:
    """Four packages (Python 3.10: five), and no torch for the tests."""
    needed: dict[str, set[str]] = {}
    for line in requires("clover-edge") or []:
        name = re.match(r"[A-Za-z0-9_.-]+", line)
        extra = re.search(r"extra == [\"']([a-z]+)[\"']", line)
        assert name
        needed.setdefault(extra[1] if extra else "", set()).add(name[0].lower())
    assert needed[""] == {"numpy", "tokenizers", "jinja2", "tqdm", "tomli"}
    assert not {"torch", "transformers"} & needed["test"]
    assert needed["judge"] == {"torch", "transformers"}


def test_the_licence_is_in_the_metadata() -> None:
    metadata = distribution("clover-edge").metadata
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Version"] == clover_edge.__version__


@pytest.mark.parametrize(
    "command",
    [
        [str(SCRIPTS / "clover-edge"), "--version"],
        [str(SCRIPTS / "clover-export"), "--help"],
        [sys.executable, "-m", "clover_edge.cli.main", "--help"],
        [sys.executable, "-m", "clover_edge.export", "--help"],
    ],
)
def test_commands(command: list[str], tmp_path: Path) -> None:
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "clover-e" in done.stdout


@pytest.mark.skipif(not shutil.which("readelf"), reason="no readelf here")
def test_the_core_links_to_the_system_only() -> None:
    """No OpenMP, no BLAS: nothing that another package in the process could bring in twice."""
    needed = re.findall(r"\(NEEDED\).*\[(.+?)\.so", _printed("readelf", "--dynamic", "--wide"))
    assert needed
    system = {"libstdc++", "libm", "libgcc_s", "libc", "libpthread"}
    assert {name for name in needed if not name.startswith("ld-linux")} <= system


@pytest.mark.skipif(not shutil.which("nm"), reason="no nm here")
def test_the_core_exports_one_symbol() -> None:
    """Two extensions in one process cannot call into each other."""
    symbols = _printed("nm", "--dynamic", "--defined-only").split()[2::3]
    assert symbols == ["PyInit__core"]


def _printed(*command: str) -> str:
    done = subprocess.run([*command, _core.__file__], check=True, capture_output=True, text=True)
    return done.stdout
