"""Gemma 3 against `transformers` and the oracle on the same tiny weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import packer
from core_checks import assert_activations_as_defined
from golden_checks import AGAIN, Golden, need_judge
from golden_files import maker_of
from oracle.compare import relative_error, rounded_activations, state_error
from oracle.gemma import Gemma
from oracle.packed import read_packed
from tiny_gemma import make_gemma
from torch_models import logits_of

from clover_edge import _core
from clover_edge.errors import CheckpointError, ModelFormatError, UnsupportedModelError
from clover_edge.export import Checkpoint, export_checkpoint, plan_export
from clover_edge.export.calibration.calibrator import Calibrator
from clover_edge.export.calibration.layer import run_layer
from clover_edge.export.calibration.passages import Passage

ISAS = _core.available_isas()


MAKER = maker_of("autoregressive")
ROWS = list(MAKER.ROWS)
CASES = [case for case in MAKER.CASES if case.startswith("gemma3")]


@pytest.fixture(scope="module")
def golden() -> Golden:
    return Golden("autoregressive")


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Packs a case by a recipe, once."""

    def write(folder: Path, case: str, **other: Any) -> None:
        make_gemma(folder, **{**MAKER.options(case)[1], **other})

    return packer(tmp_path_factory, write)


def oracle_of(case: str, golden: Golden, without: str = "") -> Gemma:
    tensors, config = MAKER.weights(case)
    golden.assert_drawn(case, tensors)
    return Gemma(tensors, config, without=without)


def oracle_logits(model: Gemma) -> np.ndarray:
    return model.commit(model.start(), MAKER.token_ids())[0][ROWS]


@pytest.mark.parametrize("case", CASES)
def test_oracle_is_transformers(golden: Golden, case: str) -> None:
    golden.assert_logits(case, oracle_logits(oracle_of(case, golden)))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("case", CASES)
def test_core_is_transformers(
    golden: Golden,
    packed: Callable[..., Path],
    open_core: Callable[..., Any],
    case: str,
    isa: str,
) -> None:
    core, ids = open_core(packed(case, "f32"), isa=isa), MAKER.token_ids()
    whole = core.commit(core.new_state(len(ids)), ids, logits="all")
    golden.assert_logits(case, whole[ROWS])
    state = core.new_state(len(ids))
    pieces = [core.commit(state, cut, logits="all") for cut in np.split(ids, [1, 2, 19, 64])]
    assert np.array_equal(np.concatenate(pieces), whole)  # a window changes no bit either


@pytest.mark.parametrize("case", CASES)
def test_state_is_the_oracles(
    golden: Golden,
    packed: Callable[..., Path],
    open_core: Callable[..., Any],
    case: str,
) -> None:
    core, model = open_core(packed(case, "f32")), oracle_of(case, golden)
    state, past = core.new_state(40), model.start()
    for piece in np.split(MAKER.token_ids()[:40], [25, 26]):
        want, past = model.commit(past, piece)
        assert relative_error(core.commit(state, piece, logits="all"), want) < 1e-4
    assert state_error(state.arrays(), past) < 1e-4


@pytest.mark.parametrize("case", CASES)
def test_text_is_that_of_a_plain_loop(
    golden: Golden,
    packed: Callable[..., Path],
    open_core: Callable[..., Any],
    case: str,
) -> None:
    golden.assert_clear(case)
    core = open_core(packed(case, "f32"))
    state = core.new_state(MAKER.PROMPT + MAKER.NEW)
    prompt = MAKER.token_ids()[: MAKER.PROMPT].tolist()
    found = core.generate(state, prompt, {"max_new_tokens": MAKER.NEW})
    assert found["ids"] == golden.ids(case, "text")
    assert len(set(found["ids"])) > 8


@pytest.mark.parametrize("recipe", ["int8", "int4"])
def test_int8_activations_as_defined(
    packed: Callable[..., Path], open_core: Callable[..., Any], recipe: str
) -> None:
    """One layer of each kind."""
    kinds = ["sliding_attention", "full_attention"]
    folder = packed("gemma3", recipe, num_hidden_layers=2, layer_types=kinds, sliding_window=2)
    model = Gemma(*read_packed(folder), linear=rounded_activations())
    assert_activations_as_defined(
        open_core, folder, lambda ids: model.commit(model.start(), ids)[0], length=3
    )


WITHOUT = ("scale", "offset", "norms behind", "window", "local base", "query scale", "gelu")


@pytest.mark.parametrize("what", WITHOUT)
def test_golden_tells_models_apart(golden: Golden, what: str) -> None:
    """Each detail that is easily got wrong moves the logits by far more than the tolerance."""
    golden.assert_told_apart("gemma3", oracle_logits(oracle_of("gemma3", golden, without=what)))


def spec_of(folder: Path) -> dict[str, Any]:
    with Checkpoint(folder) as checkpoint:
        return plan_export(checkpoint).model.spec


def edit(folder: Path, **keys: Any) -> None:
    path = folder / "config.json"
    config = {**json.loads(path.read_text()), **keys}
    path.write_text(json.dumps({key: v for key, v in config.items() if v != "absent"}))


def test_spellings(tmp_path: Path) -> None:
    """Rotary keys by layer type, a pattern for the list of layers, and the text part of a model
    with a vision tower say the same."""
    make_gemma(tmp_path / "flat", num_hidden_layers=6, layer_types=None, sliding_window_pattern=3)
    spec = spec_of(tmp_path / "flat")
    assert spec["windows"] == [9, 9, 0, 9, 9, 0]
    assert (spec["rope_theta"], spec["rope_local_theta"]) == (1e6, 1e4)
    assert (spec["attn_scale"], spec["vocab_size"]) == (20**-0.5, 320)
    rope = {
        "full_attention": {"rope_type": "default", "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    }
    gone = dict.fromkeys(("rope_theta", "rope_local_base_freq", "rope_scaling"), "absent")
    edit(tmp_path / "flat", rope_parameters=rope, **gone)
    assert spec_of(tmp_path / "flat") == spec
    for prefix in ("language_model.model.", "model.language_model."):
        folder = tmp_path / prefix
        options = {"num_hidden_layers": 6, "layer_types": None, "sliding_window_pattern": 3}
        make_gemma(folder, nested=True, prefix=prefix, **options)
        assert spec_of(folder) == spec


@pytest.mark.parametrize(
    ("dtype", "scale"),
    [("float32", np.float32(96**0.5)), ("bfloat16", 9.8125), ("float16", np.float16(96**0.5))],
)
def test_scale_is_rounded_as_the_weights_are(tmp_path: Path, dtype: str, scale: float) -> None:
    make_gemma(tmp_path / "in", dtype="f32")
    edit(tmp_path / "in", dtype=dtype)
    assert spec_of(tmp_path / "in")["embed_scale"] == scale


def test_a_token_without_a_row_is_none_of_the_models(tmp_path: Path) -> None:
    make_gemma(tmp_path / "in")
    path = tmp_path / "in" / "tokenizer.json"
    data = json.loads(path.read_text())
    image = {**data["added_tokens"][0], "content": "<image_soft_token>", "id": 320}
    data["added_tokens"].append(image)
    path.write_text(json.dumps(data))
    assert spec_of(tmp_path / "in")["valid_vocab"] == 288
    image["content"] = "<another>"
    path.write_text(json.dumps(data))
    with pytest.raises(CheckpointError, match="last id 320"):
        spec_of(tmp_path / "in")


@pytest.mark.parametrize(
    ("keys", "word"),
    [
        ({"final_logit_softcapping": 30.0}, "final_logit_softcapping"),
        ({"attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
        ({"hidden_activation": "silu"}, "hidden_activation"),
        ({"use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ({"layer_types": ["chunked_attention"] * 4}, "chunked_attention"),
        ({"rope_scaling": {"rope_type": "longrope", "factor": 8.0}}, "longrope"),
        ({"rope_parameters": {"sliding_attention": {"rope_type": "linear"}}}, "rope_type"),
    ],
)
def test_what_is_not_served_is_refused(tmp_path: Path, keys: dict[str, Any], word: str) -> None:
    make_gemma(tmp_path / "in")
    edit(tmp_path / "in", **keys)
    with pytest.raises(UnsupportedModelError, match=word) as caught:
        spec_of(tmp_path / "in")
    assert str(tmp_path / "in" / "config.json") in str(caught.value)


@pytest.mark.parametrize(
    "keys",
    [
        {"layer_types": ["full_attention"]},
        {"sliding_window": 0},
        {"query_pre_attn_scalar": 0},
        {"rope_local_base_freq": "10000"},
        {"num_key_value_heads": 3},
    ],
)
def test_lies_are_refused(tmp_path: Path, keys: dict[str, Any]) -> None:
    make_gemma(tmp_path / "in")
    edit(tmp_path / "in", **keys)
    with pytest.raises(CheckpointError, match=next(iter(keys)).replace("key_value", ".*")):
        spec_of(tmp_path / "in")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("windows", [9]),
        ("windows", [-1, 0, 9, 0]),
        ("rope_local_theta", -1.0),
        ("embed_scale", 0),
        ("post_norms", False),
        ("activation", "relu"),
    ],
)
def test_spec_lies(
    packed: Callable[..., Path], open_core: Callable[..., Any], field: str, value: Any
) -> None:
    error = UnsupportedModelError if field == "activation" else ModelFormatError
    with pytest.raises(error):
        open_core(packed("gemma3", "f32"), spec={field: value})


@pytest.mark.parametrize("case", CASES)
def test_golden_can_be_made_again(golden: Golden, case: str) -> None:
    """With the `judge` extra: today's transformers still says the same."""
    need_judge()
    found = logits_of(MAKER.official(case), MAKER.token_ids())[ROWS]
    golden.assert_logits(case, found, AGAIN)


def test_layers_run_alone_for_calibration(
    packed: Callable[..., Path], open_core: Callable[..., Any], tmp_path: Path
) -> None:
    """Window, scale and norms behind the halves are those of the whole model."""
    make_gemma(tmp_path / "in", seed=2)
    export_checkpoint(tmp_path / "in", tmp_path / "out", recipe="f32")
    core, read = open_core(tmp_path / "out"), dict[str, np.ndarray]()
    ids = np.arange(40, dtype=np.int32) * 5

    def observe(layer: int, half: str, arrays: dict[str, np.ndarray]) -> None:
        read.update({f"{layer}.{half}.{name}": value for name, value in arrays.items()})

    core.observe(observe)
    core.commit(core.new_state(40), ids, logits="none")
    with Checkpoint(tmp_path / "in") as source:
        model = plan_export(source).model
        passages = [Passage(ids, np.zeros(40, bool))]
        hidden = Calibrator(source, model, model.spec, passages, hessians=False)._embeddings()
        for layer in range(4):
            hidden = run_layer(source, model, model.spec, layer, passages, hidden).output
            want = read[f"{layer}.feed_forward.residual"] + read[f"{layer}.feed_forward.output"]
            assert relative_error(hidden, want) < 1e-5
