"""The worked examples of docs/format.md are what the writer and the packer write."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from clover_edge.export.packed_file import Blob, PackedWriter, lay_out
from clover_edge.quant import Scheme, encode

PAGE = Path(__file__).parents[2] / "docs" / "format.md"
LINE = re.compile(r"^([0-9a-f]{4})  ((?:[0-9a-f]{2} ){15}[0-9a-f]{2})", re.MULTILINE)


def dump(number: int) -> dict[int, bytes]:
    """Offset and bytes of each line of one of the page's two dumps."""
    blocks = [LINE.findall(block) for block in PAGE.read_text().split("```")]
    dumps = [lines for lines in blocks if lines]
    assert len(dumps) == 2
    return {int(at, 16): bytes.fromhex(text) for at, text in dumps[number]}


def page_bytes(lines: dict[int, bytes], size: int) -> bytes:
    """The example's bytes; a line that is left out repeats the one above it."""
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
    assert len(dump(0)) == 18
    assert written == page_bytes(dump(0), len(written))


def test_int3_example_is_what_the_packer_packs() -> None:
    row = (np.arange(64, dtype=np.float32) - 32) / 32
    data = encode(row[None], Scheme("int3", 64))
    assert len(dump(1)) == 12
    assert data.tobytes() == page_bytes(dump(1), data.size)
