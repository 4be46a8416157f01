"""Calibration with full attention: layers run alone read what the whole model's layers read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from clover_edge.export import Checkpoint, export_checkpoint
from clover_edge.export.calibration.calibrator import Calibrator
from clover_edge.export.calibration.passages import Passage
from clover_edge.export.families import read_model
from clover_edge.loader import open_core, read_folder

LENGTHS = (150, 21)  # the first is longer than a chunk of a pass


@pytest.mark.parametrize("family", ["dream", "llada_moe"])
def test_layers_run_alone_read_the_same(tiny_full_attention: Any, pack: Any, family: str) -> None:
    checkpoint, rng = tiny_full_attention(family), np.random.default_rng(0)
    passages = [
        Passage(rng.integers(0, 250, n).astype(np.int32), rng.random(n) < 0.4) for n in LENGTHS
    ]
    folder = read_folder(pack(checkpoint, "f32"))
    core, spec = open_core(folder, threads=1), folder.spec
    read: dict[tuple[int, str], list[np.ndarray]] = {}

    def listen(layer: int, half: str, arrays: dict[str, np.ndarray]) -> None:
        for name in ("input", "mixed"):
            if name in arrays:
                read.setdefault((layer, f"{half}.{name}"), []).append(arrays[name])

    core.observe(listen)
    for passage in passages:
        for ids in (passage.ids, np.where(passage.masked, spec["mask_token_id"], passage.ids)):
            core.preview(core.new_state(len(ids)), ids, rows=[])
    with Checkpoint(checkpoint.folder) as source:
        calibrator = Calibrator(source, read_model(source), spec, passages, hessians=False)
        for layer in range(spec["num_layers"]):
            for matrix, name in (("attn.in", "mixer.input"), ("attn.out", "mixer.mixed")):
                found = calibrator(f"layers.{layer}.{matrix}", None)
                want = np.square(np.concatenate(read[layer, name])).mean(axis=0)
                assert found is not None
                np.testing.assert_allclose(found.mean_squares, want, rtol=1e-3)


@pytest.mark.parametrize("family", ["llada", "llada_moe"])
def test_a_calibrated_export(tiny_full_attention: Any, tmp_path: Any, family: str) -> None:
    source = tiny_full_attention(family, hidden=128, layers=2, intermediate_size=128).folder
    text = tmp_path / "text.txt"
    text.write_text("the cat and the hat sat on the mat " * 20)
    report = export_checkpoint(
        source, tmp_path / "out", recipe="int4-all", method="gptq", calib=text
    )
    assert report.plan.model.family == family
    core = open_core(read_folder(tmp_path / "out"), threads=1)
    assert np.isfinite(core.commit(core.new_state(8), [1, 2, 3])).all()
