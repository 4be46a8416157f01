"""Importing does nothing but import."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

_PROBE = """
import json, os, socket, sys, threading, time
def refuse(*_, **__): raise SystemExit("a connection at import")
socket.socket.connect = socket.socket.bind = socket.getaddrinfo = socket.create_connection = refuse
before, folder = dict(os.environ), os.getcwd()
started = time.perf_counter()
import clover_edge
seconds = time.perf_counter() - started
print(json.dumps({
    "seconds": seconds,
    "environment": dict(os.environ) == before,
    "folder": os.getcwd() == folder,
    "threads": threading.active_count(),
    "heavy": sorted({"numpy", "tokenizers", "jinja2", "clover_edge._core"} & set(sys.modules)),
    "files": os.listdir("."),
}))
"""


def test_import_has_no_side_effect(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", _PROBE], cwd=tmp_path, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    print(f"import clover_edge: {found['seconds']:.3f} s")  # judged by benches/must_hold.py
    assert found["environment"] and found["folder"]
    assert (found["threads"], found["heavy"], found["files"]) == (1, [], [])
    assert run.stderr == ""


def test_public_names() -> None:
    import clover_edge

    for name in clover_edge.__all__:
        assert getattr(clover_edge, name) is not None
    assert set(dir(clover_edge)) == set(clover_edge.__all__)
    with pytest.raises(AttributeError, match="no attribute 'absent'"):
        _ = clover_edge.absent
