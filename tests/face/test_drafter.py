"""A drafter at the face: loaded beside its model, the same text, and refusals by name."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tiny_drafter import BLOCK, make_drafter

import clover_edge
from clover_edge.cli.main import main
from clover_edge.errors import (
    ArgumentError,
    ContextLengthError,
    ModelFormatError,
    UnsupportedModelError,
)
from clover_edge.export import export_checkpoint

PROMPT = "the other"
ROOM = 256


@pytest.fixture(scope="module")
def folder(tiny_transformer: Callable[..., Any], pack: Callable[..., Path]) -> Path:
    return pack(tiny_transformer("qwen3", seed=7, max_position_embeddings=ROOM), "int4")


@pytest.fixture(scope="module")
def drafters(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    made: dict[str, Path] = {}

    def make(**config: Any) -> Path:
        key = json.dumps(config)
        if key not in made:
            made[key] = tmp_path_factory.mktemp("drafter") / "out"
            make_drafter(made[key].parent / "in", **config)
            export_checkpoint(made[key].parent / "in", made[key], recipe="int4")
        return made[key]

    return make


@pytest.fixture(scope="module")
def pair(folder: Path, drafters: Callable[..., Path]) -> Iterator[clover_edge.Model]:
    with clover_edge.load(folder, threads=1, drafter=drafters()) as opened:
        yield opened


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0},
        {"temperature": 0, "block_length": 3},
        {"temperature": 0.9, "seed": 2},
        {"temperature": 0, "stop": "e"},
    ],
)
def test_the_same_text(pair: clover_edge.Model, folder: Path, options: dict[str, Any]) -> None:
    found = pair.generate(PROMPT, max_new_tokens=20, **options)
    other = {name: value for name, value in options.items() if name != "block_length"}
    with clover_edge.load(folder, threads=1) as alone:
        want = alone.generate(PROMPT, max_new_tokens=20, **other)
    assert (found.text, found.token_ids) == (want.text, want.token_ids)
    assert found.finish_reason == want.finish_reason
    assert found.counters.drafter_passes > 0 == found.counters.denoise_steps
    assert found.counters.drafter_bytes_read > 0 == want.counters.drafter_bytes_read
    assert want.counters.drafter_passes == 0
    events = list(pair.stream(PROMPT, max_new_tokens=20, **options))
    assert isinstance(events[-1], clover_edge.DoneEvent)
    assert events[-1].result.text == want.text
    assert pair.generate(PROMPT, mode="ar", max_new_tokens=20, **other).text == want.text


def test_a_whole_context_is_used(pair: clover_edge.Model) -> None:
    """Drafts end where the text does, so no answer is rounded up to blocks."""
    ids = pair.tokenize(PROMPT) * 20
    result = pair.generate(ids, max_new_tokens=ROOM - len(ids), temperature=0)
    assert len(result.token_ids) == ROOM - len(ids) or result.finish_reason == "stop"
    with pytest.raises(ContextLengthError):
        pair.generate(ids, max_new_tokens=ROOM - len(ids) + 1)


def test_a_drafter_of_less_context(folder: Path, drafters: Callable[..., Path]) -> None:
    short = drafters(max_position_embeddings=32)
    with clover_edge.load(folder, threads=1, drafter=short) as model:
        with pytest.raises(ContextLengthError, match="the model has 32"):
            model.generate(PROMPT, max_new_tokens=32)
        assert model.generate(PROMPT, max_new_tokens=32, mode="ar").counters.forward_passes


def test_info_names_it(pair: clover_edge.Model, drafters: Callable[..., Path]) -> None:
    assert pair.info()["drafter"] == str(drafters())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "diffusion"}, "mode: 'diffusion': the model is autoregressive"),
        ({"threshold": 0.5}, "threshold: 0.5: the model is autoregressive"),
        ({"block_length": BLOCK + 1}, f"block_length: 9 is not an integer from 1 to {BLOCK}"),
        ({"quality": "fast"}, "quality: 'fast': plans know no drafter"),
    ],
)
def test_options_it_has_no_use_for(
    pair: clover_edge.Model, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ArgumentError, match=message):
        pair.generate(PROMPT, **options)


def test_folders_in_the_wrong_place(
    folder: Path,
    drafters: Callable[..., Path],
    tiny: Callable[..., Any],
    pack: Callable[..., Path],
) -> None:
    with pytest.raises(UnsupportedModelError, match=r"out: is a drafter; load\(MODEL, drafter="):
        clover_edge.load(drafters())
    with pytest.raises(UnsupportedModelError, match="int4: is no drafter"):
        clover_edge.load(folder, drafter=folder)
    with pytest.raises(ModelFormatError, match="does not exist"):
        clover_edge.load(folder, drafter=folder / "nothing")
    clover = pack(tiny(seed=1, layers=3), "f32")
    with pytest.raises(UnsupportedModelError, match="drafts for itself"):
        clover_edge.load(clover, drafter=drafters())


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"vocab": 288}, "vocab_size 288 does not fit the model's 320"),
        ({"hidden": 32}, "hidden_size 32 does not fit the model's 64"),
        ({"target_layers": (0, 3)}, "drafts_for_layers 3 does not fit the model's 3"),
    ],
)
def test_drafters_that_do_not_fit(
    folder: Path, drafters: Callable[..., Path], sizes: dict[str, Any], message: str
) -> None:
    """Refused as they are loaded, by the names of both folders."""
    path = drafters(**sizes)
    with pytest.raises(ArgumentError, match=message) as caught:
        clover_edge.load(folder, drafter=path)
    assert str(path) in str(caught.value) and str(folder) in str(caught.value)


def test_command_line(
    folder: Path, drafters: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    plain = ["run", str(folder), PROMPT, "--raw", "--temperature", "0", "--max-new-tokens", "9"]
    assert main([*plain, "--json", "-q"]) == 0
    want = json.loads(capsys.readouterr().out)
    assert main([*plain, "--json", "-q", "--drafter", str(drafters())]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["text"] == want["text"]
    assert found["counters"]["drafter_passes"] > 0
    assert main([*plain, "--drafter", str(folder)]) == 1
    assert "is no drafter" in capsys.readouterr().err
    assert main(["inspect", str(drafters())]) == 0
    assert "drafter's context" in capsys.readouterr().out
