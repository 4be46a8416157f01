"""`clover-edge eval` and `clover-export --report` as a shell sees them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Done = subprocess.CompletedProcess[str]


def run(*arguments: Any, module: str = "clover_edge.cli.main") -> Done:
    command = [sys.executable, "-m", module, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def test_markdown_and_json(packed: Path) -> None:
    few = ["eval", packed, "--limit", 2, "--sequence-length", 32]
    page = run(*few)
    assert page.returncode == 0, page.stderr
    assert page.stdout.startswith(f"# Quality of {packed.name}\n") and page.stderr == ""
    facts = run(*few, "--json", "--threads", 1)
    assert facts.stderr == ""
    found = json.loads(facts.stdout)
    assert f"{found['preview']['model']['bits_per_byte']:.4f}" in page.stdout


def test_files_and_text(packed: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.jsonl"
    text.write_text('{"text": "one two three four five six"}\n')
    out = tmp_path / "out"
    done = run("eval", packed, "--against", packed, "--text", text, "--out", out, "--masks", 2)
    assert done.returncode == 0, done.stderr
    assert "KL divergence 0 nats" in done.stdout
    assert (out / "quality.md").read_text().startswith(done.stdout)
    assert f"wrote {out / 'quality.json'}\n" in done.stderr


def test_wrong_arguments(packed: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.jsonl").write_text('{"text": "x"}\n{')
    for arguments, code, words in (
        (["--limit", 0], 2, "limit: 0"),
        (["--text", tmp_path / "absent.txt"], 2, "absent.txt: No such file"),
        (["--text", tmp_path / "broken.jsonl"], 2, "line 2: is not valid JSON"),
        (["--against", tmp_path / "absent"], 1, "absent: folder: does not exist"),
    ):
        done = run("eval", packed, *arguments)
        assert (done.returncode, done.stdout) == (code, ""), done.stderr
        assert done.stderr.startswith("clover-edge: error: ") and words in done.stderr


def test_report_of_an_export(tiny: Callable[..., Any], tmp_path: Path) -> None:
    source = tiny(seed=21, overrides={"max_position_embeddings": 512})
    out = tmp_path / "packed"
    export = ["-o", out, "--int4", "--report"]
    done = run(source.folder, *export, module="clover_edge.export")
    assert done.returncode == 0, done.stderr
    facts = json.loads((out / "quality.json").read_text())
    assert (facts["model"]["recipe"], facts["against"]["recipe"]) == ("int4", "f32")
    assert len(facts["layers"]) == 4
    assert (out / "quality.md").is_file()
    assert run("inspect", out).returncode == 0


def test_a_report_that_fails_leaves_the_model(tiny: Callable[..., Any], tmp_path: Path) -> None:
    """A tokenizer that makes the mask of the package's own text."""
    source = tiny(seed=22)
    folder = tmp_path / "source"
    folder.mkdir()
    for file in source.folder.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    (mask,) = [t for t in tokenizer["added_tokens"] if t["content"] == "<|mask|>"]
    mask["content"] = "meadow"
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    out = tmp_path / "packed"
    done = run(folder, "-o", out, "--int8", "--report", module="clover_edge.export")
    assert done.returncode == 1
    assert "packed is complete, without report: " in done.stderr
    assert "holds the mask token" in done.stderr
    assert not (out / "quality.json").exists()
    assert run("inspect", out).returncode == 0
