"""The commands of docs/constrained.md, one after the other, on the demo model."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import chat_templates
import pytest

from clover_edge import demo

pytest.importorskip("llguidance", reason="needs extra grammar")

PAGE = Path(__file__).parents[2] / "docs" / "constrained.md"


def test_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with demo.pack("int4") as folder:
        shutil.copytree(f"{folder}/model", tmp_path / "my-model-int4")
    (tmp_path / "my-model-int4" / "chat_template.jinja").write_text(chat_templates.XML)
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert len(blocks) == 3
    names: dict[str, object] = {}
    exec("\n".join(blocks), names)
    names["model"].close()  # type: ignore[attr-defined]
    printed = capsys.readouterr().out
    assert "'degrees': " in printed and "[('heat', {" in printed
