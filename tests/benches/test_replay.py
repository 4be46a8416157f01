"""A replayed trace makes the passes that the decoder makes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from clover_edge.loader import open_core, read_folder

sys.path.insert(0, str(Path(__file__).parents[2] / "benches"))
replay = pytest.importorskip("replay", reason="benches/ is not beside the tests")
decode_cases = pytest.importorskip("decode_cases", reason="benches/ is not beside the tests")
synthetic = pytest.importorskip("synthetic", reason="benches/ is not beside the tests")

SMALL = synthetic.Shape(4, 512, 128, 32, 2, 64, 64, 2, 1, 64, 2, 4, 32)


@pytest.mark.parametrize("options", [{}, {"skip_rows": True}, {"fused_commit": False}])
@pytest.mark.parametrize("steps", [3, 5])
def test_passes_and_rows_are_the_decoders(
    options: dict[str, Any], steps: int, tmp_path: Path
) -> None:
    synthetic.write(tmp_path / "model", SMALL)
    core = open_core(read_folder(tmp_path / "model"), threads=1)
    plain = {"mode": "diffusion", "block_length": 16, **options}
    prompt = list(range(20))
    counted = core.generate(
        core.new_state(1024),
        prompt,
        {**plain, "max_new_tokens": 96, "threshold": 2.0, "steps": steps, "fixed_schedule": True},
    )["counters"]
    found = replay.Replay(core, lambda n: list(range(n)), len(prompt)).measure(
        [decode_cases.Way("it", plain, steps)], 1
    )["it"]
    assert found.tokens == 96
    # The decoder commits its last block in a pass of its own, the replay a block before the first.
    fused = options.get("fused_commit", True)
    assert found.forwards == counted["forward_passes"] - fused
    assert found.rows == counted["rows"]
    assert found.bytes_read > 0 < found.tokens_per_second
