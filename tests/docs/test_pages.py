"""What the pages of docs/ tell readers to run, run.

A fence marked ```bash run or ```python run is run, in the page's order and in one folder a page.
That holds `CHECKPOINT`, the demo model's, and `my-model-int4`, packed from it, unless the page
itself packs it. The Python blocks of a page are one program, as a reader would type them; a bash
block stops at its first error. `exit=2` says what a bash block ends with, `needs=NAME,…` which
packages of an extra a block takes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from clover_edge import demo

PAGES = Path(__file__).parents[2] / "docs"
FENCE = re.compile(r"^```(bash|python) run([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MARKS = re.compile(r"(?: (?:exit=\d+|needs=[\w,]+))*")


@dataclass(frozen=True)
class Block:
    """A fence that is run."""

    language: str
    code: str
    exit: int
    needs: tuple[str, ...]


def blocks_of(text: str) -> list[Block]:
    blocks = []
    for language, marks, code in FENCE.findall(text):
        assert MARKS.fullmatch(marks), f"unknown marks of a block: {marks}"
        named = dict(mark.split("=") for mark in marks.split())
        needs = tuple(named["needs"].split(",")) if "needs" in named else ()
        blocks.append(Block(language, code, int(named.get("exit", 0)), needs))
    return blocks


RUN = {
    path.name: found
    for path in sorted(PAGES.glob("*.md"))
    if (found := blocks_of(path.read_text()))
}


@pytest.fixture(scope="session")
def packed_demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    handle = demo.pack("int4")
    with handle:
        folder = tmp_path_factory.mktemp("docs") / "model"
        shutil.copytree(demo.packed_path(handle), folder)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A reader's folder, and beside it the commands of this very Python."""
    work, commands = tmp_path / "work", tmp_path / "bin"
    for each in (work, commands):
        each.mkdir()
    for name, module in (("clover-edge", "cli.main"), ("clover-export", "export.cli")):
        script = f'#!/bin/sh\nexec "{sys.executable}" -m clover_edge.{module} "$@"\n'
        (commands / name).write_text(script)
        (commands / name).chmod(0o755)
    (commands / "python").symlink_to(sys.executable)
    (work / "CHECKPOINT").symlink_to(demo.checkpoint_path())
    yield work


@pytest.mark.parametrize("page", RUN)
def test_page(page: str, folder: Path, packed_demo: Path) -> None:
    blocks = RUN[page]
    for block in blocks:
        for package in block.needs:
            pytest.importorskip(package)
    if not any("-o my-model-int4" in block.code for block in blocks):
        (folder / "my-model-int4").symlink_to(packed_demo)
    program = "\n".join(block.code for block in blocks if block.language == "python")
    done_program = False
    for block in blocks:
        if block.language == "bash":
            run(["bash", "-euo", "pipefail", "-c", block.code], folder, block.exit)
        elif not done_program:
            done_program = True
            run([sys.executable, "-W", "error", "-c", program], folder, 0)


def run(command: list[str], folder: Path, code: int) -> None:
    environment = {
        **os.environ,
        "PATH": f"{folder.parent / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder),
        "XDG_STATE_HOME": str(folder / ".state"),
        "XDG_CACHE_HOME": str(folder / ".cache"),
        "PYTHONUTF8": "1",
    }
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == code, f"{command[-1]}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"


def test_the_pages_that_promise_it() -> None:
    """A page loses its marks only on purpose."""
    assert {"quickstart.md", "chat.md", "cli.md"} <= set(RUN)


def test_how_blocks_are_found() -> None:
    text = "```bash run exit=2\na\nb\n```\n```python\nno\n```\n```python run needs=x,y\nc\n```\n"
    assert blocks_of(text) == [
        Block("bash", "a\nb\n", 2, ()),
        Block("python", "c\n", 0, ("x", "y")),
    ]
    with pytest.raises(AssertionError, match="unknown marks"):
        blocks_of("```bash run exti=2\na\n```\n")
