"""The worked example of docs/format.md is what the writer writes."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from clover_edge.export.packed_file import Blob, PackedWriter, lay_out
from clover_edge.quant import Scheme, encode

PAGE = Path(__file__).parents[2] / "docs" / "format.md"
LINE = re.compile(r"^([0-9a-f]{4})  ((?:[0-9a-f]{2} ){15}[0-9a-f]{2})", re.MULTILINE)


def page_bytes(size: int) -> bytes:
    """The example's bytes; a line that is left out repeats the one above it."""
    lines = {int(at, 16): bytes.fromhex(text) for at, text in LINE.findall(PAGE.read_text())}
    out = b""
    while len(out) < size:
        out += lines.get(len(out), out[-16:])
    return out


def test_worked_example_is_what_the_writer_writes(tmp_path: Path) -> None:
    row = (np.arange(32, dtype=np.float32) - 16) / 16
    data = encode(np.stack([row, -row / 2]), Scheme("int4", 32))
    files = lay_out([Blob("demo", "U8", (data.size,), data.size)], 1 << 20)
    with PackedWriter(tmp_path, files) as writer:
        writer.write("demo", data.data)
        writer.finish()
    written = (tmp_path / files[0].name).read_bytes()
    assert written == page_bytes(len(written))
    assert len(LINE.findall(PAGE.read_text())) == 18
