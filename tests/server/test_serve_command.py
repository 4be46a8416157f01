"""`clover-edge serve` as a process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from clover_edge.cli.main import main

Start = Callable[..., tuple["subprocess.Popen[str]", str]]


@pytest.fixture
def start(demo_folder: Path) -> Iterator[Start]:
    """Starts the command; gives the process and its address."""
    with ExitStack() as stack:

        def begin(*arguments: str, **environment: str) -> tuple[subprocess.Popen[str], str]:
            command = [sys.executable, "-m", "clover_edge.cli.main", "serve", str(demo_folder)]
            process = subprocess.Popen(
                [*command, "--threads", "1", *arguments],
                env={**os.environ, "CLOVER_PORT": "0", **environment},
                stderr=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            assert process.stderr is not None
            for line in process.stderr:
                if found := re.search(r"at (http://\S+)", line):
                    return process, found[1]
            raise AssertionError(f"ended with {process.wait()}")

        yield begin


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serves_until_a_signal(start: Start, number: signal.Signals) -> None:
    process, url = start("--name", "clover")
    body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
    assert httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60).status_code == 200
    process.send_signal(number)
    out, log = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "")
    assert re.search(r"^\S+ 127\.0\.0\.1 POST /v1/chat/completions 200 .*finish=", log, re.M)
    assert "Traceback" not in log and "hello" not in log


def test_every_flag_is_also_a_variable(start: Start) -> None:
    variables = {"CLOVER_API_KEY": "k", "CLOVER_NAME": "mine", "CLOVER_QUEUE": "3"}
    variables |= {"CLOVER_BLOCK_LENGTH": "4", "CLOVER_QUIET": "1", "CLOVER_MAX_TOKENS": "9"}
    process, url = start("--queue", "2", **variables)
    with httpx.Client(base_url=url, headers={"Authorization": "Bearer k"}, timeout=60) as http:
        assert httpx.get(f"{url}/v1/models").status_code == 401
        assert http.get("/v1/models").json()["data"][0]["id"] == "mine"
        assert http.get("/health").json()["queue"] == 2  # a flag is above its variable
        body = {"prompt": "hello", "stream": True, "clover": {"progress": True}, "max_tokens": 8}
        text = http.post("/v1/completions", json=body).text
        assert '"states":["masked","masked","masked","masked"]' in text
        assert http.post("/v1/completions", json={**body, "max_tokens": 10}).status_code == 400
    process.terminate()
    assert process.communicate(timeout=60)[1] == ""


@pytest.mark.parametrize(
    ("variable", "value"),
    [("CLOVER_PORT", "http"), ("CLOVER_KV", "f64"), ("CLOVER_QUIET", "perhaps")],
)
def test_a_wrong_variable_is_named(
    demo_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    variable: str,
    value: str,
) -> None:
    monkeypatch.setenv(variable, value)
    assert main(["serve", str(demo_folder)]) == 2
    assert f"error: {variable}: '{value}'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--port", "70000"], "port: 70000"),
        (["--time-limit", "0"], "time_limit: 0.0"),
        (["--queue", "-1"], "queue: -1"),
        (["--host", "no such host"], "host: 'no such host'"),
    ],
)
def test_wrong_settings(
    demo_folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert main(["serve", str(demo_folder), *arguments]) == 2
    assert f"error: {said}" in capsys.readouterr().err


def test_a_port_that_is_taken(
    demo_folder: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    port = url.rpartition(":")[2]
    assert main(["serve", str(demo_folder), "--port", port]) == 2
    assert f"port {port}: " in capsys.readouterr().err


def test_without_the_extra_it_is_named(
    demo_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith("clover_edge.server")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["serve", str(demo_folder)]) == 2
    assert "uvicorn: pip install 'clover-edge[server]'" in capsys.readouterr().err


def test_bound_to_others_without_a_key_warns(start: Start) -> None:
    command = [sys.executable, "-m", "clover_edge.cli.main", "serve", "no-such-folder"]
    run = subprocess.run([*command, "--host", "0.0.0.0"], capture_output=True, text=True)
    assert run.returncode == 1
    assert "warning: bound to 0.0.0.0 without --api-key" in run.stderr
