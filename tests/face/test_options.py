"""Generation options: the checkpoint's first, the caller's second, all of them checked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from clover_edge.errors import ArgumentError, ModelFormatError
from clover_edge.generation import GenerationConfig

SPEC = {"block_size": 32, "num_experts": 16, "vocab_size": 320}


def resolve(defaults: dict[str, Any] | None = None, **options: Any) -> GenerationConfig:
    return GenerationConfig.resolve("folder/config.json", SPEC, defaults or {}, **options)


def test_order_of_defaults() -> None:
    assert resolve().block_length == 32
    assert resolve().threshold == 0.9
    model = {"threshold": 0.7, "top_k": 20, "eos_token_id": [3, 5], "unknown": 1}
    assert (resolve(model).threshold, resolve(model).top_k) == (0.7, 20)
    assert resolve(model, threshold=0.5).threshold == 0.5
    assert resolve(model, threshold=None).threshold == 0.7  # None: as if left out
    assert resolve(model).stop_token_ids == (3, 5)
    assert resolve({"eos_token_id": 7}).stop_token_ids == (7,)


def test_numbers_of_numpy_are_numbers() -> None:
    config = resolve(max_new_tokens=np.int64(3), temperature=np.float32(0.5), seed=np.uint8(1))
    assert config.max_new_tokens == 3
    assert type(config.max_new_tokens) is int
    assert type(config.temperature) is float


def test_one_stop_string_or_several() -> None:
    assert resolve(stop="a").stop == ("a",)
    assert resolve(stop=["a", "b"]).stop == ("a", "b")
    assert resolve(stop=[]).stop == ()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("max_new_tokens", v) for v in (0, -1, 1.5, "8", True, 2**31, float("nan"), [1])],
        *[("block_length", v) for v in (0, 33, 1.0)],
        *[("threshold", v) for v in (-0.1, 1.1, float("nan"), float("inf"), "0.9", True)],
        *[("steps", v) for v in (-1, 0.5)],
        *[("temperature", v) for v in (-1e-9, float("inf"), float("nan"), "hot")],
        *[("top_k", v) for v in (-1, 2.0)],
        *[("top_p", v) for v in (0, 1.01, float("nan"))],
        *[("seed", v) for v in (-1, 2**63, 0.0)],
        *[("stop", v) for v in ("", [""], 3, [3], b"x", {"a": 1})],
        *[("presence_penalty", v) for v in (101, float("nan"))],
        *[("frequency_penalty", v) for v in (-101, None.__class__)],
        *[("repetition_penalty", v) for v in (0, -1, float("inf"))],
        *[("coreset_size", v) for v in (-1, 17)],
        *[("mode", v) for v in ("AR", "", 1)],
    ],
)
def test_values_outside_their_domain(name: str, value: Any) -> None:
    with pytest.raises(ArgumentError, match=rf"^{name}: ") as caught:
        resolve(**{name: value})
    shown = value[0] if isinstance(value, list) and name == "stop" else value
    assert repr(shown) in str(caught.value)


def test_unknown_option() -> None:
    with pytest.raises(ArgumentError, match=r"^max_tokens: is no generation option"):
        resolve(max_tokens=3)
    with pytest.raises(ArgumentError, match=r"^stop_token_ids: is no"):
        resolve(stop_token_ids=[1])


@pytest.mark.parametrize(
    ("defaults", "reason"),
    [
        ({"threshold": 2}, "threshold: 2 "),
        ({"block_length": "x"}, "block_length: 'x' "),
        ({"eos_token_id": [400]}, "eos_token_id: 400 "),
        ({"eos_token_id": "2"}, "eos_token_id: '2' "),
        ({"eos_token_id": [None]}, "eos_token_id: None "),
    ],
)
def test_a_folder_with_bad_defaults(defaults: dict[str, Any], reason: str) -> None:
    with pytest.raises(ModelFormatError, match=reason) as caught:
        resolve(defaults)
    assert (caught.value.path, caught.value.field) == ("folder/config.json", "generation")
