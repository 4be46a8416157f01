"""Comparison of results: table, pictures, the page in docs/, and what is said of bad files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benches"))
REASON = "benches/ is not beside the tests"
page = pytest.importorskip("comparison.page", reason=REASON).page
plots = pytest.importorskip("comparison.plots", reason=REASON)
results = pytest.importorskip("comparison.results", reason=REASON)
tables = pytest.importorskip("comparison.tables", reason=REASON)
BadResults, Result, read = results.BadResults, results.Result, results.read
NoPlots, available, draw = plots.NoPlots, plots.available, plots.draw

CHIP, BOARD = "Intel(R) Xeon(R) CPU @ 2.80GHz", "Cortex-A78AE"


def record(test: str, **fields: Any) -> dict[str, Any]:
    """As `clover-edge bench` writes one: 1000 bytes a token at 100 tokens a second."""
    tokens = int("".join(filter(str.isdigit, test.partition(" @ ")[0])))
    made = {
        "model": "demo",
        "test": test,
        "runtime": "clover-edge",
        "runtime_version": "0.1.0",
        "cpu_info": CHIP,
        "gpu_info": "",
        "device": "cpu",
        "n_threads": 2,
        "n_depth": int(test.partition("@ d")[2] or 0),
        "model_filename": "demo-int4",
        "model_size": 4_000_000,
        "model_n_params": 6_000_000,
        "quant": "int4",
        "avg_ts": 100.0,
        "stddev_ts": 2.0,
        "command": "clover-edge bench DIR/demo-int4 -o jsonl",
        "machine": {
            "isa": "avx2",
            "threads": 2,
            "threads_why": "2 CPUs allowed",
            "memory_bytes": 8_000_000_000,
            "virtualised": True,
            "ceilings": {"dot_ops": 4e11, "fma_flops": 1e11, "read_bytes": 1e6},
            "energy_source": None,
            "energy_why": "nothing tells it",
        },
    }
    if not test.startswith("pp"):
        made |= {"bytes_read": 1000.0 * tokens, "effective_gbps": 1e-4, "tokens_per_forward": 4.0}
        made |= {"ttfb_ns": 5e6, "stddev_ttfb_ns": 1e5}
    return {**made, **fields}


def on_board(test: str) -> dict[str, Any]:
    """The same on a device that measures energy."""
    energy = {"energy_j": 0.64, "stddev_energy_j": 0.01}
    return record(test, cpu_info=BOARD, n_threads=6, nvpmodel="0 MAXN", avg_ts=50.0, **energy)


OURS = [record(test) for test in ("pp512", "blk32", "tg32", "ar32", "tg32 @ d4096")]
OTHER = record("ar32", runtime="llama.cpp", quant="Q4_0", model_filename="demo.gguf", avg_ts=40.0)
for name in ("machine", "bytes_read", "effective_gbps", "ttfb_ns", "tokens_per_forward"):
    del OTHER[name]
SKIPPED = {"runtime": "pytorch", "test": "all", "model": "demo", "skipped": "needs the extra"}


def written(path: Path, records: list[Any]) -> Path:
    path.write_text("".join(json.dumps(each) + "\n" for each in records))
    return path


def rows(table: str) -> list[dict[str, str]]:
    """Of a Markdown table, by the columns' names."""
    heads, _, *lines = (
        [cell.strip() for cell in line[1:-1].split("|")] for line in table.split("\n")
    )
    return [dict(zip(heads, line, strict=True)) for line in lines]


def test_table_of_one_device_leaves_out_what_all_share(tmp_path: Path) -> None:
    found = rows(tables.table(read([written(tmp_path / "r.jsonl", [*OURS, OTHER])])))
    assert [(row["test"], row["depth"], row["runtime"]) for row in found] == [
        ("pp512", "0", "clover-edge"),
        ("blk32", "0", "clover-edge"),
        ("tg32", "0", "clover-edge"),
        ("tg32", "4,096", "clover-edge"),
        ("ar32", "0", "clover-edge"),
        ("ar32", "0", "llama.cpp"),
    ]
    assert not {"device", "model", "mJ a token"} & found[0].keys()
    blk, ar = found[1], found[5]
    assert blk["tok/s"] == "100 ± 2"
    assert blk["MB a token"] == "0.00100"
    assert blk["of read"] == "10 %"  # 100 kB/s of 1 MB/s
    assert blk["first block, ms"] == "5.00"
    assert ar["tok/s"] == "40.0 ± 2.0"
    assert ar["MB a token"] == ar["first block, ms"] == "–"


def test_table_of_two_devices(tmp_path: Path) -> None:
    files = [written(tmp_path / "a.jsonl", OURS)]
    files.append(written(tmp_path / "b.jsonl", [on_board("blk32")]))
    found = rows(tables.table(read(files)))
    board, chip = (row for row in found if row["test"] == "blk32")
    assert chip["device"] == "Intel Xeon, 2 threads" and chip["mJ a token"] == "–"
    assert board["device"] == "Cortex-A78AE, 6 threads, 0 MAXN"
    assert board["mJ a token"] == "20.0"


def test_later_record_of_a_test_counts(tmp_path: Path) -> None:
    path = written(tmp_path / "r.jsonl", [record("pp8"), record("pp8", avg_ts=7.0)])
    assert [result.record["avg_ts"] for result in read([path])] == [7.0]


def test_json_array_is_read(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(json.dumps(OURS))
    assert len(read([tmp_path / "r.json"])) == len(OURS)


def test_page_says_where_it_comes_from_and_what_is_missing(tmp_path: Path) -> None:
    found = read([written(tmp_path / "r.jsonl", [*OURS, OTHER, SKIPPED])])
    text = page(found)
    assert "compare.py" in text.split("\n\n")[1]
    assert "- pytorch on demo: needs the extra" in text
    assert "- Energy: no device here measures it." in text
    assert text.count(OURS[0]["command"]) == 1  # of all records that it made
    assert text == page(found)


def test_devices_without_ceilings_are_listed(tmp_path: Path) -> None:
    plain = record("pp8")
    plain["machine"]["ceilings"] = None
    found = read([written(tmp_path / "r.jsonl", [plain])])
    assert rows(tables.devices(found))[0]["read, GB/s"] == "–"
    assert "roofline" not in available(found)


def test_committed_page_is_made_of_committed_results() -> None:
    found = read(sorted((ROOT / "benches/results").glob("*.jsonl")))
    assert (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8") == page(found)
    assert all((ROOT / f"docs/images/{name}.svg").is_file() for name in available(found))


@pytest.mark.parametrize("devices", [1, 2])
def test_pictures(devices: int, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra plot")
    records = [*OURS, OTHER]
    if devices == 2:
        records += [on_board(each["test"]) for each in OURS]
    found = read([written(tmp_path / "r.jsonl", records)])
    paths = draw(found, tmp_path / "pictures")
    names = ["speed", "depth", "first-block", "roofline", *(["energy"] if devices == 2 else [])]
    assert [path.stem for path in paths] == names == available(found)
    speed = paths[0].read_text()
    assert all(word in speed for word in ("llama.cpp", "tokens/s", "blk32"))
    assert (BOARD in speed) == (devices == 2)
    assert "Intel Xeon, 2 threads: reads 0.00100 GB/s" in paths[3].read_text()


def test_without_matplotlib_there_are_no_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(NoPlots, match="plot"):
        draw([Result(OURS[0])], tmp_path / "pictures")
    assert not (tmp_path / "pictures").exists()


def changed(**fields: Any) -> dict[str, Any]:
    return {**record("blk32"), **fields}


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in record("blk32").items() if key != name}


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ([1], "a list, not an object"),
        (without("avg_ts"), "avg_ts: is missing"),
        (without("n_depth"), "n_depth: is missing"),
        (without("stddev_ttfb_ns"), "stddev_ttfb_ns: is missing"),
        (changed(avg_ts="fast"), "avg_ts: 'fast' is not"),
        (changed(n_threads=True), "n_threads: True is not"),
        (changed(test="xy8"), "test: 'xy8' is none of pp, blk, tg, ar"),
        (changed(machine=3), "machine: 3 is not"),
        (changed(machine={}), "machine.isa: is missing"),
        (
            changed(machine={**record("pp8")["machine"], "ceilings": {}}),
            "machine.ceilings.dot_ops: is missing",
        ),
        ({"runtime": "pytorch", "skipped": "why"}, "test: is missing"),
    ],
)
def test_bad_records_are_named(bad: Any, said: str, tmp_path: Path) -> None:
    path = written(tmp_path / "r.jsonl", [record("pp8"), bad])
    with pytest.raises(BadResults) as raised:
        read([path])
    assert str(raised.value).startswith(f"{path}:2: {said}")


def compare(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "benches/compare.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_command_prints_the_table(tmp_path: Path) -> None:
    done = compare(written(tmp_path / "r.jsonl", [*OURS, SKIPPED]))
    assert done.returncode == 0, done.stderr
    assert len(rows(done.stdout.strip())) == len(OURS)
    assert "not measured: pytorch on demo: needs the extra" in done.stderr


def test_command_names_what_is_wrong(tmp_path: Path) -> None:
    cases = {tmp_path / "absent.jsonl": "cannot be read: "}
    for name, text, said in (
        ("cut.jsonl", json.dumps(OURS[0]) + '\n{"test": ', ":2: no JSON: "),
        ("cut.json", "[{}", "no JSON: "),
        ("skipped.jsonl", json.dumps(SKIPPED), "no record was measured"),
    ):
        (tmp_path / name).write_text(text)
        cases[tmp_path / name] = said
    for path, said in cases.items():
        done = compare(path)
        assert done.returncode == 2
        assert said in done.stderr and "Traceback" not in done.stderr
        assert not done.stdout


def test_chip_names_lose_their_trademarks() -> None:
    assert results.chip_name("Intel(R) Core(TM) i7-1165G7 CPU @ 2.80GHz") == "Intel Core i7-1165G7"
    assert results.chip_name("AMD Ryzen 7 5800X 8-Core Processor") == "AMD Ryzen 7 5800X 8-Core"
