"""A hybrid model that lost what a preview needs: autoregressive, from the same weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tiny_core import MASK, SPEC, TinyFile, same, tokens, write_tiny

from clover_edge import _core
from clover_edge.errors import ArgumentError, ModelFormatError, UnsupportedModelError

LOST = ("conv_right", "logit_scale", "history_bias", "history_c")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> TinyFile:
    return write_tiny(tmp_path_factory.mktemp("whole") / "weights")


def opened(whole: TinyFile, **spec: Any) -> Any:
    kept = {key: value for key, value in SPEC.items() if key not in ("mask_token_id", "block_size")}
    table = [row for row in whole.table if not row["name"].endswith(LOST)]
    return _core.Model({**kept, "preview": False, **spec}, [str(whole.path)], table, threads=1)


def test_commits_are_the_whole_models(whole: TinyFile) -> None:
    full, bare, ids = whole.open(), opened(whole), tokens(30)
    states = full.new_state(40), bare.new_state(40)
    want = full.commit(states[0], ids, logits="all")
    assert np.array_equal(bare.commit(states[1], ids, logits="all"), want)
    same(states[0].arrays(), states[1].arrays())


def test_rollback_needs_no_preview_tensor(whole: TinyFile) -> None:
    bare, ids = opened(whole), tokens(20)
    state, shorter = bare.new_state(40), bare.new_state(40)
    bare.commit(state, ids, rollback=True)
    state.truncate(7)
    bare.commit(shorter, ids[:7])
    same(state.arrays(), shorter.arrays())


def test_a_mask_token_is_never_emitted(whole: TinyFile) -> None:
    """It may still be in the vocabulary; a model without one has all its ids."""
    ids = tokens(12)
    plain = opened(whole)
    first = plain.generate(plain.new_state(40), ids, {"max_new_tokens": 1})["ids"][0]
    masked = opened(whole, mask_token_id=first)
    assert masked.generate(masked.new_state(40), ids, {"max_new_tokens": 1})["ids"][0] != first
    with pytest.raises(ArgumentError, match="mask token"):
        masked.commit(masked.new_state(40), [first])
    assert plain.commit(plain.new_state(40), [MASK]).shape == (1, SPEC["vocab_size"])


def test_previews_are_refused(whole: TinyFile) -> None:
    bare = opened(whole)
    with pytest.raises(UnsupportedModelError, match="autoregressive"):
        bare.preview(bare.new_state(40), tokens(4))


def test_preview_tensors_are_surplus(whole: TinyFile) -> None:
    with pytest.raises(ModelFormatError, match="is not part of this model"):
        _core.Model({**SPEC, "preview": False}, [str(whole.path)], whole.table, threads=1)


@pytest.mark.parametrize("key", ["mask_token_id", "block_size"])
def test_with_previews_both_keys_are_needed(whole: TinyFile, key: str) -> None:
    spec = {name: value for name, value in SPEC.items() if name != key}
    with pytest.raises(ModelFormatError, match=f"{key}: is missing"):
        _core.Model({**spec, "preview": True}, [str(whole.path)], whole.table, threads=1)
