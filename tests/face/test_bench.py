"""`clover-edge bench`: records that llama-bench's readers take."""

from __future__ import annotations

import csv
import io
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clover_edge import ArgumentError
from clover_edge.benchmark import Benchmark
from clover_edge.cli.main import main
from clover_edge.loader import read_folder

FLAGS = ("-p", "16,40", "-n", "24", "-r", "3", "--steps", "4", "--threads", "1")
FIGURES = ("load_ns", "ttfb_ns", "forward_passes", "tokens_per_forward", "experts_touched")
# llama.cpp's scripts/compare-llama-bench.py refuses records that lack one; it joins by them.
KEYS = (
    *("build_commit", "cpu_info", "gpu_info", "backends", "n_gpu_layers", "tensor_buft_overrides"),
    *("model_filename", "model_type", "n_batch", "n_ubatch", "embeddings", "cpu_mask", "poll"),
    *("cpu_strict", "n_threads", "type_k", "type_v", "use_mmap", "no_kv_offload", "split_mode"),
    *("main_gpu", "tensor_split", "flash_attn", "n_prompt", "n_gen", "n_depth", "test_time"),
)


def bench(capsys: pytest.CaptureFixture[str], *arguments: Any) -> str:
    assert main(["bench", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def test_records(capsys: pytest.CaptureFixture[str], packed: Path) -> None:
    spec = read_folder(packed).spec
    flags = ("-o", "json", "--kv", "f16", "-d", 10, "--no-ceilings")
    records = json.loads(bench(capsys, packed, *FLAGS, *flags))
    names = ("pp16", "pp40", f"blk{spec['block_size']}", "tg24", "ar24")
    assert [record["test"] for record in records] == [f"{name} @ d10" for name in names]
    for record in records:
        assert [name for name in KEYS if record.get(name) is None] == []
        tokens = record["n_prompt"] or record["n_gen"]
        assert len(record["samples_ns"]) == 3 and min(record["samples_ns"]) > 0
        assert record["avg_ns"] == round(statistics.fmean(record["samples_ns"]))
        assert record["samples_ts"] == [tokens * 1e9 / taken for taken in record["samples_ns"]]
        assert record["avg_ts"] == statistics.fmean(record["samples_ts"])
        assert record["stddev_ts"] == statistics.stdev(record["samples_ts"])
        assert (record["n_threads"], record["type_k"], record["quant"]) == (1, "f16", "int4")
        assert record["state_bytes"] > 0 and record["n_depth"] == 10
        assert 0 < record["n_active_params"] < record["model_n_params"]
        assert record["machine"]["memory_bytes"] > 0 and record["machine"]["ceilings"] is None
    block, text, single = records[2:]
    for name in FIGURES:
        assert text[name] == statistics.fmean(text[f"samples_{name}"])
        assert text[f"stddev_{name}"] == statistics.stdev(text[f"samples_{name}"])
    assert (block["steps"], block["forward_passes"]) == (4, 4)
    assert (block["n_gen"], block["tokens_per_forward"]) == (32, 8.0)
    assert text["forward_passes"] * text["tokens_per_forward"] == pytest.approx(24)
    assert text["bytes_read"] > 0 and text["ttfb_ns"] > 0
    assert single["forward_passes"] == 23 and "steps" not in single  # the first follows from d10


def test_depths(capsys: pytest.CaptureFixture[str], packed: Path) -> None:
    """A depth that leaves no room skips its tests; every other is measured."""
    flags = ("-p", 0, "-n", 8, "-r", 1, "-d", "0,490,2000", "-o", "jsonl", "--no-ceilings")
    assert main(["bench", str(packed), *map(str, flags)]) == 0
    out, err = capsys.readouterr()
    tests = [json.loads(line)["test"] for line in out.splitlines()]
    assert tests == ["blk32", "tg8", "ar8", "ar8 @ d490"]
    assert err.count("skipped: ") == 5
    assert "block behind 490 tokens: n_gen: 32 takes 522 positions; the model has 1 to 512" in err


def test_what_is_measured_before_an_error_is_written(
    capsys: pytest.CaptureFixture[str], packed: Path
) -> None:
    flags = ("-p", "16,600", "-n", 0, "-r", 1, "-o", "json", "--no-ceilings")
    assert main(["bench", str(packed), *map(str, flags)]) == 2
    out, err = capsys.readouterr()
    assert [record["test"] for record in json.loads(out)] == ["pp16"]
    assert "n_prompt: 600 takes 600 positions" in err


def test_ceilings(capsys: pytest.CaptureFixture[str], packed: Path) -> None:
    record = json.loads(bench(capsys, packed, *("-p", 8, "-n", 0, "-r", 1, "-o", "json")))[0]
    found = record["machine"]["ceilings"]
    assert set(found) == {"threads", "dot_ops", "fma_flops", "read_bytes"}
    assert found["threads"] == record["n_threads"]
    assert 1e8 < found["read_bytes"] < 1e13 and found["dot_ops"] > found["fma_flops"] > 1e8


def test_forms(capsys: pytest.CaptureFixture[str], packed: Path) -> None:
    """The same tests in each; a model of one repetition has no deviation."""
    flags = (packed, *FLAGS[:4], "-r", "1", "--no-ceilings")
    want = ["pp16", "pp40", "blk32", "tg24", "ar24"]
    lines = bench(capsys, *flags, "-o", "jsonl").splitlines()
    assert [json.loads(line)["test"] for line in lines] == want
    assert {json.loads(line)["stddev_ns"] for line in lines} == {0.0}
    rows = list(csv.DictReader(io.StringIO(bench(capsys, *flags, "-o", "csv"))))
    assert [row["test"] for row in rows] == want
    assert rows[0]["forward_passes"] == "" != rows[3]["forward_passes"]
    table = bench(capsys, *flags).splitlines()
    assert [line.split(" | ")[5] for line in table[2:]] == want
    assert all(line.count("|") == table[0].count("|") for line in table)
    alone = ("-p", 0, "-n", 0, "-r", 1, "--no-ceilings")
    assert bench(capsys, packed, *alone).count("\n") == 3  # the block alone
    assert main(["bench", str(packed), *map(str, alone), "-oe", "jsonl"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(err)["test"] in out


def test_work_is_the_same_every_time(packed: Path) -> None:
    """All that is counted; only times differ."""
    counted = ("forward_passes", "experts_touched", "bytes_read")
    first, again = (
        Benchmark(read_folder(packed), threads=threads, repetitions=1).text(24)
        for threads in (1, 2)
    )
    assert [first[name] for name in counted] == [again[name] for name in counted]


def test_other_families(
    tiny_transformer: Callable[..., Any],
    tiny_full_attention: Callable[..., Any],
    pack_canvas: Callable[..., Path],
    pack: Callable[..., Path],
) -> None:
    """An autoregressive model has no blocks to denoise; one with full attention reads no prompt."""
    llama = Benchmark(read_folder(pack(tiny_transformer("llama"), "int4")), repetitions=1)
    assert not llama.has_blocks and llama.has_prompts
    assert llama.text(5)["forward_passes"] == 4 and "steps" not in llama.text(5)
    assert not llama.has_both
    dream = Benchmark(read_folder(pack(tiny_full_attention("llada"), "int4")), repetitions=1)
    assert dream.has_blocks and not dream.has_prompts
    assert dream.block(2)["forward_passes"] == 2
    canvas = Benchmark(read_folder(pack_canvas()), repetitions=1)
    assert canvas.block(3)["n_gen"] == canvas.block(3)["block_length"]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["-p", "x"], "n_prompt: 'x' is no list of numbers"),
        (["-n", "8,-1"], "n_gen: -1 is below 0"),
        (["-d", "-1"], "n_depth: -1 is below 0"),
        (["--delay", "-1"], "delay: -1 is outside"),
        (["-r", "0"], "repetitions: 0 is below 1"),
        (["--threads", "0"], "threads: 0"),
        (["-p", "513"], "n_prompt: 513 takes 513 positions; the model has 1 to 512"),
        (["-p", "0", "-n", "512"], "n_gen: 512 takes 513 positions; the model has 1 to 512"),
        (["--steps", "-1"], "steps: -1"),
    ],
)
def test_arguments(
    flags: list[str], words: str, packed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", str(packed), *flags]) == 2
    assert words in capsys.readouterr().err


def test_a_python_caller(packed: Path) -> None:
    with pytest.raises(ArgumentError, match="n_prompt: 0"):
        Benchmark(read_folder(packed)).prompt(0)
