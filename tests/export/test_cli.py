"""clover-export: exit codes, what goes to stdout and what to stderr."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from clover_edge.export import cli
from clover_edge.export.cli import main


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


@pytest.mark.parametrize("flag", ["--int4", "--int8", "--bf16", "--f32"])
def test_flag_names_the_recipe(tiny: Any, tmp_path: Path, flag: str) -> None:
    assert run(tiny().folder, "-o", tmp_path / "out", flag) == 0
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["clover_edge"]["recipe"] == flag.removeprefix("--")


def test_recipe_and_group_size_are_passed_on(tiny: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    source = tiny(
        hidden=128, overrides={"shared_expert_intermediate_size": 64, "moe_intermediate_size": 64}
    )
    assert run(source.folder, "-o", out, "--int4", "--recipe", "int4-all", "--group-size", 64) == 0
    ours = json.loads((out / "config.json").read_text())["clover_edge"]
    assert (ours["recipe"], ours["group_size"]) == ("int4-all", 64)
    assert ours["tensors"]["embed"]["group"] == 64


def test_plan_and_report_go_to_stderr(
    tiny: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tiny().folder, "-o", tmp_path / "out", "--int4") == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "expert" in printed.err and "SQNR" in printed.err
    assert "\r" not in printed.err and "%|" not in printed.err  # no bar without a terminal


def test_json_report_is_the_only_thing_on_stdout(
    tiny: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tiny().folder, "-o", tmp_path / "out", "--int4", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report == json.loads((tmp_path / "out" / "export_report.json").read_text())


def test_dry_run_writes_nothing_and_reads_no_weight(
    tiny: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_reading(*arguments: object) -> None:
        raise AssertionError("a weight was read")

    monkeypatch.setattr("clover_edge.export.sources.SafetensorsSource.read_rows", no_reading)
    before = sorted(tmp_path.iterdir())
    assert run(tiny().folder, "--int4", "--dry-run", "--json", "-o", tmp_path / "out") == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["totals"]["file_bytes"] > plan["totals"]["tensor_bytes"] > 0
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("recipe", "expert", "dense"),
    [
        ("int4-small", "int3 g64", "int4 g32"),
        ("codebook4", "codebook4 g32", "int8 g32"),
        ("codebook4-all", "codebook4 g32", "codebook4 g32"),
    ],
)
def test_plan_names_the_schemes_of_a_recipe(
    tiny: Any, capsys: pytest.CaptureFixture[str], recipe: str, expert: str, dense: str
) -> None:
    assert run(tiny(hidden=128).folder, "--recipe", recipe, "--dry-run", "--json") == 0
    printed = capsys.readouterr()
    classes = json.loads(printed.out)["classes"]
    assert (classes["expert"]["schemes"], classes["dense"]["schemes"]) == ([expert], [dense])
    assert expert in printed.err and dense in printed.err


def test_f32_export_says_that_nothing_was_lost(
    tiny: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tiny().folder, "-o", tmp_path / "out", "--f32") == 0
    assert "nothing was lost" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["IN", "-o", "OUT"],
        ["IN", "--int4"],
        ["IN", "-o", "OUT", "--int4", "--int8"],
        ["IN", "-o", "OUT", "--int8", "--recipe", "int4-all"],
        ["IN", "-o", "OUT", "--recipe", "int5"],
        ["IN", "-o", "OUT", "--int4", "--group-size", "48"],
        ["IN", "-o", "OUT", "--int4", "--shard-size", "-1"],
        ["-o", "OUT", "--int4"],
    ],
)
def test_wrong_usage_is_code_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2


def test_failure_is_code_1_with_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path / "nothing", "-o", tmp_path / "out", "--int4") == 1
    printed = capsys.readouterr()
    assert printed.err.startswith("clover-export: ") and "does not exist" in printed.err
    assert printed.err.count("\n") == 1 and printed.out == ""


def test_interruption_is_code_1_and_leaves_nothing(
    tiny: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli._Bar, "update", interrupt)
    assert run(tiny().folder, "-o", tmp_path / "out", "--int4") == 1
    assert "interrupted" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_warnings_are_printed(
    tiny: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(tiny().folder, tmp_path / "in")
    (tmp_path / "in" / "tokenizer.json").unlink()
    assert run(tmp_path / "in", "--int4", "--dry-run") == 0
    assert "warning: tokenizer.json is absent" in capsys.readouterr().err
