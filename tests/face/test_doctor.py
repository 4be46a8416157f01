"""What a machine offers, and whether a model fits."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from clover_edge import OutOfMemoryError, UnsupportedDeviceError, _core, machine
from clover_edge.cli.main import main
from clover_edge.loader import open_core, read_folder
from clover_edge.synthetic import synthetic_ids


def doctor(capsys: pytest.CaptureFixture[str], *arguments: Any) -> tuple[int, str]:
    code = main(["doctor", *map(str, arguments)])
    return code, capsys.readouterr().out


@pytest.fixture(autouse=True)
def unforced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLOVER_ISA", raising=False)


def test_the_machine(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = doctor(capsys, "--json")
    found = json.loads(text)
    assert code == 0 and "model" not in found
    assert found["isa"]["chosen"] == _core.available_isas()[-1]
    runnable = [name for name, lacks in found["isa"]["lacks"].items() if not lacks]
    assert runnable == _core.available_isas()
    assert found["threads"]["threads"] == _core.default_threads()
    assert found["threads"]["allowed"] == len(os.sched_getaffinity(0))
    assert 0 < found["memory"]["available"] <= found["memory"]["total"]
    assert found["cuda"].startswith("not built")
    assert found["versions"]["numpy"] and "llguidance" in found["versions"]
    lines = doctor(capsys)[1]
    for word in (found["isa"]["chosen"], found["threads"]["why"], found["cpu"]["name"]):
        assert word in lines


def test_an_instruction_set_that_is_forced(
    capsys: pytest.CaptureFixture[str], packed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told as a model would take it, or refuse it."""
    monkeypatch.setenv("CLOVER_ISA", "reference")
    code, text = doctor(capsys)
    assert code == 0 and "instruction set: reference (CLOVER_ISA forces it)" in text
    assert main(["devices"]) == 0
    assert "in use: reference" in capsys.readouterr().out
    lacking = [name for name, lacks in _core.isas().items() if lacks]
    for name in ("mmx", *lacking[:1]):
        monkeypatch.setenv("CLOVER_ISA", name)
        code, text = doctor(capsys, packed)
        assert code == 1 and f"instruction set: none (CLOVER_ISA={name}: " in text
        with pytest.raises(UnsupportedDeviceError):
            open_core(read_folder(packed))


def test_a_model_that_fits(capsys: pytest.CaptureFixture[str], packed: Path) -> None:
    """With the figures that the core itself goes by."""
    code, text = doctor(capsys, packed, "--json", "--context", 100)
    found = json.loads(text)["model"]
    folder = read_folder(packed)
    core = open_core(folder)
    assert code == 0 and found["verdict"] == "fits"
    assert found["weights"] == core.weight_bytes == sum(folder.sizes.values())
    assert 0 < found["dense"] < found["weights"]
    more = core.needs(200)[0] - found["state"]  # of a hundred tokens more
    assert more > 0 and found["state"] - more == core.new_state(100).nbytes  # before any token
    assert found["working"] > 0
    half = json.loads(doctor(capsys, packed, "--json", "--context", 100, "--kv", "f16")[1])["model"]
    assert half["state"] < found["state"]
    assert json.loads(doctor(capsys, packed, "--json")[1])["model"]["context"] == 512
    assert "fits in memory" in doctor(capsys, packed)[1]


@pytest.mark.parametrize(
    ("spare", "verdict", "words", "code"),
    [
        (0, "fits", "fits in memory", 0),
        (-1, "pages experts", "experts are read from disk", 0),
        (None, "does not fit", "does not fit", 1),
    ],
)
def test_a_model_that_hardly_fits(
    spare: int | None,
    verdict: str,
    words: str,
    code: int,
    packed: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = read_folder(packed)
    need = machine.fit(folder, 512)
    memory = need["state"] + need["working"]
    memory += need["dense"] - 1 if spare is None else need["weights"] + spare
    monkeypatch.setattr(_core, "available_memory", lambda: memory)
    assert machine.fit(folder, 512)["verdict"] == verdict
    found, text = doctor(capsys, packed)
    assert found == code and words in text


def test_a_model_whose_weights_alone_are_too_much(
    packed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OutOfMemoryError(2000, 1000)

    monkeypatch.setattr(machine, "open_core", refuse)
    code, text = doctor(capsys, packed)
    assert code == 1
    assert "every pass reads 2.0 kB" in text and "does not fit (1.0 kB available)" in text


def test_arguments(capsys: pytest.CaptureFixture[str], packed: Path, tmp_path: Path) -> None:
    for context in (0, 513):
        assert main(["doctor", str(packed), "--context", str(context)]) == 2
        assert f"context: {context} is not an integer from 1 to 512" in capsys.readouterr().err
    assert main(["doctor", str(tmp_path / "none")]) == 1


def test_what_threads_come_from() -> None:
    limits = {"allowed": 8, "cores": 4, "quota": 2.5, "threads": 2}
    why = machine.threads_why(limits)
    assert why == "4 physical cores of 8 CPUs allowed, a cgroup quota of 2.5 CPUs"
    why = machine.threads_why({**limits, "allowed": 0, "quota": None})
    assert why == "4 physical cores, no cgroup quota"


def test_synthetic_tokens(packed: Path) -> None:
    spec = read_folder(packed).spec
    ids = synthetic_ids(spec, 2 * spec["valid_vocab"], [7])
    assert ids == synthetic_ids(spec, 2 * spec["valid_vocab"], [7])
    assert not {spec["mask_token_id"], 7} & set(ids)
    assert all(0 <= token_id < spec["valid_vocab"] for token_id in ids) and len(set(ids)) > 100
