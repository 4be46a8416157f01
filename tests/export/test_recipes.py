"""Recipes of one's own, group sizes that were asked for, and methods, through a whole export."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clover_edge.errors import ArgumentError, CheckpointError
from clover_edge.export import Checkpoint, Plan, export_checkpoint, plan_export
from clover_edge.export.cli import main
from clover_edge.export.coding import Coding
from clover_edge.export.pipeline import write_plan
from clover_edge.export.plan import PlannedTensor
from clover_edge.export.recipe_file import find_recipe
from clover_edge.quant import Calibration, Recipe, Rule, recipe

MIXED = """
base = "int4"

[[rule]]
match = "layers.*.experts.down"
scheme = "codebook4"

[[rule]]
match = "layers.0.*.out"      # attention's or DeltaNet's
scheme = "bf16"

[[rule]]
match = "layers.3.experts.*"
scheme = "int8"
group = 64
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text)
    return path


def entries(packed: Path) -> dict[str, Any]:
    ours = json.loads((packed / "config.json").read_text())["clover_edge"]
    return dict(ours["tensors"])


def test_rules_come_before_classes_and_the_last_one_holds(tiny: Any, tmp_path: Path) -> None:
    source = tiny(hidden=128)
    export_checkpoint(source.folder, tmp_path / "out", recipe=write(tmp_path, MIXED))
    made = entries(tmp_path / "out")
    first, last = (made[f"layers.{layer}.experts"]["parts"] for layer in (0, 3))
    assert [(p["scheme"], p["group"]) for p in first.values()] == [
        ("int4", 32),
        ("int4", 32),
        ("codebook4", 32),
    ]
    assert {(p["scheme"], p["group"]) for p in last.values()} == {("int8", 64)}
    outs = {name: entry["scheme"] for name, entry in made.items() if name.endswith(".out")}
    assert {name for name, scheme in outs.items() if scheme == "bf16"} == {
        name for name in outs if name.startswith("layers.0.")
    }
    assert made["embed"]["scheme"] == "int8"
    ours = json.loads((tmp_path / "out" / "config.json").read_text())["clover_edge"]
    assert (ours["recipe"], ours["group_size"]) == ("mine", 32)


def test_core_runs_a_mixture_of_schemes(tiny: Any, tmp_path: Path, open_core: Any) -> None:
    source = tiny(hidden=128)
    export_checkpoint(source.folder, tmp_path / "mixed", recipe=write(tmp_path, MIXED))
    export_checkpoint(source.folder, tmp_path / "plain", recipe="f32")
    got, wanted = (open_core(tmp_path / name) for name in ("mixed", "plain"))
    ids = np.arange(5, 17)
    a, b = (core.commit(core.new_state(32), ids, logits="all") for core in (got, wanted))
    assert np.corrcoef(np.ravel(a), np.ravel(b))[0, 1] > 0.95


def test_example_of_the_page_is_a_recipe(tiny: Any, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "export.md").read_text()
    (example,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    with Checkpoint(tiny(hidden=128).folder) as checkpoint:
        plan = plan_export(checkpoint, write(tmp_path, example))
    made = {tensor.name: tensor.entry for tensor in plan.tensors}
    parts = [made[f"layers.{layer}.experts"]["parts"] for layer in (1, 2)]
    assert [[part["scheme"] for part in each.values()] for each in parts] == [
        ["int8", "int8", "codebook4"],
        ["int4", "int4", "codebook4"],
    ]
    assert (made["embed"]["scheme"], made["embed"]["group"]) == ("int4", 128)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("base = ", "is not TOML"),
        ("", "base: None"),
        ('base = "int5"', "base: 'int5'"),
        ("base = 4", "base: 4"),
        ('base = "int4"\nrules = 3', "rules: is not a key"),
        ('base = "int4"\nrule = 3', r"rule: write it as \[\[rule\]\]"),
        ('base = "int4"\nrule = [3]', r"rule 1: write it as \[\[rule\]\]"),
        ('base = "int4"\n[[rule]]\nscheme = "int8"', "rule 1: match: is missing"),
        ('base = "int4"\n[[rule]]\nmatch = "embed"', "rule 1: scheme: is missing"),
        ('base = "int4"\n[[rule]]\nmatch = 1\nscheme = "int8"', "rule 1: match: 1 is no str"),
        (
            'base = "int4"\n[[rule]]\nmatch = "embed"\nscheme = "int8"\ngroup = true',
            "rule 1: group: True is no int",
        ),
        (
            'base = "int4"\n[[rule]]\nmatch = "embed"\nscheme = "int8"\nbits = 8',
            "rule 1: bits: is not a key",
        ),
        (
            'base = "int4"\n[[rule]]\nmatch = "embed"\nscheme = "int8"\n'
            '[[rule]]\nmatch = "head"\nscheme = "int5"',
            "rule 2: unknown scheme 'int5'",
        ),
        (
            'base = "int4"\n[[rule]]\nmatch = "embed"\nscheme = "int3"\ngroup = 32',
            r"rule 1: group 32: int3 takes \(64,\)",
        ),
    ],
)
def test_file_that_is_no_recipe_is_refused_by_name(tmp_path: Path, text: str, said: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ArgumentError, match=said) as caught:
        find_recipe(path)
    assert str(path) in str(caught.value)


def test_recipe_file_that_is_not_there_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"absent\.toml: No such file"):
        find_recipe(tmp_path / "absent.toml")
    (tmp_path / "mine.toml").write_bytes(b'base = "\xff"')
    with pytest.raises(ArgumentError, match="is not TOML"):
        find_recipe(tmp_path / "mine.toml")


def ruled(match: str, scheme: str, group: int | None = None) -> Recipe:
    return Recipe("mine", recipe("int4").classes, (Rule(match, scheme, group),))


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (ruled("layer.*.experts.down", "int8"), "'layer.*.experts.down' matches no tensor"),
        (ruled("layers.2.router", "int8"), "layers.2.router: stays float32"),
        (ruled("layers.1.*", "bf16"), r"layers\.1\.\w+: stays float32"),
        (ruled("embed", "int4", 128), "embed: 64 columns are no multiple of the group of 128"),
        (ruled("layers.*.experts.down", "int3"), "layers.0.experts.down: 32 columns .* of 64"),
    ],
)
def test_rule_that_cannot_be_followed_is_refused_by_name(
    tiny: Any, tmp_path: Path, made: Recipe, said: str
) -> None:
    with pytest.raises(ArgumentError, match=said):
        export_checkpoint(tiny().folder, tmp_path / "out", recipe=made)
    assert not (tmp_path / "out").exists()


def test_float_tensor_may_be_named_by_a_rule_that_leaves_it_float(
    tiny: Any, tmp_path: Path
) -> None:
    export_checkpoint(tiny().folder, tmp_path / "out", recipe=ruled("layers.1.*", "f32"))
    made = entries(tmp_path / "out")
    assert {e["scheme"] for name, e in made.items() if name.startswith("layers.1.")} == {
        "f32",
        "experts",
    }


def test_group_size_that_was_asked_for_must_divide(tiny: Any, tmp_path: Path) -> None:
    """Left out, it is 32, and what 32 does not divide stays bf16, with a warning."""
    source = tiny(overrides={"moe_intermediate_size": 48})
    said = r"layers\.0\.experts\.down: 48 columns are no multiple of the group size of 32"
    with pytest.raises(ArgumentError, match=said):
        export_checkpoint(source.folder, tmp_path / "out", recipe="int8", group_size=32)
    report = export_checkpoint(source.folder, tmp_path / "out", recipe="int8")
    assert any("experts.down: 48 columns" in warning for warning in report.plan.warnings)
    assert entries(tmp_path / "out")["layers.0.experts"]["parts"]["down"]["scheme"] == "bf16"


def test_command_line_takes_a_recipe_file_and_a_method(
    tiny: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, MIXED)
    command = [str(tiny(hidden=128).folder), "--recipe", str(path), "--method", "hqq", "--json"]
    assert main([*command, "-o", str(tmp_path / "out"), "--threads", "1"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["recipe"], report["method"]) == ("mine", "hqq")
    assert set(report["matrices_by_method"]) == {"hqq"}
    write(tmp_path, 'base = "int9"')
    assert main([*command, "-o", str(tmp_path / "more")]) == 1
    assert "mine.toml: base: 'int9'" in capsys.readouterr().err
    for wrong in (
        ["--recipe", "int5"],
        ["--int4", "--method", "absmax"],  # for comparisons only
        ["--int4", "--threads", "0"],
    ):
        with pytest.raises(SystemExit) as caught:
            main([command[0], *wrong, "-o", str(tmp_path / "more")])
        assert caught.value.code == 2


def matrices(plan: Plan) -> Iterator[tuple[str, int]]:
    """Names and columns of what will be quantised."""
    for item in plan.tensors:
        if isinstance(item, PlannedTensor):
            if item.scheme.quantised:
                yield item.name, item.source.shape[1]
        else:
            for name, part in item.parts.items():
                yield f"{item.name}.{name}", part.source.shape[1]


def test_calibration_reaches_every_matrix_and_what_lacks_it_is_counted(
    tiny: Any, tmp_path: Path
) -> None:
    source, asked = tiny(hidden=128), []
    rng = np.random.default_rng(0)
    with Checkpoint(source.folder) as checkpoint:
        widths = dict(matrices(plan_export(checkpoint, "int4")))

    def calibrations(name: str, expert: int | None) -> Calibration | None:
        asked.append((name, expert))
        if expert is not None and expert % 4 == 1:
            return None
        x = rng.standard_normal((300, widths[name]))
        if name == "head":
            return Calibration(np.square(x).mean(axis=0))
        return Calibration(x.T @ x / 300)

    coding = Coding("gptq", calibrations)
    with Checkpoint(source.folder) as checkpoint:
        plan = plan_export(checkpoint, "int4")
        report = write_plan(checkpoint, plan, tmp_path / "out", coding=coding)
    assert len(set(asked)) == len(asked)
    assert {name for name, _ in asked} == set(widths)
    assert {("embed", None), ("layers.0.experts.down", 15)} < set(asked)
    assert all(expert is None or ".experts." in name for name, expert in asked)
    counted = report.as_dict()["matrices_by_method"]
    assert counted["weighted"] == 1 and counted["rtn"] == 4 * 3 * 4
    assert counted["gptq"] == len(asked) - 1 - 4 * 3 * 4
    assert [w for w in report.coding.warnings if "rtn" in w] == [
        f"{counted['rtn']} of {len(asked)} matrices have no calibration that gptq can use: rtn"
    ]


def test_method_that_lacks_calibration_or_does_not_exist_is_refused(
    tiny: Any, tmp_path: Path
) -> None:
    with pytest.raises(ArgumentError, match="unknown method 'awq'"):
        export_checkpoint(tiny().folder, tmp_path / "out", method="awq")
    with Checkpoint(tiny().folder) as checkpoint:
        plan = plan_export(checkpoint, "int4")
        with pytest.raises(ArgumentError, match="gptq needs calibration"):
            write_plan(checkpoint, plan, tmp_path / "out", coding=Coding("gptq"))
    assert list(tmp_path.iterdir()) == []


def test_methods_and_threads_change_codes_and_nothing(tiny: Any, tmp_path: Path) -> None:
    source, made = tiny(hidden=128), {}
    for name, options in {
        "rtn": {},
        "one thread": {"threads": 1},
        "hqq": {"method": "hqq"},
        "absmax": {"method": "absmax"},
    }.items():
        export_checkpoint(source.folder, tmp_path / name, **options)
        files = sorted((tmp_path / name).glob("*.safetensors"))
        made[name] = b"".join(path.read_bytes() for path in files)
    assert made["rtn"] == made["one thread"]
    assert len({made[name] for name in ("rtn", "hqq", "absmax")}) == 3


def test_value_that_is_not_finite_is_named_by_its_place_in_the_checkpoint(tmp_path: Path) -> None:
    from tiny_clover import make_checkpoint, write_checkpoint_files

    tensors = make_checkpoint(tmp_path / "in", dtype="f16", fused_experts=True)
    name = "layers.1.mlp.experts.gate_up_proj"
    for value, said in (
        (np.inf, rf"model\.{name}: holds inf \(row 99, column 7\)"),
        (np.nan, rf"model\.{name}: holds nan \(row 99, column 7\)"),
    ):
        spoiled = {key: array.copy() for key, array in tensors.items()}
        spoiled[name].reshape(-1, 64)[99, 7] = value
        named = {
            key if key.startswith("lm_head") else f"model.{key}": v for key, v in spoiled.items()
        }
        write_checkpoint_files(tmp_path / "in", named, shards=2, dtype="f16")
        with pytest.raises(CheckpointError, match=said):
            export_checkpoint(tmp_path / "in", tmp_path / "out")
