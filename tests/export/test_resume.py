"""Exports that were interrupted, and what goes on from there."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from clover_edge.errors import CheckpointError, ExportError
from clover_edge.export import export_checkpoint, weights
from clover_edge.export.packed_file import PackedWriter
from clover_edge.export.partial import unfinished

OPTIONS: dict[str, Any] = {"recipe": "int4", "shard_bytes": 100_000}  # several files


@pytest.fixture(autouse=True)
def save_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "_SAVE_BYTES", 0)


def same_folders(a: Path, b: Path) -> None:
    assert sorted(p.name for p in a.iterdir()) == sorted(p.name for p in b.iterdir())
    for path in a.iterdir():
        assert path.read_bytes() == (b / path.name).read_bytes(), path.name


def stop_after(monkeypatch: pytest.MonkeyPatch, writes: int, error: BaseException) -> None:
    """The write behind `writes` others raises, half of its bytes being in the file."""
    left, write = [writes], PackedWriter.write

    def failing(self: PackedWriter, name: str, data: memoryview | bytes) -> None:
        if left[0] == 0:
            write(self, name, bytes(data)[: len(data) // 2])
            raise error
        left[0] -= 1
        write(self, name, data)

    monkeypatch.setattr(PackedWriter, "write", failing)


def count_writes(monkeypatch: pytest.MonkeyPatch, source: Path, out: Path) -> int:
    counted, write = [0], PackedWriter.write
    with monkeypatch.context() as patched:

        def counting(self: PackedWriter, name: str, data: memoryview | bytes) -> None:
            counted[0] += 1
            write(self, name, data)

        patched.setattr(PackedWriter, "write", counting)
        export_checkpoint(source, out, **OPTIONS)
    return counted[0]


def test_any_moment(tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped at every 23rd write: nothing visible is there, and resuming gives the same."""
    source, out = tiny().folder, tmp_path / "out"
    writes = count_writes(monkeypatch, source, tmp_path / "whole")
    for moment in range(0, writes, 23):
        with monkeypatch.context() as patched:
            stop_after(patched, moment, KeyboardInterrupt())
            with pytest.raises(KeyboardInterrupt):
                export_checkpoint(source, out, **OPTIONS)
        assert not out.exists()
        export_checkpoint(source, out, **OPTIONS, resume=True)
        same_folders(tmp_path / "whole", out)
        assert not unfinished(out).exists()
        shutil.rmtree(out)


def test_stopped_twice(tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, out = tiny().folder, tmp_path / "out"
    export_checkpoint(source, tmp_path / "whole", **OPTIONS, method="gptq", calib_tokens=64)
    for writes in (60, 40):
        with monkeypatch.context() as patched:
            stop_after(patched, writes, KeyboardInterrupt())
            with pytest.raises(KeyboardInterrupt):
                export_checkpoint(
                    source, out, **OPTIONS, method="gptq", calib_tokens=64, resume=True
                )
    export_checkpoint(source, out, **OPTIONS, method="gptq", calib_tokens=64, resume=True)
    same_folders(tmp_path / "whole", out)


def test_a_full_disk_keeps_what_is_done(
    tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = tiny().folder, tmp_path / "out"
    with monkeypatch.context() as patched:
        stop_after(patched, 50, OSError(28, "No space left on device"))
        with pytest.raises(ExportError, match="No space left"):
            export_checkpoint(source, out, **OPTIONS)
    assert not out.exists()
    export_checkpoint(source, out, **OPTIONS, resume=True)
    export_checkpoint(source, tmp_path / "whole", **OPTIONS)
    same_folders(tmp_path / "whole", out)


def test_a_refused_weight_leaves_nothing(
    tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_after(monkeypatch, 50, CheckpointError("file", "tensor", "is bad"))
    with pytest.raises(CheckpointError):
        export_checkpoint(tiny().folder, tmp_path / "out", **OPTIONS)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("change", ["recipe", "method", "source", "config"])
def test_another_export_is_not_continued(
    tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    shutil.copytree(tiny().folder, source)
    with monkeypatch.context() as patched:
        stop_after(patched, 50, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            export_checkpoint(source, out, **OPTIONS)
    options = dict(OPTIONS)
    if change == "recipe":
        options["recipe"] = "int8"
    elif change == "method":
        options["method"] = "hqq"
    elif change == "source":
        os.utime(next(source.glob("*.safetensors")), ns=(1, 1))
    else:
        path = source / "config.json"
        path.write_text(path.read_text() + " ")
    with pytest.raises(ExportError, match="was begun from another"):
        export_checkpoint(source, out, **options, resume=True)
    assert unfinished(out).exists()  # and is not lost by asking
    export_checkpoint(source, out, **options)
    assert out.exists() and not unfinished(out).exists()


@pytest.mark.parametrize("journal", [b"", b"{}", b"[1]", b'{"tensors": 3}'])
def test_a_broken_journal_begins_again(tiny: Any, tmp_path: Path, journal: bytes) -> None:
    out = tmp_path / "out"
    unfinished(out).mkdir()
    (unfinished(out) / "journal.json").write_bytes(journal)
    (unfinished(out) / "left.safetensors").write_bytes(b"rest")
    export_checkpoint(tiny().folder, out, **OPTIONS, resume=True)
    export_checkpoint(tiny().folder, tmp_path / "whole", **OPTIONS)
    same_folders(tmp_path / "whole", out)


def test_nothing_to_resume(tiny: Any, tmp_path: Path) -> None:
    export_checkpoint(tiny().folder, tmp_path / "out", **OPTIONS, resume=True)
    assert (tmp_path / "out" / "config.json").exists()


def test_one_export_at_a_time(tiny: Any, tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    source, out = tiny().folder, tmp_path / "out"

    def again(*_: Any) -> None:
        with pytest.raises(ExportError, match="another export"):
            export_checkpoint(source, out, **OPTIONS)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export_checkpoint(source, out, **OPTIONS, progress=again)


def test_killed(tiny: Any, tmp_path: Path) -> None:
    """No chance to clean up: the process is gone at once, somewhere in the middle."""
    source, out = tiny().folder, tmp_path / "out"
    slow = (
        "import sys, time\n"
        "from clover_edge.export import export_checkpoint, weights\n"
        "weights._SAVE_BYTES = 0\n"
        "def wait(done, total, name):\n"
        "    print(name, flush=True)\n"
        "    time.sleep(0.02)\n"
        "export_checkpoint(sys.argv[1], sys.argv[2], recipe='int4', shard_bytes=100_000,\n"
        "                  progress=wait)\n"
    )
    command = [sys.executable, "-c", slow, str(source), str(out)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("layers.1"):
                break
        time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
    assert not out.exists() and unfinished(out).exists()
    export_checkpoint(source, out, **OPTIONS, resume=True)
    export_checkpoint(source, tmp_path / "whole", **OPTIONS)
    same_folders(tmp_path / "whole", out)
