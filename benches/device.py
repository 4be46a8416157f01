"""Measures this device: our runtime and others on the same models, into one file of results.

    python benches/device.py mine.jsonl --folder DIR                 # everything
    python benches/device.py mine.jsonl --folder DIR --only 100m     # commands that have the word
    python benches/device.py --list                                  # the commands

Models are made in DIR when they are not there, which takes 5 GB of disk for all. Each record has
two fields more than the command behind it prints: `model`, by which runtimes are compared, and
`command`. A command that runs again replaces what it left before. benches/compare.py reads it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from baselines import SIDES
from forward_cases import Bench
from synthetic import SHAPES

from clover_edge import demo
from clover_edge.export import export_checkpoint

OURS = "clover-edge"
ROUTING = "correlated"  # rows of a block share experts as those of a trained model do
Record = dict[str, Any]


@dataclass(frozen=True)
class Line:
    """A model in a runtime. `options`: of `clover-edge bench`, or of benches/baseline.py."""

    model: str
    runtime: str
    options: str

    @property
    def command(self) -> str:
        """With DIR for the folder."""
        if self.runtime == OURS:
            return f"clover-edge bench DIR/{FOLDERS[self.model]} {self.options} -o jsonl"
        shape = f"--shape {self.model} --routing {ROUTING} --folder DIR"
        return f"python benches/baseline.py {self.runtime} {shape} {self.options}"

    def run(self, folder: Path) -> Iterator[Record]:
        """Records as they are measured. RuntimeError where the command fails."""
        _, *words = self.command.replace("DIR", str(folder)).split()
        start = ["-m", "clover_edge.cli.main"] if self.runtime == OURS else [str(_BASELINE)]
        call = [sys.executable, *start, *words[0 if self.runtime == OURS else 1 :]]
        with subprocess.Popen(call, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout
            for text in process.stdout:
                yield {"model": self.model, **json.loads(text), "command": self.command}
        if process.returncode:
            raise RuntimeError(f"exit code {process.returncode}: {self.command}")


_BASELINE = Path(__file__).with_name("baseline.py")
FOLDERS = {
    "demo": "demo-int4",
    **{name: f"{name}-int4-all-g32-{ROUTING}" for name in SHAPES},
}
LINES = (
    Line("demo", OURS, "-p 512 -n 128 -d 0,3072"),
    Line("100m", OURS, "-p 512 -n 32 -d 0,4096"),
    Line("100m", OURS, "-p 512 -n 32 -d 32768 -r 3"),
    Line("100m", "llama.cpp", "-p 512 -n 32 -d 0,4096"),
    Line("100m", "onnxruntime", "-p 512 -n 32 -d 0,4096"),
    Line("100m", "pytorch", "-p 512 -n 32 -d 0 -r 2"),
    Line("slice", OURS, "-p 512 -n 32 -d 0 -r 3"),
    Line("slice", OURS, "-p 512 -n 32 -d 4096 -r 3"),
    Line("slice", "llama.cpp", "-p 512 -n 32 -d 0"),
)
assert {line.runtime for line in LINES} == {OURS, *SIDES}


def make(model: str, folder: Path) -> None:
    """The packed folder of a model, if it is not there."""
    if model != "demo":
        Bench(folder, SHAPES[model], model, threads=1).path(routing=ROUTING)
    elif not (folder / FOLDERS[model]).exists():
        export_checkpoint(demo.checkpoint_path(), folder / FOLDERS[model], recipe="int4")


def measure(lines: list[Line], out: Path, folder: Path, said: Callable[[str], None]) -> None:
    """Measures lines one after the other; each is in the file as soon as it is done."""
    folder.mkdir(parents=True, exist_ok=True)
    for line in lines:
        said(line.command)
        make(line.model, folder)
        found = list(line.run(folder))
        kept = [record for record in _records(out) if record.get("command") != line.command]
        out.write_text("".join(json.dumps(record) + "\n" for record in [*kept, *found]))


def _records(path: Path) -> list[Record]:
    if not path.exists():
        return []
    return [json.loads(text) for text in path.read_text().splitlines() if text.strip()]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", nargs="?", type=Path, metavar="FILE", help="results, as JSON lines")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="where models are made and kept")
    parser.add_argument("--only", metavar="WORD", help="lines that have WORD in them")
    parser.add_argument("--list", action="store_true", help="print the lines and measure nothing")
    options = parser.parse_args()
    lines = [line for line in LINES if (options.only or "") in line.command]
    if options.list:
        print("\n".join(line.command for line in lines))
        return 0
    if not options.out or not options.folder:
        parser.error("needs FILE and --folder")
    if not lines:
        parser.error(f"--only: no line has {options.only!r} in it (see --list)")
    try:
        measure(lines, options.out, options.folder, lambda text: print(text, file=sys.stderr))
    except RuntimeError as error:
        print(f"device: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
