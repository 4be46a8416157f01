"""Planning past the machine at hand: counts by hand, expectations by simulation, choices."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_gemma import make_gemma

from clover_edge.benchmark import ceilings
from clover_edge.errors import ArgumentError, CheckpointError, UnsupportedModelError
from clover_edge.export import export_checkpoint
from clover_edge.loader import open_core, read_folder
from clover_edge.tuning.costs import Costs
from clover_edge.tuning.planner import FREE, Settings, predicted

sys.path.insert(0, str(Path(__file__).parents[2] / "benches"))
roofline = pytest.importorskip("roofline", reason="benches/ is not beside the tests")
from planning import acceptance, experts, floors, models  # noqa: E402
from planning import text as tables  # noqa: E402
from planning.counts import Counts  # noqa: E402
from planning.devices import DEVICES, Device, find  # noqa: E402
from planning.models import describe, describe_shape  # noqa: E402
from planning.passes import cases_of  # noqa: E402

PACKED = 16  # experts of the tiny model, of which a row chooses 2
FAST = Device("made up", 8, 6, 100, 1e3, "CPU", "made up")  # 10 operations a byte


@pytest.fixture(scope="module")
def packed(tiny: Callable[..., Any], pack: Callable[..., Path]) -> Path:
    return pack(tiny(), "int4")


@pytest.fixture(scope="module")
def counts(packed: Path) -> Counts:
    return Counts(describe(packed, "int4"), experts.independent(PACKED, 2), 100)


def test_bytes_are_the_folders_own_entries(packed: Path, counts: Counts) -> None:
    folder = read_folder(packed)
    stacks = [n for n, entry in folder.entries.items() if entry["scheme"] == "experts"]
    rest = sum(folder.sizes[n] for n in folder.sizes if n not in (*stacks, "embed", "head"))
    rows, record = 5, 0
    for name in stacks:
        parts = folder.entries[name]["parts"].values()
        record += sum(part["bytes"] for part in parts)
    touched = PACKED * (1 - (1 - 2 / PACKED) ** rows)
    embedding = rows * folder.sizes["embed"] / folder.spec["vocab_size"]
    work = counts.work(0, rows, head=rows)
    assert work.experts == pytest.approx(touched)
    assert work.weights == pytest.approx(rest + touched * record + embedding + folder.sizes["head"])
    assert counts.work(0, rows).weights == pytest.approx(work.weights - folder.sizes["head"])


@pytest.mark.parametrize("rows", [1, 7, 32])
@pytest.mark.parametrize("mode", ["commit", "preview"])
def test_the_core_reads_what_is_counted(packed: Path, counts: Counts, rows: int, mode: str) -> None:
    """Its counter leaves out norms and other vectors, and rounds an embedding row's bytes."""
    folder = read_folder(packed)
    core = open_core(folder, threads=1)
    ids = np.random.default_rng(rows).integers(0, 280, rows).tolist()
    passes = {"commit": (ids, []), "preview": ([], ids)}[mode]
    core.time_pass(core.new_state(64), *passes, head=rows)
    read = core.counters
    layers = folder.spec["num_layers"]
    touched = experts.Routing("as it was", (rows,), (read["experts_touched"] / layers,))
    work = replace(counts, routing=touched).work(*map(len, passes), head=rows)
    small = {"A_log", "dt_bias", "conv", "conv_right", "logit_scale", "history_bias", "history_c"}
    vectors = sum(
        size
        for name, size in folder.sizes.items()
        if "norm" in name or name.rpartition(".")[2] in small
    )
    assert work.weights - vectors == pytest.approx(read["bytes_read"], abs=rows)


@pytest.mark.parametrize("kv", ["f32", "f16", "int8"])
def test_state_is_the_cores(packed: Path, counts: Counts, kv: Any) -> None:
    core = open_core(read_folder(packed), threads=1, kv=kv)
    counted = replace(counts, kv=kv, context=300)
    assert counted.state_bytes() == core.needs(300)[0]


def test_states_of_windows_and_blocks(
    tmp_path: Path, tiny_blocks: Callable[..., Any], pack: Callable[..., Path]
) -> None:
    make_gemma(tmp_path / "in")
    export_checkpoint(tmp_path / "in", tmp_path / "gemma", recipe="int8")
    for folder in (tmp_path / "gemma", pack(tiny_blocks("llada2"), "int8")):
        core, model = open_core(read_folder(folder), threads=1), describe(folder, "int8")
        short, long = (Counts(model, experts.NO_EXPERTS, n) for n in (64, 4000))
        assert short.state_bytes() == core.needs(64)[0]
        per_token = (long.state_bytes() - short.state_bytes()) / (4000 - 64)
        windowed = any(model.spec.get("windows") or [0])
        assert (long.state_read() < 4000 * per_token) == windowed == (folder.name == "gemma")


@pytest.mark.parametrize(("many", "top_k"), [(16, 2), (256, 8)])
def test_expected_experts_against_a_simulation(many: int, top_k: int) -> None:
    rng, rows, trials = np.random.default_rng(0), 24, 200
    common = experts.CORRELATED
    for routing, share in ((experts.independent, 0.0), (experts.correlated, common)):
        logits = np.sqrt(1 - share) * rng.standard_normal((trials, rows, many))
        logits += np.sqrt(share) * rng.standard_normal((trials, 1, many))
        chosen = np.argpartition(-logits, top_k, axis=-1)[..., :top_k].reshape(trials, -1)
        found = np.mean([len(np.unique(row)) for row in chosen])
        assert routing(many, top_k).distinct(rows) == pytest.approx(found, rel=0.04)
        assert routing(many, top_k).distinct(1) == pytest.approx(top_k, rel=0.01)
    alone, alike = experts.correlated(many, top_k, 0.0), experts.correlated(many, top_k, 0.999)
    assert alone.distinct(rows) == pytest.approx(experts.independent(many, top_k).distinct(rows))
    assert alike.distinct(rows) < 1.5 * top_k


def test_limits_of_experts() -> None:
    routing = experts.Routing("made up", (1, 32), (8.0, 70.0))
    assert experts.limited(routing, 32, FREE, 8) == 70
    assert experts.limited(routing, 32, (48, 0.0), 8) == 48
    assert experts.limited(routing, 32, (0, 0.4), 8) == 28
    assert experts.limited(routing, 1, (0, 0.4), 8) == 8
    assert experts.limited(experts.NO_EXPERTS, 32, (0, 0.4), 0) == 0


def test_measured_routing_is_what_the_core_touches(packed: Path) -> None:
    folder = read_folder(packed)
    routing = experts.measured(open_core(folder, threads=1), folder)
    assert routing.distinct(1) == 2
    assert 2 < routing.distinct(8) <= routing.distinct(64) <= PACKED


# A row costs a second, a pass two more; a row of the head a tenth.
COSTS = Costs((1, 64), (3.0, 66.0), (3.0, 66.0), (0.1, 6.4))


@pytest.mark.parametrize("fused", [True, False])
def test_break_even_by_hand(fused: bool) -> None:
    """A token takes 3.1. Blocks of 8: previews 10 and .45 of the head; the commit 8 rows more, or a
    pass of 10."""
    assert floors.autoregressive_seconds(COSTS) == pytest.approx(3.1)
    token, preview, commit = 8 * 3.1, 10.45, 8.0 if fused else 10.0
    steps = (token - commit) / preview
    even = floors.break_even(COSTS, 8, fused=fused)
    assert even == pytest.approx(8 / (steps if fused else steps + 1))
    assert floors.block_seconds(COSTS, 8, steps, fused=fused) == pytest.approx(token)
    (rate, speed) = floors.curve(COSTS, 8, fused=fused)[0]
    assert rate == 1 and speed < 1 / 3.1
    slow = replace(COSTS, free=(3.0, 660.0), restricted=(3.0, 660.0))
    assert floors.break_even(slow, 8, fused=fused) is None


def test_floors_by_hand(counts: Counts) -> None:
    work = counts.work(4, 0)
    assert FAST.seconds(work.operations, work.nbytes) == max(
        work.operations / 1e12, work.nbytes / 1e11
    )
    found = floors.costs(counts, FAST, 64, (0, 0.4))
    for n in (1, 8, 64):
        done, limited = counts.work(n, 0), counts.work(0, n, limit=(0, 0.4))
        at = found.rows.index(n)
        assert found.free[at] == FAST.seconds(done.operations, done.nbytes)
        assert found.restricted[at] == FAST.seconds(limited.operations, limited.nbytes)
        head = n * counts.head_operations, counts.head_bytes
        assert found.head[at] == FAST.seconds(*head)
    assert FAST.bound(1e12, 1e10) == "computing" and FAST.bound(1e10, 1e10) == "reading"
    half = FAST.reaching(0.5, 0.25)
    assert half.seconds(0, 1e11) == 2 * FAST.seconds(0, 1e11)
    assert half.seconds(1e12, 0) == 4 * FAST.seconds(1e12, 0)


def test_the_release_fits_where_it_should() -> None:
    """Clover-35B-A3B at int4: 20.8 GB."""
    model = describe_shape("full", "int4")
    assert model.nbytes == pytest.approx(20.8e9, rel=0.005)
    counted = Counts(model, experts.independent(256, 8), 4096)
    found = {name: floors.fit(counted, find(name)) for name in DEVICES}
    assert found["jetson-agx-orin-32gb"].verdict == found["apple-m4-pro"].verdict == "resident"
    assert found["jetson-orin-nx-16gb"].verdict == "pages experts"
    assert found["jetson-orin-nano-4gb"].verdict == "does not fit"
    paged = found["jetson-orin-nx-16gb"]
    kept = paged.dense + paged.state + paged.resident * (paged.weights - paged.dense)
    assert kept == pytest.approx(paged.usable)
    assert paged.missed == pytest.approx((1 - paged.resident) * 8 * counted.expert)
    # 2.94 GB a token, weights and state, at 204.8 GB/s
    token = counted.work(1, 0, head=1)
    assert find("jetson-agx-orin-64gb").seconds(token.operations, token.nbytes) == pytest.approx(
        0.0144, rel=0.02
    )


def _choice(model: Any, device: Device, quality: str, **how: Any) -> Any:
    settings = Settings.of(model.spec, model.generation, quality)
    counted = Counts(model, how.pop("routing", experts.correlated(256, 8)), 4096)
    table = floors.cost_table(counted, device, 2 * max(settings.widths), settings.limits)
    rates = dict.fromkeys(settings.widths, 1.0) | how.pop("rates", {})
    return predicted(settings, table, acceptance.stated(settings, 4.0, rates))[0]


def test_choices_follow_the_device() -> None:
    """Where reading is what takes time, wide blocks win; the more bandwidth a processor has for its
    arithmetic, the narrower they are, until a token at a time is best."""
    model = describe_shape("full", "int4")
    rates = {4: 0.3, 8: 0.5, 16: 0.75}  # of what 32 accept
    widths = [
        _choice(model, replace(FAST, bandwidth=bandwidth), "exact", rates=rates).block_length
        for bandwidth in (4, 40, 120, 1200)
    ]
    assert widths == sorted(widths, reverse=True)
    assert (widths[0], widths[-1]) == (32, 1)
    bound = _choice(model, replace(FAST, bandwidth=4), "balanced", rates=rates)
    assert bound.skip_rows and bound.coreset_share == 0.4
    spread = experts.independent(256, 8)
    fast = _choice(model, replace(FAST, bandwidth=4), "fast", rates=rates, routing=spread)
    assert fast.coreset_size == 48


def test_stated_acceptance() -> None:
    settings = Settings(("diffusion", "ar", "speculative"), (8, 32), ((False, 0),), (FREE,), True)
    traces = acceptance.stated(settings, 4.0, {8: 0.75, 32: 1.0})
    assert set(traces) == {("diffusion", 8), ("diffusion", 32), ("ar", 1)}
    for width, rate in ((8, 3.0), (32, 4.0)):
        trace = traces["diffusion", width]
        (text,) = trace.texts
        assert all(sum(block) == width for block in text)
        assert trace.tokens / sum(map(len, text)) == pytest.approx(rate, rel=0.02)
    apart = acceptance.stated(replace(settings, fused=False), 4.0, {8: 1.0, 32: 1.0})
    (text,) = apart["diffusion", 32].texts
    assert {len(block) for block in text} == {7}  # and the commit: 32 tokens in 8 forwards


def test_a_configuration_is_enough(tmp_path: Path, tiny: Callable[..., Any]) -> None:
    """The same plan as from the whole checkpoint; other families need headers."""
    source = tiny().folder
    (tmp_path / "config.json").write_text((source / "config.json").read_text())
    whole = describe(source, "int4")
    for path in (tmp_path, tmp_path / "config.json"):
        assert describe(path, "int4").sizes == whole.sizes
    for change, named in (
        (("model_type", "llama"), "model_type"),
        (("head_dim", None), "head_dim"),
    ):
        config = json.loads((source / "config.json").read_text())
        config.pop(change[0]) if change[1] is None else config.update([change])
        (tmp_path / "config.json").write_text(json.dumps(config))
        with pytest.raises(CheckpointError, match=named):
            describe(tmp_path, "int4")


def test_packed_and_planned_agree(packed: Path, tiny: Callable[..., Any]) -> None:
    planned, found = describe(tiny().folder, "int4"), describe(packed, "ignored")
    assert planned.sizes == found.sizes and planned.entries == found.entries
    assert found.recipe == "int4" and found.folder is not None and planned.folder is None


def test_graphs_are_not_planned(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = replace(read_folder(packed), entries={}, sizes={}, graphs={"commit": "commit.onnx"})
    monkeypatch.setattr(models, "read_folder", lambda _: graphs)
    with pytest.raises(UnsupportedModelError, match="ONNX graphs; plan the packed folder"):
        describe(packed, "int4")


def test_unknown_device_names_the_known_ones() -> None:
    with pytest.raises(ArgumentError, match=r"'jetson' is not known.*measured, .*raspberry-pi-5"):
        find("jetson")
    assert len(DEVICES) == len({device.name for device in DEVICES.values()})
    assert all(device.usable < device.memory for device in DEVICES.values())


def test_command(packed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [str(packed), "--device", "jetson-orin-nano-8gb", "apple-m1"]
    assert roofline.main([*command, "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["device"]["name"] for row in found["devices"]] == command[2:]
    cases = [case.name for case in cases_of(read_folder(packed).spec, {})]
    assert [row["pass"] for row in found["passes"]] == cases
    assert roofline.main(command) == 0
    assert "break-even, 32 wide" in capsys.readouterr().out
    assert roofline.main([*command[:2], "abacus"]) == 1
    assert "device: 'abacus' is not known" in capsys.readouterr().err
    assert roofline.main(["--devices"]) == 0
    assert "raspberry-pi-5-8gb" in capsys.readouterr().out
    assert roofline.main(["--shape", "slice", "--device", "apple-m1", "--routing", "measured"]) == 1
    assert "routing: 'measured': shape slice is not packed" in capsys.readouterr().err


def test_check_times_the_passes(
    packed: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ceilings, "READ_BYTES", 4 << 20)
    ceilings.stream.cache_clear()
    how = ["--check", "--context", "40", "--threads", "1", "--acceptance", "measured", "-o", "json"]
    assert roofline.main([str(packed), "--routing", "measured", *how]) == 0
    rows = json.loads(capsys.readouterr().out)["check"]
    assert {row["pass"] for row in rows} >= {"token", "preview of 8", "commit of 32"}
    assert all(row["ms"] > 0 and row["times_floor_touched"] > 0 for row in rows)
    assert rows[0]["experts"] == rows[0]["experts_assumed"] == 2
    ceilings.stream.cache_clear()


@pytest.mark.parametrize("kind", ["ar", "block", "full"])
def test_other_kinds_of_models(
    kind: str,
    tiny_transformer: Callable[..., Any],
    tiny_blocks: Callable[..., Any],
    tiny_full_attention: Callable[..., Any],
    pack: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    makers = {"ar": tiny_transformer, "block": tiny_blocks, "full": tiny_full_attention}
    names = {"ar": "llama", "block": "sdar", "full": "llada"}
    folder = pack(makers[kind](names[kind]), "int8")
    assert roofline.main([str(folder), "--device", "apple-m1", "-o", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["devices"]
    if kind == "full":
        assert "plan" not in row and all("preview" in floor["pass"] for floor in row["floors"])
    else:
        assert row["plan"]["options"]["mode"] == ("ar" if kind == "ar" else "diffusion")
        assert len(row["break_even"]) == (kind == "block")
    assert roofline.main([str(folder), "--device", "apple-m1"]) == 0


def test_the_page_shows_what_the_command_prints() -> None:
    """But for the choices, whose acceptance is measured anew."""
    page = (Path(__file__).parents[2] / "docs" / "planning.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^`python benches/roofline.py (--shape .*)`", page, re.MULTILINE)
    found = roofline.plan(roofline.options_of(command.split()))
    assert tables.passes(found["passes"]) in page
    assert tables.floors(found["devices"]) in page


def test_picture(packed: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib comes with the `plot` extra")
    path = tmp_path / "plan.png"
    how = ["--device", "apple-m1", "jetson-orin-nano-8gb", "--plot", str(path)]
    assert roofline.main([str(packed), *how]) == 0
    assert path.read_bytes().startswith(b"\x89PNG")
