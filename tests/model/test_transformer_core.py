"""The compiled core on plain transformers: against the float64 oracle, and bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from core_checks import assert_activations_as_defined
from oracle.compare import relative_error, rounded_activations, state_error
from oracle.decode import Options, generate
from oracle.packed import read_packed
from oracle.transformer import Transformer

from clover_edge import _core
from clover_edge.errors import UnsupportedModelError

TOLERANCE = 1e-4  # f32 weights, logits and state
ISAS = _core.available_isas()
IDS = np.random.default_rng(6).integers(0, 250, 40).tolist()
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    # SmolLM2's proportions: rows of 3 * 64, which no block of 128 columns divides
    "narrow llama": (
        "llama",
        {
            "hidden": 192,
            "num_attention_heads": 3,
            "num_key_value_heads": 1,
            "tie_word_embeddings": True,
        },
    ),
    "llama, odd widths": (
        "llama",
        {
            "hidden": 52,
            "head_dim": 14,
            "intermediate_size": 37,
            "attention_bias": True,
            "num_key_value_heads": 4,
        },
    ),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {"attention_bias": True}),
    "qwen3_moe": ("qwen3_moe", {}),
    "qwen3_moe, some layers dense": ("qwen3_moe", {"mlp_only_layers": [0], "layers": 4}),
}
Source = Callable[[str], Any]


@pytest.fixture(scope="module")
def source(tiny_transformer: Callable[..., Any]) -> Source:
    def make(name: str) -> Any:
        family, options = VARIANTS[name]
        return tiny_transformer(family, seed=2, **options)

    return make


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("isa", ISAS)
def test_commits(
    source: Source, pack: Callable[..., Path], open_core: Callable[..., Any], name: str, isa: str
) -> None:
    """Logits and keys and values, of 33 tokens at once, then of seven one by one."""
    checkpoint = source(name)
    core, model = open_core(pack(checkpoint, "f32"), isa=isa), checkpoint.oracle()
    state, past = core.new_state(len(IDS)), model.start()
    for piece in (IDS[:33], *([token] for token in IDS[33:])):
        want, past = model.commit(past, piece)
        assert relative_error(core.commit(state, piece, logits="all"), want) < TOLERANCE
    assert state_error(state.arrays(), past) < TOLERANCE


def test_long_prompt(
    source: Source, pack: Callable[..., Path], open_core: Callable[..., Any]
) -> None:
    """Longer than the passes that a prefill is cut into."""
    checkpoint = source("qwen2")
    ids = np.random.default_rng(3).integers(0, 250, 150).tolist()
    core, model = open_core(pack(checkpoint, "f32")), checkpoint.oracle()
    want = model.commit(model.start(), ids)[0]
    assert relative_error(core.commit(core.new_state(150), ids, logits="all"), want) < TOLERANCE


@pytest.mark.parametrize("name", ["narrow llama", "qwen2", "qwen3_moe, some layers dense"])
@pytest.mark.parametrize("recipe", ["int8", "int4", "int4-all", "int4-small", "codebook4"])
def test_int8_activations_as_defined(
    tiny_transformer: Callable[..., Any],
    pack: Callable[..., Path],
    open_core: Callable[..., Any],
    name: str,
    recipe: str,
) -> None:
    family, options = VARIANTS[name]
    checkpoint = tiny_transformer(family, seed=4, **{"hidden": 128, **options, "layers": 2})
    folder = pack(checkpoint, recipe)
    model = Transformer(*read_packed(folder), linear=rounded_activations())
    assert_activations_as_defined(
        open_core, folder, lambda ids: model.commit(model.start(), ids)[0]
    )


def test_schemes_by_recipe(source: Source, pack: Callable[..., Path]) -> None:
    """The feed-forward counts as most of the bytes, unless there are experts."""

    def schemes(name: str, recipe: str) -> dict[str, str]:
        entries = read_packed(pack(source(name), recipe))[1]["clover_edge"]["tensors"]
        return {name: entry["scheme"] for name, entry in entries.items()}

    llama = schemes("narrow llama", "int4")
    assert llama["layers.0.dense.gate_up"] == llama["layers.0.dense.down"] == "int4"
    assert llama["layers.0.attn.in"] == llama["embed"] == "int8"
    mixed = schemes("qwen3_moe, some layers dense", "int4")
    assert mixed["layers.0.dense.gate_up"] == mixed["layers.0.dense.down"] == "int8"
    qwen2 = schemes("qwen2", "int4-all")
    assert qwen2["layers.0.attn.in"] == "int4"
    assert qwen2["layers.0.attn.in_bias"] == qwen2["layers.0.norm1"] == "f32"


@pytest.mark.parametrize("recipe", ["f32", "int4"])
@pytest.mark.parametrize("name", ["narrow llama", "qwen2", "qwen3_moe"])
def test_threads_and_rows_of_a_pass_change_no_bit(
    source: Source, pack: Callable[..., Path], open_core: Callable[..., Any], name: str, recipe: str
) -> None:
    folder = pack(source(name), recipe)
    one, two = open_core(folder, threads=1), open_core(folder, threads=2)
    states = [one.new_state(40), two.new_state(40), one.new_state(40)]
    whole = one.commit(states[0], IDS, logits="all")
    assert np.array_equal(two.commit(states[1], IDS, logits="all"), whole)
    single = [one.commit(states[2], [token])[0] for token in IDS]
    assert np.array_equal(single, whole)
    for state in states[1:]:
        for key, value in states[0].arrays().items():
            assert np.array_equal(state.arrays()[key], value), key


@pytest.mark.parametrize("kept", [0, 3, 9])
def test_snapshot_and_rollback(
    source: Source, pack: Callable[..., Path], open_core: Callable[..., Any], kept: int
) -> None:
    core = open_core(pack(source("qwen2"), "int4"), threads=2)
    state, shorter = core.new_state(40), core.new_state(40)
    core.commit(state, IDS[:11])
    saved = state.snapshot()
    core.commit(state, IDS[11:20], rollback=True)
    state.truncate(11 + kept)
    core.commit(shorter, IDS[: 11 + kept])
    assert np.array_equal(core.commit(state, IDS[20:]), core.commit(shorter, IDS[20:]))
    state.restore(saved)
    assert state.position == 11
    again = core.new_state(40)
    core.commit(again, IDS[:11])
    assert np.array_equal(core.commit(state, IDS[11:]), core.commit(again, IDS[11:]))


@pytest.mark.parametrize("mode", [{}, {"mode": "ar"}])
@pytest.mark.parametrize("name", ["llama", "qwen3_moe"])
def test_decoding_is_the_oracles(
    source: Source,
    pack: Callable[..., Path],
    open_core: Callable[..., Any],
    name: str,
    mode: dict[str, str],
) -> None:
    """Autoregressive whether or not it is asked for."""
    checkpoint = source(name)
    core, model = open_core(pack(checkpoint, "f32")), checkpoint.oracle()
    prompt = IDS[:20]
    options = Options(max_new_tokens=24, valid_vocab=288, mode="ar", repetition_penalty=1.2)
    want, past = generate(model, model.start(), prompt, options)
    assert want.margin > 1e-4, "a decision of this case is too close to call; change its seed"
    state = core.new_state(64)
    asked = {"max_new_tokens": 24, "repetition_penalty": 1.2, **mode}
    found = core.generate(state, prompt, asked)
    assert found["ids"] == want.ids
    assert len(set(want.ids)) > 8  # a text, not one token again and again
    assert found["counters"]["denoise_steps"] == 0
    assert state_error(state.arrays(), past) < TOLERANCE


def test_diffusion_is_refused(
    source: Source, pack: Callable[..., Path], open_core: Callable[..., Any]
) -> None:
    core = open_core(pack(source("llama"), "f32"))
    state = core.new_state(40)
    with pytest.raises(UnsupportedModelError, match="autoregressive"):
        core.generate(state, IDS[:3], {"mode": "diffusion", "max_new_tokens": 8})
    with pytest.raises(UnsupportedModelError, match="autoregressive"):
        core.preview(state, IDS[:3])
    assert state.position == 0
