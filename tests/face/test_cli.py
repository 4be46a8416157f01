"""The command line as a shell sees it: stdout is data, stderr is progress, exit codes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chat_templates import XML

import clover_edge

COMMAND = [sys.executable, "-m", "clover_edge.cli.main"]


Done = subprocess.CompletedProcess[bytes]


def run(*arguments: Any, stdin: bytes = b"", **environment: str) -> Done:
    return subprocess.run(
        [*COMMAND, *map(os.fsencode, map(str, arguments))],
        input=stdin,
        capture_output=True,
        env={**os.environ, "PYTHONUTF8": "1", **environment},
        timeout=120,
    )


def failed(done: Done, code: int, *words: str) -> None:
    """One line on stderr that holds the words, nothing on stdout."""
    error = done.stderr.decode()
    assert done.returncode == code, error
    assert done.stdout == b""
    assert error.startswith("clover-edge: error: ")
    assert error.count("\n") == 1
    for word in words:
        assert word in error, error


def test_run_in_a_pipe(model: clover_edge.Model, packed: Path) -> None:
    want = model.chat([{"role": "user", "content": "Hello"}], max_new_tokens=40).text
    done = run("run", packed, "Hello", "--max-new-tokens", 40, "--show")
    assert done.returncode == 0
    assert done.stdout.decode() == want + ("" if want.endswith("\n") else "\n")
    assert b"\x1b" not in done.stdout + done.stderr
    assert b"tokens per forward" in done.stderr
    assert run("run", packed, "Hello", "--max-new-tokens", 40, "-q").stderr == b""


def test_run_options(model: clover_edge.Model, packed: Path) -> None:
    options: dict[str, Any] = {
        "max_new_tokens": 24,
        "block_length": 8,
        "threshold": 0.2,
        "steps": 5,
        "temperature": 0.7,
        "top_k": 50,
        "top_p": 0.9,
        "seed": 11,
        "presence_penalty": 0.1,
        "frequency_penalty": 0.2,
        "repetition_penalty": 1.1,
        "coreset_size": 8,
        "mode": "diffusion",
    }
    flags = [str(x) for name, v in options.items() for x in ("--" + name.replace("_", "-"), v)]
    done = run("run", packed, "Hello", "--raw", "--json", "--threads", 1, *flags)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    want = model.generate("Hello", **options)
    assert (result["text"], tuple(result["token_ids"])) == (want.text, want.token_ids)
    assert result["finish_reason"] == want.finish_reason
    assert result["counters"]["forward_passes"] == want.counters.forward_passes


def test_run_stop(model: clover_edge.Model, packed: Path) -> None:
    free = model.generate("Hello", max_new_tokens=40).text
    done = run("run", packed, "Hello", "--raw", "--max-new-tokens", 40, "--stop", free[8:11], "-q")
    assert done.stdout.decode() == free[: free.index(free[8:11])] + "\n"


def test_narrow_caches(packed: Path) -> None:
    done = run("run", packed, "Hello", "--raw", "--max-new-tokens", 4, "--kv", "int8")
    assert done.returncode == 0, done.stderr
    refused = run("run", packed, "Hello", "--kv", "int4")
    assert refused.returncode == 2 and b"--kv" in refused.stderr and refused.stdout == b""


def test_the_prompt_may_follow_options(packed: Path) -> None:
    flags = ("--max-new-tokens", 8, "--raw", "-q")
    first = run("run", packed, "The cat", *flags)
    assert first.returncode == 0 and first.stdout
    assert run("run", packed, *flags, "The cat").stdout == first.stdout
    assert run("run", packed, *flags, "-", stdin=b"The cat").stdout == first.stdout
    for arguments in ((), ("a", "--file", "b")):
        failed(run("run", packed, *flags, *arguments), 2, "PROMPT, --file: one of them is needed")
    assert run("run", packed, *flags, "a", "b").returncode == 2


def test_prompt_from_stdin(model: clover_edge.Model, packed: Path) -> None:
    want = model.generate("Grüße\n", max_new_tokens=8).text
    done = run("run", packed, "-", "--raw", "--max-new-tokens", 8, stdin="Grüße\n".encode())
    assert done.stdout.decode().rstrip("\n") == want.rstrip("\n")


def test_message_from_stdin_ends_before_its_line_end(packed: Path) -> None:
    texts = [
        run("run", packed, prompt, "--max-new-tokens", 8, "-q", stdin=stdin).stdout
        for prompt, stdin in (("Hello", b""), ("-", b"Hello\n"), ("-", b"Hello\r\n"))
    ]
    assert texts[0] == texts[1] == texts[2] != b""


def test_prompt_from_a_file(model: clover_edge.Model, packed: Path, tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_bytes("Grüße\n".encode())
    flags = ("--file", tmp_path / "prompt.txt", "--max-new-tokens", 8, "-q")
    want = run("run", packed, "-", "--max-new-tokens", 8, stdin="Grüße\n".encode())
    assert run("run", packed, *flags).stdout == want.stdout
    want = run("run", packed, "-", "--raw", "--max-new-tokens", 8, stdin="Grüße\n".encode())
    assert run("run", packed, *flags, "--raw").stdout == want.stdout
    failed(run("run", packed, "--file", tmp_path / "none"), 2, "file: ", "No such file")
    (tmp_path / "prompt.txt").write_bytes(b"\xff")
    failed(run("run", packed, *flags), 2, "prompt.txt: is not UTF-8 at byte 0 (0xff)")


def test_tools_and_thinking(packed: Path, tmp_path: Path) -> None:
    """Handed to the template; left out of stdout, but for the answer's text and calls."""
    copy, tools = tmp_path / "model", tmp_path / "tools.json"
    shutil.copytree(packed, copy)
    (copy / "chat_template.jinja").write_text(XML)
    tools.write_text('[{"name": "add"}]')
    flags = ("--max-new-tokens", 8, "--json", "-q", "--tools", tools)
    messages = [{"role": "user", "content": "U"}]
    with clover_edge.load(copy, threads=2) as model:
        for flag, thinking in (("--thinking", True), ("--no-thinking", False)):
            options = {"tools": [{"name": "add"}], "thinking": thinking}
            want = model.chat(messages, max_new_tokens=8, **options)
            found = json.loads(run("run", copy, "U", flag, *flags).stdout)
            assert (found["text"], found["thinking"]) == (want.text, want.thinking)
            assert tuple(found["token_ids"]) == want.token_ids
            assert bool(found["thinking"]) == thinking
    assert run("run", copy, "U", "--thinking", *flags[:2], "-q").stdout == b""
    failed(run("run", packed, "U", *flags), 2, "tools: ", "has no place for them")
    failed(run("run", packed, "U", "--raw", "--no-thinking"), 2, "--thinking: needs a chat")
    tools.write_text("[{}]")
    failed(run("run", copy, "U", *flags), 2, "tools.json: tools[0].name: None")


def test_a_system_message(model: clover_edge.Model, packed: Path) -> None:
    messages = [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]
    want = model.chat(messages, max_new_tokens=8)
    done = run("run", packed, "U", "--system", "S", "--max-new-tokens", 8, "--json", "-q")
    assert tuple(json.loads(done.stdout)["token_ids"]) == want.token_ids
    failed(run("run", packed, "U", "--system", "S", "--raw"), 2, "--system")


def test_a_stdout_that_is_no_unicode(packed: Path) -> None:
    flags = ["--raw", "--max-new-tokens", 96, "--temperature", 1, "--threshold", 0.05]
    done = run("run", packed, "x", *flags, PYTHONUTF8="0", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    done = run("run", packed, "x", *flags, "--json", PYTHONUTF8="0", PYTHONIOENCODING="ascii")
    assert json.loads(done.stdout)["text"]


def test_wrong_arguments(packed: Path) -> None:
    failed(run("run", packed, "x", "--threshold", 7), 2, "threshold: 7.0")
    failed(run("run", packed, "x", "--max-new-tokens", 100_000), 2, "positions")
    failed(run("run", packed, "", "--raw"), 2, "prompt: is empty")
    failed(run("run", packed, "a<|mask|>"), 2, "mask token")
    failed(run("run", packed, "x", "--isa", "mmx"), 1, "mmx")
    failed(run("run", packed, "x", "--threads", 0), 2, "threads: 0")
    failed(run("run", packed, "-", stdin=b"ab\xff"), 2, "stdin: is not UTF-8 at byte 2 (0xff)")
    failed(run("run", packed, b"ab\xff".decode(errors="surrogateescape")), 2, "not valid Unicode")


def test_wrong_usage(packed: Path) -> None:
    for arguments in (
        [],
        ["fly"],
        ["run"],
        ["run", packed, "x", "--top-k", "many"],
        ["run", packed, "x", "--chat", "--raw"],
        ["demo", "--recipe", "int1"],
    ):
        done = run(*arguments)
        assert done.returncode == 2
        assert done.stdout == b""
        assert done.stderr.startswith(b"usage: clover-edge")


def test_a_model_that_is_none(tmp_path: Path) -> None:
    for command in (["run", tmp_path / "none", "x"], ["inspect", tmp_path / "none"]):
        failed(run(*command), 1, "none: folder: does not exist")
    (tmp_path / "config.json").write_text("<html>")
    failed(run("inspect", tmp_path), 1, "config.json: file: is an HTML")


def test_inspect(packed: Path) -> None:
    done = run("inspect", packed, "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert (facts["recipe"], facts["spec"]["num_layers"]) == ("int4", 4)
    files = [(packed / name).stat().st_size for name in facts["files"]]
    assert 0 < sum(files) - facts["bytes"] < 64 * 1024  # headers and padding
    done = run("inspect", packed)
    assert done.returncode == 0, done.stderr
    table = done.stdout.decode()
    for word in ("recipe int4", "3 DeltaNet, 1 attention", "experts", "int4 g32", "int8 g32"):
        assert word in table
    for row in facts["tensors"]:
        assert f"{row['bytes']:,}" in table


@pytest.mark.parametrize(
    ("recipe", "experts", "common"),
    [
        ("int4-small", "int3 g64", "int4 g32"),
        ("codebook4", "codebook4 g32", "int8 g32"),
        ("codebook4-all", "codebook4 g32", "codebook4 g32"),
    ],
)
def test_inspect_names_every_scheme(
    tiny: Callable[..., Any], pack: Callable[..., Path], recipe: str, experts: str, common: str
) -> None:
    done = run("inspect", pack(tiny(hidden=128), recipe), "--json")
    assert done.returncode == 0, done.stderr
    schemes = {row["class"]: row["schemes"] for row in json.loads(done.stdout)["tensors"]}
    assert schemes["experts"] == [experts]
    for name in ("attention", "deltanet", "shared expert", "embedding", "head"):
        assert schemes[name] == [common]


def test_devices() -> None:
    facts = json.loads(run("devices", "--json").stdout)
    assert facts["isas"][0] == "reference"
    assert facts["threads"] >= 1
    assert ", ".join(facts["isas"]) in run("devices").stdout.decode()


def test_version_and_help() -> None:
    assert run("--version").stdout.decode().split() == ["clover-edge", clover_edge.__version__]
    done = run("--help")
    assert done.returncode == 0
    for command in ("demo", "run", "inspect", "devices"):
        assert command in done.stdout.decode()


def test_ctrl_c(packed: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "run", packed, "x", "--raw", "--threshold", "1", "--max-new-tokens", "480"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "CLOVER_ISA": "reference"},
        # a job in the background inherits "ignore"
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout and process.stderr
    assert process.stdout.read(1)  # generation is under way
    time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130, error
    assert error == b"\nclover-edge: interrupted\n"


def test_a_reader_that_leaves(packed: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "run", packed, "x", "--raw", "--max-new-tokens", "256", "-q"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout and process.stderr
    process.stdout.read(1)
    process.stdout.close()
    error = process.stderr.read()
    assert process.wait(timeout=60) == 0
    assert error == b""
    process.stderr.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk(packed: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*COMMAND, "run", packed, "x", "--raw", "--max-new-tokens", "8", "-q"],
            stdout=full,
            stderr=subprocess.PIPE,
        )
    assert done.returncode == 1
    assert b"clover-edge: error: " in done.stderr
