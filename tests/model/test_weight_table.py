"""Tables and specs that lie: the core re-checks what it is handed, and names what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_core import SPEC, TinyFile, tokens, write_tiny

from clover_edge import _core
from clover_edge.errors import ModelFormatError, UnsupportedModelError

Row = dict[str, Any]
BIG = 2**63 - 1


@pytest.fixture
def file(tmp_path: Path) -> TinyFile:
    return write_tiny(tmp_path / "weights.bin")


def change(name: str, **values: Any) -> Callable[[TinyFile], None]:
    return lambda file: file.row(name).update(values)


def shift(name: str, by: int) -> Callable[[TinyFile], None]:
    return lambda file: file.row(name).update(offset=file.row(name)["offset"] + by)


def drop(name: str) -> Callable[[TinyFile], None]:
    return lambda file: file.table.remove(file.row(name))


def add(name: str, **values: Any) -> Callable[[TinyFile], None]:
    return lambda file: file.table.append({**file.row("embed"), "name": name, **values})


def forget(name: str, field: str) -> Callable[[TinyFile], None]:
    return lambda file: file.row(name).pop(field)


EXPERTS = "layers.0.experts.up"
DOWN = "layers.0.shared.down"
BOOK = list(range(-120, 120, 15))
BOOKS: list[tuple[Any, str]] = [
    ([], "has 0 values, not 16"),
    (BOOK[:15], "has 15 values, not 16"),
    ([*BOOK, 127], "has 17 values, not 16"),
    ([-128, *BOOK[1:]], "-128, below -127"),
    ([*BOOK[:15], 128], "128 is too large"),
    ([*BOOK[:15], -129], "-129 is too large"),
    (BOOK[::-1], "does not ascend at value 1"),
    ([*BOOK[:15], BOOK[14]], "does not ascend at value 15"),
    ([*BOOK[:15], 105.0], "no integer"),
    ([*BOOK[:15], True], "no integer"),
    ("0123456789abcdef", "no list"),
    (None, "no list"),
]


def codebook4(book: Any) -> Row:
    return {"scheme": "codebook4", "group": 32, "codebook": book}


LIES: list[tuple[Callable[[TinyFile], None], str, str]] = [
    (drop("final_norm"), "final_norm", "is missing"),
    (drop("layers.1.attn.out"), r"layers\.1\.attn\.out", "is missing"),
    (drop(EXPERTS), r"experts\.up", "is missing"),
    (add("layers.0.attn.in"), r"layers\.0\.attn\.in", "is not part of this model"),
    (add("layers.9.norm1"), r"layers\.9\.norm1", "is not part of this model"),
    (add("embed"), "embed", "twice"),
    (change("embed", shape=[48, 160]), "embed", r"shape \[48, 160\], the spec says \[160, 48\]"),
    (change("embed", shape=[160]), "embed", "shape"),
    (change("embed", shape=[]), "embed", "0 dimensions"),
    (change("embed", shape=[160, 48, 1, 1]), "embed", "4 dimensions"),
    (change("embed", shape=[-160, -48]), "embed", "out of range"),
    (change("embed", shape=[BIG, BIG]), "embed", "out of range"),
    (change("embed", shape=[2**64, 1]), "embed", "too large"),
    (change("embed", shape="x"), "embed", "no list"),
    (change("embed", shape=[160, 48.0]), "embed", "no integer"),
    (change("embed", scheme="int5"), "embed", 'scheme "int5"'),
    (change("embed", scheme=None), "embed", "no string"),
    (change("embed", scheme="bf16"), "embed", "bytes"),
    (change("embed", scheme="int4", group=32), "embed", "does not divide its 48 columns"),
    (change("embed", scheme="int8", group=0), "embed", "group 0"),
    (change("embed", scheme="int8", group=16), "embed", "group 16"),
    (change("embed", scheme="int3", group=32), "embed", "group 32 is not 64"),
    (change("embed", scheme="int3", group=128), "embed", "group 128 is not 64"),
    (change("embed", scheme="int3", group=64), "embed", "does not divide its 48 columns"),
    (change("embed", scheme="codebook4", group=0), "embed", "group 0"),
    (change(DOWN, scheme="int8", group=32), DOWN, "takes 1632"),
    (change(DOWN, scheme="codebook4", group=32, codebook=BOOK), DOWN, "takes 864"),
    (change("layers.1.attn.out", scheme="int3", group=64), r"attn\.out", "takes 1248"),
    *((change(DOWN, bytes=864, **codebook4(book)), DOWN, reason) for book, reason in BOOKS),
    (change(DOWN, bytes=864, scheme="codebook4", group=32), DOWN, "has 0 values, not 16"),
    (change(DOWN, bytes=864, scheme="int4", group=32, codebook=BOOK), DOWN, "int4 takes no"),
    (change("final_norm", codebook=BOOK), "final_norm", "f32 takes no codebook"),
    (change("layers.0.router", scheme="bf16"), "router", "must be f32"),
    (change("layers.0.norm1", scheme="bf16"), "norm1", "must be f32"),
    (change("layers.0.delta.ba", scheme="int8", group=32), r"delta\.ba", "must be f32"),
    (change("embed", bytes=0), "embed", "0 bytes"),
    (change("embed", bytes=160 * 48 * 4 - 4), "embed", "bytes"),
    (change("embed", bytes=-1), "embed", "negative"),
    (change("embed", bytes=BIG), "embed", "ends behind the file"),
    (change("embed", offset=BIG), "embed", "ends behind the file"),
    (change("embed", offset=-64), "embed", "negative"),
    (shift("embed", 4), "embed", "64-byte boundary"),
    (change("embed", file=1), "embed", "file index 1"),
    (change("embed", file=-1), "embed", "file index -1"),
    (change("embed", stride=64), "embed", "do not fit"),
    (change(EXPERTS, stride=0), r"experts\.up", "needs a record stride"),
    (change(EXPERTS, stride=64), r"experts\.up", "do not fit"),
    (change(EXPERTS, stride=BIG // 64 * 64), r"experts\.up", "do not fit"),
    (change(EXPERTS, stride=6144 * 3 + 4), r"experts\.up", "64-byte boundary"),
    (change("layers.2.experts.up", stride=6144 * 6), r"experts\.up", "ends behind the file"),
    (change(EXPERTS, shape=[7, 32, 48]), r"experts\.up", "the spec says"),
    (forget("embed", "offset"), "embed", '"offset" is missing'),
    (forget("embed", "name"), "a row", '"name" is missing'),
    (change("embed", kind="x"), "embed", '"kind" is not known'),
]


@pytest.mark.parametrize("number", range(len(LIES)))
def test_a_table_that_lies(file: TinyFile, number: int) -> None:
    lie, name, reason = LIES[number]
    lie(file)
    with pytest.raises(ModelFormatError, match=rf"(weights\.bin|table): .*{name}.*: .*{reason}"):
        file.open()


def test_the_error_is_in_parts(file: TinyFile) -> None:
    change("head", scheme="int5")(file)
    with pytest.raises(ModelFormatError) as caught:
        file.open()
    assert caught.value.path == str(file.path)
    assert caught.value.field == "head"
    assert caught.value.reason == 'scheme "int5" is not known'


def test_data_padded_to_the_boundary_is_accepted(file: TinyFile) -> None:
    row = file.row("layers.0.delta.A_log")
    assert row["bytes"] == 16
    row["bytes"] = 64
    file.open()


def test_a_file_that_is_cut_off(file: TinyFile) -> None:
    file.path.write_bytes(file.path.read_bytes()[:-64])
    with pytest.raises(
        ModelFormatError, match=r"weights\.bin: layers\.2\.experts\.\w+: .*ends behind"
    ):
        file.open()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    "name", ["final_norm", "layers.1.attn.k_norm", "layers.2.delta.conv_right"]
)
def test_small_tensors_are_finite(file: TinyFile, name: str, value: float) -> None:
    file.write(name, np.array([0.5, value]))
    with pytest.raises(ModelFormatError, match=rf"{name}: value 1 is not finite"):
        file.open()


def test_a_tied_head_needs_no_head(file: TinyFile) -> None:
    with pytest.raises(ModelFormatError, match="head: is not part of this model"):
        file.open(spec={"tie_embeddings": True})
    drop("head")(file)
    core = file.open(spec={"tie_embeddings": True})
    assert core.commit(core.new_state(8), tokens(8)).shape == (1, 160)


SPEC_LIES: list[tuple[Row, str]] = [
    ({"hidden_size": "48"}, "hidden_size: is no integer but str"),
    ({"hidden_size": True}, "hidden_size: is no integer but bool"),
    ({"hidden_size": 48.0}, "hidden_size: is no integer but float"),
    ({"hidden_size": 2**40}, "hidden_size: 1099511627776 is too large"),
    ({"hidden_size": 2**70}, "hidden_size: is too large"),
    ({"rms_eps": "x"}, "rms_eps: is no number"),
    ({"rms_eps": float("nan")}, "rms_eps"),
    ({"rms_eps": 0}, "rms_eps"),
    ({"norm_offset": 0.5}, "norm_offset: 0.5.* neither 0 nor 1"),
    ({"layer_types": ["deltanet"]}, "layer_types: has 1 entries for 3 layers"),
    ({"layer_types": None}, "layer_types: is no list"),
    ({"num_heads": 3}, "num_heads: 3 is no multiple of num_kv_heads = 2"),
    ({"num_heads": 2**24, "num_kv_heads": 2**24, "head_dim": 2**24}, "head_dim: .* too wide"),
    ({"rotary_dim": 7}, "rotary_dim"),
    ({"rotary_dim": 18}, "rotary_dim"),
    ({"attn_output_gate": 1}, "attn_output_gate: is no bool"),
    ({"attn_scale": float("inf")}, "attn_scale"),
    ({"delta_v_heads": 3}, "delta_v_heads"),
    ({"delta_k_dim": 2**20, "delta_v_dim": 2**20}, "delta_"),
    ({"conv_taps": 1}, "conv_taps"),
    ({"top_k": 9}, "top_k: 9 is outside"),
    ({"coreset_size": 1}, "coreset_size: 1 is below top_k = 2"),
    ({"mask_token_id": 160}, "mask_token_id"),
    ({"valid_vocab": 161}, "valid_vocab"),
    ({"max_positions": 0}, "max_positions"),
    ({"block_size": 2000}, "block_size"),
    ({"history_ref_rows": 0}, "history_ref_rows"),
    ({"colour": 1}, "colour: is not known"),
    ({"rope_inv_freq": [0.1] * 4}, "rope_theta: is not known"),
    ({"rope_attention_factor": float("inf")}, "rope_attention_factor"),
    ({"ffn_types": ["dense"]}, "ffn_types: has 1 entries for 3 layers"),
    ({"ffn_types": ["experts", "dense", "experts"]}, "dense_intermediate: is missing"),
    ({"qk_norm": None}, "qk_norm: is no bool"),
]


@pytest.mark.parametrize(("lie", "message"), SPEC_LIES)
def test_a_spec_that_lies(file: TinyFile, lie: Row, message: str) -> None:
    with pytest.raises(ModelFormatError, match=f"spec: {message}"):
        file.open(spec=lie)


@pytest.mark.parametrize(
    "frequencies",
    [[0.1] * 3, [0.1] * 5, [0.1, 0.1, 0.1, -0.1], [0.1, 0.1, 0.1, float("nan")], [1, 1, 1, 2e3]],
)
def test_rotary_frequencies_that_lie(file: TinyFile, frequencies: list[float]) -> None:
    spec = {name: value for name, value in SPEC.items() if name != "rope_theta"}
    with pytest.raises(ModelFormatError, match="spec: rope_inv_freq"):
        _core.Model({**spec, "rope_inv_freq": frequencies}, [str(file.path)], file.table)


def test_rotary_frequencies_are_those_of_the_base(file: TinyFile) -> None:
    spec = {name: value for name, value in SPEC.items() if name != "rope_theta"}
    plain = [SPEC["rope_theta"] ** (-2 * i / 8) for i in range(4)]
    core = _core.Model({**spec, "rope_inv_freq": plain}, [str(file.path)], file.table)
    found, want = (each.commit(each.new_state(9), range(9)) for each in (core, file.open()))
    assert np.array_equal(found, want)


OPTIONAL = {"router", "norm_topk", "attn_output_gate"}


@pytest.mark.parametrize("field", sorted(SPEC))
def test_a_spec_without_a_field(file: TinyFile, field: str) -> None:
    spec = {name: value for name, value in SPEC.items() if name != field}
    if field in OPTIONAL:  # the default is the value that it has here
        _core.Model(spec, [str(file.path)], file.table)
        return
    with pytest.raises(ModelFormatError, match=f"spec: {field}: is missing"):
        _core.Model(spec, [str(file.path)], file.table)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("router", "hash"),
        ("router_bias", True),  # of a softmax
        ("mask", "full"),
        ("mask", "block"),  # of DeltaNet layers
        ("block_origin", "absolute"),  # of a causal mask
        ("block_origin", "somewhere"),
        ("logit_shift", 2),
        ("preview_decay", True),
        ("layer_types", ["deltanet", "mamba", "deltanet"]),
        ("ffn_types", ["experts", "experts", "linear"]),
    ],
)
def test_a_spec_that_this_build_does_not_serve(file: TinyFile, field: str, value: Any) -> None:
    with pytest.raises(UnsupportedModelError, match=r"spec: .*not supported"):
        file.open(spec={field: value})
