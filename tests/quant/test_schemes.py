"""Sizes and validity of the number formats."""

from __future__ import annotations

from typing import Any

import pytest

from clover_edge.errors import ArgumentError
from clover_edge.quant import CODEBOOK, RECIPES, Rule, Scheme, fit_group, recipe, scheme_for
from clover_edge.quant.recipes import CLASSES


@pytest.mark.parametrize(
    ("scheme", "shape", "nbytes"),
    [
        (Scheme("f32"), (3, 5), 60),
        (Scheme("bf16"), (7,), 14),
        (Scheme("int4", 32), (16, 32), 32 + 256),
        (Scheme("int4", 128), (17, 256), 2 * 2 * (32 + 1024)),
        (Scheme("int8", 32), (1, 64), 2 * (32 + 512)),
        (Scheme("int8", 64), (33, 64), 3 * (32 + 1024)),
        (Scheme("codebook4", 32, CODEBOOK), (16, 32), 32 + 256),
        (Scheme("int3", 64), (17, 128), 2 * 2 * 416),
    ],
)
def test_bytes_follow_the_contract(scheme: Scheme, shape: tuple[int, ...], nbytes: int) -> None:
    assert scheme.nbytes(shape) == nbytes


@pytest.mark.parametrize(
    ("columns", "asked", "group"),
    [(128, 128, 128), (192, 128, 64), (96, 128, 32), (128, 32, 32), (48, 128, None)],
)
def test_group_is_the_largest_that_divides(columns: int, asked: int, group: int | None) -> None:
    assert fit_group(columns, asked) == group


def test_columns_that_no_group_divides_stay_bf16() -> None:
    assert scheme_for("int4", (64, 40), 32) == Scheme("bf16")
    assert scheme_for("int8", (64, 96), 64) == Scheme("int8", 32)
    assert scheme_for("f32", (64,), 64) == Scheme("f32")
    assert scheme_for("codebook4", (64, 96), 64) == Scheme("codebook4", 32, CODEBOOK)
    assert scheme_for("codebook4", (64, 40), 32) == Scheme("bf16")


@pytest.mark.parametrize("group", [32, 64, 128])
def test_int3_has_one_group_and_gives_way_to_int4(group: int) -> None:
    assert scheme_for("int3", (64, 192), group) == Scheme("int3", 64)
    assert scheme_for("int3", (64, 96), group) == Scheme("int4", 32)
    assert scheme_for("int3", (64, 40), group) == Scheme("bf16")


@pytest.mark.parametrize(
    ("name", "group"), [("int5", 32), ("int3", 32), ("int4", 0), ("int8", 48), ("f32", 32)]
)
def test_scheme_that_does_not_exist_is_refused(name: str, group: int) -> None:
    with pytest.raises(ArgumentError, match=name):
        Scheme(name, group)


@pytest.mark.parametrize(
    "codebook",
    [
        (),
        CODEBOOK[:15],
        (*CODEBOOK, 127),
        tuple(reversed(CODEBOOK)),
        (CODEBOOK[0], *CODEBOOK[:15]),
        (-128, *CODEBOOK[1:]),
        (*CODEBOOK[:15], 128),
        (*CODEBOOK[:15], 106.0),
        (*CODEBOOK[:8], True, *CODEBOOK[9:]),
        None,
        "0123456789abcdef",
    ],
)
def test_codebook_that_is_none_is_refused(codebook: Any) -> None:
    with pytest.raises(ArgumentError, match="is not 16 ascending integers from -127 to 127"):
        Scheme("codebook4", 32, codebook)


@pytest.mark.parametrize("codebook", [CODEBOOK, [], None])
def test_codebook_of_another_scheme_is_refused(codebook: Any) -> None:
    with pytest.raises(ArgumentError, match="int4 takes no codebook"):
        Scheme("int4", 32, codebook)


@pytest.mark.parametrize("shape", [(), (0, 32), (16,), (16, 48), (2, 16, 32)])
def test_shape_that_int4_cannot_hold_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ArgumentError):
        Scheme("int4", 32).nbytes(shape)


def test_group_size_outside_the_format_is_refused() -> None:
    with pytest.raises(ArgumentError, match="48"):
        fit_group(96, 48)


def test_recipes_cover_every_class_and_keep_small_tensors_float() -> None:
    for name in RECIPES:
        assert recipe(name).name == name and not recipe(name).rules
        assert set(recipe(name).classes) == set(CLASSES)
        assert recipe(name).classes["float"] == "f32"
    int4 = recipe("int4").classes
    assert int4["expert"] == "int4"
    assert int4["dense"] == int4["embed"] == int4["head"] == "int8"
    small = recipe("int4-small").classes
    assert small["expert"] == "int3"
    assert small["dense"] == small["embed"] == small["head"] == "int4"


@pytest.mark.parametrize(
    ("scheme", "group", "said"),
    [("int5", None, "int5"), ("int3", 32, "32"), ("int8", 48, "48"), ("bf16", 32, "none")],
)
def test_rule_that_no_scheme_fits_is_refused(scheme: str, group: int | None, said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        Rule("embed", scheme, group)


def test_unknown_recipe_names_the_known_ones() -> None:
    with pytest.raises(ArgumentError, match=r"int5.*int4-all"):
        recipe("int5")
