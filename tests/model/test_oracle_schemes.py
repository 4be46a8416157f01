"""Quantised packed folders: the format read back, and the core on their very weights."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracle.clover import Clover
from oracle.compare import FLOAT_MATRICES, relative_error, rounded_activations
from oracle.packed import read_packed

from clover_edge import _core

ISAS = _core.available_isas()
RECIPES = ("int8", "int4", "int4-all", "int4-small", "codebook4", "codebook4-all")
SCHEMES = {
    "f32": {"f32"},
    "bf16": {"f32", "bf16"},
    "int8": {"f32", "int8"},
    "int4": {"f32", "int8", "int4"},
    "int4-all": {"f32", "int4"},
    "int4-small": {"f32", "int4", "int3"},
    "codebook4": {"f32", "int8", "codebook4"},
    "codebook4-all": {"f32", "codebook4"},
}
# Loss of stored values: group; largest error as a share of the group's largest value (half a step
# of int8; the others may give up a little at the ends of their range); relative root mean square.
LOSS = {
    "int8": (32, 0.51 / 127, 0.008),
    "int4": (32, 0.2, 0.1),
    "codebook4": (32, 0.2, 0.09),
    "int3": (64, 0.5, 0.2),
}
SEEDS = range(8)


@pytest.fixture(scope="module")
def source(tiny: Callable[..., Any]) -> Any:
    return tiny(seed=4, layers=5, hidden=128)


@pytest.fixture(scope="module")
def shallow(tiny: Callable[..., Any]) -> Callable[[int, int], Any]:
    """Two layers, one of each kind: few values that a last bit can round to the next code. A group
    of 128 divides every matrix."""
    kinds = ["linear_attention", "full_attention"]
    widths = {"moe_intermediate_size": 128, "shared_expert_intermediate_size": 128}

    def make(experts: int, top_k: int) -> Any:
        return tiny(
            seed=4,
            layers=2,
            hidden=128,
            experts=experts,
            top_k=top_k,
            overrides={"layer_types": kinds, **widths},
        )

    return make


def loses(name: str, value: np.ndarray, recipe: str) -> str | None:
    """The scheme that a recipe rounds this tensor to; None where the bf16 value stays as it is."""
    floats = (*FLOAT_MATRICES, "conv1d.weight", "conv_right_weight")
    if value.ndim == 1 or name.endswith(floats) or recipe in ("f32", "bf16"):
        return None
    routed, common = {
        "int4": ("int4", "int8"),
        "int4-small": ("int3", "int4"),
        "codebook4": ("codebook4", "int8"),
    }.get(recipe, (recipe.removesuffix("-all"),) * 2)
    return routed if ".experts." in name else common


@pytest.mark.parametrize("recipe", SCHEMES)
def test_packed_folder_holds_the_checkpoint(
    source: Any, pack: Callable[..., Path], recipe: str
) -> None:
    """Every tensor comes back: exactly if stored in float, else within its scheme's loss."""
    weights, config = read_packed(pack(source, recipe))
    assert set(weights) == set(source.tensors)
    entries = config["clover_edge"]["tensors"].values()
    parts = [part for entry in entries for part in [entry, *entry.get("parts", {}).values()]]
    schemes = {part["scheme"] for part in parts} - {"experts"}
    assert schemes == SCHEMES[recipe]
    for name, value in source.tensors.items():
        found = weights[name].reshape(value.shape)
        scheme = loses(name, value, recipe)
        if scheme is None:
            assert np.array_equal(found, value), name
            continue
        group, largest, spread = LOSS[scheme]
        groups, error = (a.reshape(-1, group) for a in (value, np.abs(found - value)))
        assert (error <= largest * np.abs(groups).max(axis=1, keepdims=True)).all(), name
        assert np.sqrt((error**2).mean() / (groups**2).mean()) < spread, name


def errors(core: Any, model: Clover) -> list[float]:
    """By seed, the relative error of a commit's and a preview's logits."""
    out = []
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        prompt, block = rng.integers(0, 250, 5).tolist(), rng.integers(0, 250, 3)
        noisy = np.where([True, False, seed % 2], model.config.mask_token_id, block).tolist()
        state = core.new_state(8)
        logits, past = model.commit(model.start(), prompt)
        out.append(relative_error(core.commit(state, prompt, logits="all"), logits))
        out.append(relative_error(core.preview(state, noisy), model.preview(past, noisy)))
    return out


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("group", [32, 64, 128])
@pytest.mark.parametrize("recipe", RECIPES)
def test_int8_activations_as_defined(
    shallow: Callable[[int, int], Any],
    pack: Callable[..., Path],
    open_core: Callable[..., Any],
    recipe: str,
    group: int,
    isa: str,
) -> None:
    """Against the oracle that rounds activations to int8 as the kernels' definition says.

    Equal to float32 accuracy, unless a value so near the middle between two codes that float32 and
    float64 round it differently sets off a chain of others: rare enough that the median is exact.
    """
    folder = pack(shallow(16, 2), recipe, group)
    weights, config = read_packed(folder)
    model = Clover(weights, config, linear=rounded_activations())
    found = errors(open_core(folder, isa=isa), model)
    assert np.median(found) < 1e-6
    assert np.median(errors(open_core(folder, isa=isa), Clover(weights, config))) > 1e-3


@pytest.mark.parametrize("isa", ISAS)
def test_every_matrix_has_its_own_codebook(
    shallow: Callable[[int, int], Any],
    pack: Callable[..., Path],
    open_core: Callable[..., Any],
    tmp_path: Path,
    isa: str,
) -> None:
    """The core takes the codebook that stands in a matrix's entry, not the exporter's."""
    folder = tmp_path / "packed"
    shutil.copytree(pack(shallow(16, 2), "codebook4-all"), folder)
    config = json.loads((folder / "config.json").read_text())
    entries = config["clover_edge"]["tensors"].values()
    parts = [part for entry in entries for part in [entry, *entry.get("parts", {}).values()]]
    rng = np.random.default_rng(0)
    for part in parts:
        if "codebook" in part:
            part["codebook"] = np.sort(rng.choice(np.arange(-127, 128), 16, False)).tolist()
    (folder / "config.json").write_text(json.dumps(config))
    weights, config = read_packed(folder)
    model = Clover(weights, config, linear=rounded_activations())
    assert np.median(errors(open_core(folder, isa=isa), model)) < 1e-6


@pytest.mark.parametrize("group", [32, 128])
@pytest.mark.parametrize("recipe", RECIPES)
def test_price_of_int8_activations(
    shallow: Callable[[int, int], Any],
    pack: Callable[..., Path],
    open_core: Callable[..., Any],
    recipe: str,
    group: int,
) -> None:
    """Against the oracle on the same weights with exact activations.

    Every expert takes part, so that no rounding changes a choice. Measured: median 0.015 to 0.019,
    worst 0.046.
    """
    folder = pack(shallow(4, 4), recipe, group)
    found = errors(open_core(folder), Clover(*read_packed(folder)))
    assert np.median(found) < 0.03
    assert max(found) < 0.06


@pytest.mark.parametrize("isa", ISAS)
def test_bf16_computes_in_float(
    source: Any, pack: Callable[..., Path], open_core: Callable[..., Any], isa: str
) -> None:
    """bf16 weights meet float32 activations: the tolerance of f32 weights holds."""
    folder = pack(source, "bf16")
    assert max(errors(open_core(folder, isa=isa), source.oracle())) < 1e-4
