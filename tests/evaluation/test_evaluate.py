"""Evaluations of tiny models: against themselves, the oracle, and what cannot be compared."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clover_edge
from clover_edge import evaluate
from clover_edge.corpus import Sequence, read_documents, sequences
from clover_edge.evaluation import passes as walking
from clover_edge.evaluation import reference
from clover_edge.evaluation.metrics import Masks
from clover_edge.evaluation.passes import Passes
from clover_edge.export import pipeline

FEW = {"limit": 3, "sequence_length": 48, "tasks": False}


def walked(model: clover_edge.Model, text: Path, length: int = 48) -> list[Sequence]:
    return sequences(model, read_documents(text), length=length, limit=3)


def test_against_the_oracle(source: Any, plain: clover_edge.Model, text: Path) -> None:
    """Likelihoods of both modes, worked out in float64 from the oracle's logits."""
    oracle, spec = source.oracle(), plain.spec
    real = [i for i in range(spec["valid_vocab"]) if i != spec["mask_token_id"]]

    def surprise(logits: np.ndarray, tokens: list[int]) -> np.ndarray:
        e = np.exp(logits[:, real] - logits[:, real].max(axis=1, keepdims=True))
        p = e / e.sum(axis=1, keepdims=True)
        return np.array([-np.log(row[real.index(t)]) for row, t in zip(p, tokens, strict=True)])

    next_token, bound, tokens, nbytes = 0.0, 0.0, 0, 0
    draw = Masks(7).draw
    for sequence in walked(plain, text):
        ids = sequence.ids
        logits, _ = oracle.commit(oracle.start(), ids)
        next_token += surprise(logits[:-1], ids[1:]).sum()
        tokens += len(ids) - 1
        nbytes += sequence.nbytes
        _, state = oracle.commit(oracle.start(), ids[:1])
        for at in range(1, len(ids), 16):
            block = ids[at : at + 16]
            for _ in range(2):
                masked, weight = draw(len(block))
                noisy = np.array(block)
                noisy[masked] = spec["mask_token_id"]
                losses = surprise(oracle.preview(state, noisy)[masked], [block[i] for i in masked])
                bound += weight * losses.sum() / 2
            _, state = oracle.commit(state, block)

    found = evaluate(plain, text=text, masks=2, seed=7, **FEW)
    assert found.text["bytes"] == nbytes and found.commit["positions"] == tokens
    assert found.commit["model"]["perplexity"] == pytest.approx(math.exp(next_token / tokens), 1e-4)
    bits = found.commit["model"]["bits_per_byte"]
    assert bits == pytest.approx(next_token / math.log(2) / nbytes, 1e-4)
    assert found.preview is not None
    bits = found.preview["model"]["bits_per_byte"]
    assert bits == pytest.approx(bound / math.log(2) / nbytes, 1e-4)


def test_layers_against_the_core(
    plain: clover_edge.Model, packed: clover_edge.Model, text: Path
) -> None:
    """Errors and agreement over whole sequences, recorded by hand."""
    outputs: list[dict[Any, list[np.ndarray]]] = []
    for model in (packed, plain):
        seen: dict[Any, list[np.ndarray]] = {}

        def record(layer: int, half: str, arrays: Any, seen: Any = seen) -> None:
            seen.setdefault((layer, half), []).append(arrays["output"])
            if half == "feed_forward":
                seen.setdefault(layer, []).append(arrays["expert_ids"])

        model.core.observe(record)
        for sequence in walked(plain, text):
            model.core.commit(model.core.new_state(99), sequence.ids, logits="none")
        model.core.observe(None)
        outputs.append({key: [np.concatenate(parts)] for key, parts in seen.items()})
    found = evaluate(packed, against=plain, text=text, **FEW)
    assert [row["mixer"] for row in found.layers] == ["deltanet"] * 3 + ["attention"]
    for i, row in enumerate(found.layers):
        for half in ("mixer", "feed_forward"):
            (a,), (b,) = (side[i, half] for side in outputs)
            want = np.sqrt(np.square(a - b).sum() / np.square(b).sum())
            assert row["commit"][f"{half}_error"] == pytest.approx(want, 1e-4)
            assert 0.001 < want < 1
        (a,), (b,) = (side[i] for side in outputs)
        same = [len(set(x) & set(y)) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
        assert row["commit"]["router_agreement"] == pytest.approx(sum(same) / a.size)
        assert 0.3 < row["preview"]["router_agreement"] <= 1
    assert found.worst_router_agreement["commit"] == min(
        row["commit"]["router_agreement"] for row in found.layers
    )


@pytest.mark.parametrize("same", [False, True])
def test_against_itself(packed: clover_edge.Model, text: Path, same: bool) -> None:
    """Opened twice, or the very same model."""
    found = evaluate(packed, against=packed if same else packed.path, text=text, **FEW)
    assert found.preview is not None
    for mode in (found.commit, found.preview):
        assert mode["kl"] == 0 and mode["top1_agreement"] == 1
        assert mode["model"] == mode["against"]
    for row in found.layers:
        for mode in ("commit", "preview"):
            assert row[mode] == {
                "mixer_error": 0,
                "feed_forward_error": 0,
                "router_agreement": 1,
            }


def test_a_uniform_model(tiny: Callable[..., Any], pack: Callable[..., Path], text: Path) -> None:
    """log2 of the number of real tokens, for every token, in both modes and exactly."""
    source = tiny(seed=5, scale={"lm_head.weight": 0})
    with clover_edge.load(pack(source, "f32")) as model:
        found = evaluate(model, text=text, **FEW)
    real = model.spec["valid_vocab"] - 1  # the mask is none
    want = math.log2(real) * found.commit["positions"] / found.text["bytes"]
    assert found.preview is not None
    assert found.commit["model"]["perplexity"] == pytest.approx(real)
    assert found.commit["model"]["bits_per_byte"] == pytest.approx(want)
    assert found.preview["model"]["bits_per_byte"] == pytest.approx(want)


def test_pieces_change_nothing(
    plain: clover_edge.Model, packed: clover_edge.Model, text: Path, monkeypatch: Any
) -> None:
    """However many rows are committed at once: bounded memory is not another answer."""
    found = []
    for rows in (64, 5):
        monkeypatch.setattr(walking, "COMMIT_ROWS", rows)
        both = Passes(packed, plain, width=None, layers=True)
        for sequence in walked(plain, text, 99):
            both.add(Sequence(sequence.ids, 7, 0))
        assert both.preview.positions == 0 and both.preview_layers == []
        found.append(both)
    assert found[0].commit.positions == found[1].commit.positions
    np.testing.assert_allclose(found[0].commit.nll, found[1].commit.nll, rtol=1e-12)
    np.testing.assert_allclose(found[0].commit.kl, found[1].commit.kl, rtol=1e-12)
    for a, b in zip(found[0].commit_layers, found[1].commit_layers, strict=True):
        assert (a.shared, a.chosen) == (b.shared, b.chosen)
        assert a.mixer.relative_error == pytest.approx(b.mixer.relative_error)


def test_a_checkpoint(source: Any, packed: clover_edge.Model, text: Path, monkeypatch: Any) -> None:
    """Packed to f32 for the while; to bf16 where f32 does not fit; nothing is left."""
    folders: list[Path] = []
    opened = reference.load

    def load(path: Path, **options: Any) -> clover_edge.Model:
        folders.append(path)
        return opened(path, **options)

    monkeypatch.setattr(reference, "load", load)
    found = evaluate(packed, against=source.folder, text=text, **FEW)
    assert found.against is not None
    assert (found.against["recipe"], found.against["name"]) == ("f32", source.folder.name)
    assert found.commit["kl"] > 0
    usage = shutil.disk_usage(text)
    narrow = usage._replace(free=found.against["bytes"] - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: narrow)
    monkeypatch.setattr(pipeline, "_SLACK", 0)
    found = evaluate(packed, against=source.folder, text=text, **FEW)
    assert found.against is not None and found.against["recipe"] == "bf16"
    narrow = usage._replace(free=10_000)
    with pytest.raises(clover_edge.ExportError, match=r"needs .* bytes"):
        evaluate(packed, against=source.folder, text=text, **FEW)
    assert len(folders) == 2 and not any(folder.exists() for folder in folders)


@pytest.mark.parametrize("family", ["llama", "qwen3_moe"])
def test_autoregressive_models(
    tiny_transformer: Callable[..., Any], pack: Callable[..., Path], text: Path, family: str
) -> None:
    source = tiny_transformer(family, seed=7, max_position_embeddings=256)
    found = evaluate(pack(source, "int4-all"), against=pack(source, "f32"), text=text, **FEW)
    assert found.preview is None and 0 < found.commit["kl"] < 1
    assert all("preview" not in row and row["commit"]["mixer_error"] > 0 for row in found.layers)
    routed = [row["commit"]["router_agreement"] for row in found.layers]
    assert all((share is None) == (family == "llama") for share in routed)
    page = found.markdown()
    assert "Preview" not in page and ("| - |" in page) == (family == "llama")
    with pytest.raises(clover_edge.ArgumentError, match="block_length"):
        evaluate(pack(source, "f32"), text=text, block_length=4, **FEW)


def test_unlike_vocabularies(
    tiny: Callable[..., Any], pack: Callable[..., Path], packed: clover_edge.Model, tmp_path: Path
) -> None:
    other = pack(tiny(seed=5, vocab=352), "f32")
    with pytest.raises(clover_edge.ArgumentError, match=r"against: .*valid_vocab is 320, and 288"):
        evaluate(packed, against=other, **FEW)
    swapped = shutil.copytree(packed.path, tmp_path / "swapped")
    tokenizer = json.loads((swapped / "tokenizer.json").read_text())
    vocab = tokenizer["model"]["vocab"]
    vocab["a"], vocab["b"] = vocab["b"], vocab["a"]
    (swapped / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(clover_edge.ArgumentError, match=r"token '[ab]' .* is not the same"):
        evaluate(packed, against=swapped, **FEW)


def test_layers_that_do_not_correspond(
    tiny: Callable[..., Any], pack: Callable[..., Path], packed: clover_edge.Model, text: Path
) -> None:
    """Logits can be compared all the same."""
    found = evaluate(packed, against=pack(tiny(seed=5, layers=3), "f32"), text=text, **FEW)
    assert found.layers == [] and found.commit["kl"] > 0
    assert found.worst_router_agreement == {}


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"limit": 0}, "limit: 0"),
        ({"sequence_length": 1}, "sequence_length: 1"),
        ({"masks": 1.5}, "masks: 1.5"),
        ({"seed": -1}, "seed: -1"),
        ({"block_length": 17}, "block_length: 17"),
        ({"coreset_size": 99}, "coreset_size: 99"),
        ({"threshold": 7}, "threshold: 7"),
        ({"treshold": 0.5}, "treshold"),
    ],
)
def test_wrong_options(packed: clover_edge.Model, options: dict[str, Any], word: str) -> None:
    with pytest.raises(clover_edge.ArgumentError, match=word):
        evaluate(packed, against=Path("absent"), **options)


def test_options_of_the_previews(packed: clover_edge.Model, text: Path) -> None:
    wide = evaluate(packed, text=text, **FEW).preview
    narrow = evaluate(packed, text=text, block_length=4, **FEW).preview
    coarse = evaluate(packed, text=text, coreset_size=2, **FEW).preview
    assert wide and narrow and coarse
    assert (wide["block_length"], narrow["block_length"]) == (16, 4)
    assert narrow["blocks"] > 3 * wide["blocks"]
    assert coarse["positions"] == wide["positions"] and coarse["model"] != wide["model"]


def test_progress_and_default_text(packed: clover_edge.Model) -> None:
    told: list[tuple[str, int, int]] = []
    found = evaluate(packed, limit=2, sequence_length=16, progress=lambda *step: told.append(step))
    assert told == [("text", 0, 2), ("text", 1, 2), ("text", 2, 2)]
    assert found.text["source"] == "the package's meadow.txt"
    assert found.tasks == {}  # a tiny model is not the demo model
