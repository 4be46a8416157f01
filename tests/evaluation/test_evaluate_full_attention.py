"""Evaluations with full attention: previews alone, of all that is predicted at once."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clover_edge
from clover_edge import evaluate
from clover_edge.corpus import read_documents, sequences
from clover_edge.errors import ArgumentError
from clover_edge.evaluation.metrics import Masks

FEW = {"limit": 3, "sequence_length": 48, "tasks": False}


@pytest.mark.parametrize("width", [None, 16])
def test_against_the_oracle(
    tiny_full_attention: Callable[..., Any],
    pack: Callable[..., Path],
    text: Path,
    width: int | None,
) -> None:
    checkpoint = tiny_full_attention("llada", seed=3)
    oracle, draw = checkpoint.oracle(), Masks(7).draw
    bound, nbytes = 0.0, 0
    with clover_edge.load(pack(checkpoint, "f32"), threads=1) as model:
        mask, valid = model.spec["mask_token_id"], model.spec["valid_vocab"]
        real = [i for i in range(valid) if i != mask]
        for sequence in sequences(model, read_documents(text), length=48, limit=3):
            ids, n = sequence.ids, width or len(sequence.ids)
            nbytes += sequence.nbytes
            for at in range(1, len(ids), n):
                block = ids[at : at + n]
                masked, weight = draw(len(block))
                noisy = np.array(block)
                noisy[masked] = mask
                logits = oracle.logits([*ids[:at], *noisy])[at:][masked][:, real]
                p = np.exp(logits - logits.max(axis=1, keepdims=True))
                p /= p.sum(axis=1, keepdims=True)
                said = [real.index(block[i]) for i in masked]
                bound -= weight * np.log(p[np.arange(len(said)), said]).sum()
        found = evaluate(model, text=text, seed=7, block_length=width, **FEW)
    assert found.commit is None and found.preview is not None
    bits = found.preview["model"]["bits_per_byte"]
    assert bits == pytest.approx(bound / math.log(2) / nbytes, 1e-4)
    assert "Commit mode" not in found.markdown() and "NELBO" in found.markdown()


def test_against_another(
    tiny_full_attention: Callable[..., Any], pack: Callable[..., Path], text: Path
) -> None:
    checkpoint = tiny_full_attention("llada_moe", seed=3)
    plain, packed = pack(checkpoint, "f32"), pack(checkpoint, "int4")
    same = evaluate(plain, against=plain, text=text, **FEW)
    assert same.preview is not None and same.preview["kl"] == 0
    found = evaluate(packed, against=plain, text=text, **FEW)
    assert found.preview is not None and found.preview["kl"] > 0
    assert len(found.layers) == 3 and "commit" not in found.layers[0]
    assert set(found.worst_router_agreement) == {"preview"}
    assert found.layers[0]["preview"]["mixer_error"] > 0


def test_a_width_beyond_the_context(
    tiny_full_attention: Callable[..., Any], pack: Callable[..., Path], text: Path
) -> None:
    folder = pack(tiny_full_attention("llada", seed=3), "f32")
    with pytest.raises(ArgumentError, match="block_length: 5000"):
        evaluate(folder, text=text, block_length=5000, **FEW)
