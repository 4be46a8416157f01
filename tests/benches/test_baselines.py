"""Other runtimes on a small shape, where they are installed, and the records of their tests."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHES = Path(__file__).parents[2] / "benches"
sys.path.insert(0, str(BENCHES))
REASON = "benches/ is not beside the tests"
SIDES = pytest.importorskip("baselines", reason=REASON).SIDES
side = pytest.importorskip("baselines.side", reason=REASON)
results = pytest.importorskip("comparison.results", reason=REASON)
Bench = pytest.importorskip("forward_cases", reason=REASON).Bench
Missing = pytest.importorskip("peers.codes", reason=REASON).Missing
Shape = pytest.importorskip("synthetic", reason=REASON).Shape

SMALL = Shape(4, 512, 128, 32, 2, 64, 64, 2, 1, 64, 2, 4, 32)
DEPTH = 24


@pytest.mark.parametrize("runtime", SIDES)
def test_a_runtime_runs_every_test(runtime: str, tmp_path: Path) -> None:
    asked = side.Asked(Bench(tmp_path, SMALL, "small", threads=1), "correlated", context=128)
    try:
        made = list(side.records(lambda: SIDES[runtime](asked), [16], [2], [0, DEPTH], 2, 2, 1))
    except Missing as reason:
        pytest.skip(str(reason))
    names = ["pp16", "blk32", "ar2"]
    assert [each["test"] for each in made] == names + [f"{name} @ d{DEPTH}" for name in names]
    for each in made:
        assert each["runtime"] == runtime and each["runtime_version"]
        assert len(each["samples_ns"]) == len(each["samples_ts"]) == 2
        assert min(each["samples_ns"]) > 0 and each["avg_ts"] > 0
        assert each["model_size"] > 100_000
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(each) + "\n" for each in made))
    assert len(results.read([tmp_path / "r.jsonl"])) == len(made)


HIDDEN = """
import runpy, sys
sys.modules["llama_cpp"] = None  # as if it were not installed
sys.argv = ["baseline.py", "llama.cpp", "--folder", {folder!r}]
sys.path.insert(0, {benches!r})
runpy.run_path({script!r}, run_name="__main__")
"""


def test_a_missing_runtime_is_a_record_with_its_reason(tmp_path: Path) -> None:
    pytest.importorskip("gguf", reason="needs the extra peers")
    script = str(BENCHES / "baseline.py")
    code = HIDDEN.format(folder=str(tmp_path), script=script, benches=str(BENCHES))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (record,) = map(json.loads, done.stdout.splitlines())
    assert record["runtime"] == "llama.cpp"
    assert "'peers'" in record["skipped"]
