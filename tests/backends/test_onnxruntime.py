"""The whole face over onnxruntime: what load() gives back does what it does over the core."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clover_edge
from clover_edge import DraftEvent, TextEvent
from clover_edge.cli.main import main
from clover_edge.errors import ArgumentError, CloverError, ModelFormatError, UnsupportedModelError

pytest.importorskip("onnx", reason="needs extra onnx")
pytest.importorskip("onnxruntime", reason="needs extra onnx")

PROMPT = [5, 17, 60, 3, 99, 41, 7]
Open = Callable[..., Any]
Pair = tuple[clover_edge.Model, clover_edge.Model]


@pytest.fixture(scope="session")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """Exports a packed folder, once."""
    from clover_edge.export.onnx import export_onnx

    made: dict[Path, Path] = {}

    def make(packed: Path) -> Path:
        if packed not in made:
            made[packed] = tmp_path_factory.mktemp("onnx") / packed.name
            export_onnx(packed, made[packed])
        return made[packed]

    return make


@pytest.fixture(scope="module")
def pair(tiny: Open, pack: Open, graphs: Open) -> Iterator[Pair]:
    """A tiny Clover at f32: over the core, and over its graphs."""
    packed = pack(tiny(seed=21, overrides={"max_position_embeddings": 512}), "f32")
    with (
        clover_edge.load(packed, threads=1) as core,
        clover_edge.load(graphs(packed), backend="onnxruntime", threads=1) as other,
    ):
        yield core, other


def both(pair: Pair, run: Callable[[clover_edge.Model], Any]) -> Any:
    """What the models agree on."""
    want, found = map(run, pair)
    assert found == want
    return want


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mode": "ar"},
        {"temperature": 0.7, "top_k": 20, "seed": 3},
        {"steps": 4, "block_length": 16},
        {"repetition_penalty": 1.2},
    ],
)
def test_texts(pair: Pair, options: dict[str, Any]) -> None:
    ids = both(pair, lambda m: m.generate(PROMPT, max_new_tokens=40, **options).token_ids)
    assert len(set(ids)) > 3


def test_streams_stop_strings_and_logprobs(pair: Pair) -> None:
    text = pair[0].generate(PROMPT, max_new_tokens=48).text
    stop = text[12:15]

    def run(model: clover_edge.Model) -> Any:
        events = list(model.stream(PROMPT, max_new_tokens=48, stop=stop))
        drafts = [event.token_ids for event in events if isinstance(event, DraftEvent)]
        return "".join(e.text for e in events if isinstance(e, TextEvent)), drafts

    shown, drafts = both(pair, run)
    assert shown == text[: text.index(stop)] and drafts
    noted = [
        [p.logprob for p in m.generate(PROMPT, max_new_tokens=24, logprobs=True).logprobs or ()]
        for m in pair
    ]
    np.testing.assert_allclose(*noted, atol=1e-4)


def test_sessions(pair: Pair, tmp_path: Path) -> None:
    """A turn goes on from the last one's state, an edited prompt from a mark, a file from both."""

    def run(model: clover_edge.Model) -> Any:
        session = model.session(capacity=400)
        first = session.generate(PROMPT * 6, max_new_tokens=20)
        longer = [*PROMPT * 6, *first.token_ids, 9, 8, 7]
        second = session.generate(longer, max_new_tokens=20)
        edited = session.generate([*PROMPT * 6, 11, 12], max_new_tokens=20)
        session.save(tmp_path / model.backend)
        back = model.load_session(tmp_path / model.backend)
        third = back.generate([*PROMPT * 6, 11, 12, *edited.token_ids, 4], max_new_tokens=9)
        results = first, second, edited, third
        return [(each.token_ids, each.counters.cached_tokens) for each in results]

    results = both(pair, run)
    assert all(cached > 0 for _, cached in results[1:])
    with pytest.raises(CloverError, match="model: is another one"):
        pair[0].load_session(tmp_path / "onnxruntime")


def test_what_it_says_of_itself(pair: Pair) -> None:
    core, other = pair
    assert (core.backend, other.backend) == ("core", "onnxruntime")
    told = other.info()
    assert told["backend"] == "onnxruntime" and told["providers"] == ["CPUExecutionProvider"]
    assert (told["threads"], told["recipe"], core.info()["providers"]) == (1, "f32", [])
    counters = other.generate(PROMPT, max_new_tokens=40).counters
    assert counters.rows > 0 and counters.forward_passes > counters.blocks > 0
    assert counters.experts_touched == counters.bytes_read == 0


def test_what_it_refuses(pair: Pair) -> None:
    for named, options in {
        "skip_rows": {"skip_rows": True},
        "coreset 4": {"coreset_size": 4},
        "coreset_share": {"coreset_share": 0.5},
        "mode speculative": {"mode": "speculative"},
    }.items():
        with pytest.raises(UnsupportedModelError, match=named):
            pair[1].generate(PROMPT, **options)
    with pytest.raises(ArgumentError, match="quality: 'exact': plans know the core alone"):
        pair[1].generate(PROMPT, quality="exact")
    with pytest.raises(UnsupportedModelError, match="kv"):
        clover_edge.load(pair[1].path, backend="onnxruntime", kv="int8")


def test_providers_with_options(pair: Pair) -> None:
    path = pair[1].path
    chosen = [("CPUExecutionProvider", {"use_arena": "1"})]
    with clover_edge.load(path, backend="onnxruntime", providers=chosen, threads=2) as model:
        assert model.info()["threads"] == 2
        found = model.generate(PROMPT, max_new_tokens=24).token_ids
    assert found == pair[0].generate(PROMPT, max_new_tokens=24).token_ids


def test_graphs_of_another_model(pair: Pair, tiny: Open, pack: Open, graphs: Open) -> None:
    """Found when they are opened, or by the first pass."""
    mixed = pair[1].path.parent / "mixed"
    shutil.copytree(graphs(pack(tiny(seed=2, layers=2), "f32")), mixed)
    config = json.loads((mixed / "config.json").read_text())
    config["clover_edge"]["spec"] = dict(pair[1].spec)
    (mixed / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelFormatError, match="is no output of the graph"):
        clover_edge.load(mixed, backend="onnxruntime")


def test_block_mask_and_full_attention(
    tiny_blocks: Open, tiny_full_attention: Open, pack: Open, graphs: Open
) -> None:
    ids: list[Any] = []
    for checkpoint in (tiny_blocks("sdar", seed=3), tiny_full_attention("dream", seed=3)):
        packed = pack(checkpoint, "f32")
        with (
            clover_edge.load(packed, threads=1) as core,
            clover_edge.load(graphs(packed), backend="onnxruntime", threads=1) as other,
        ):
            given = {"cache": "none"} if "cache" in core.generation else {}
            assert "cache" not in other.generation  # what backends do not have is no default there
            for prompt in (PROMPT, 7 * PROMPT):  # the longer one is several blocks in a pass
                for model, options in ((core, given), (other, {})):
                    text = model.generate(prompt, max_new_tokens=24, steps=4, **options)
                    ids.append(text.token_ids)
                assert ids[-2] == ids[-1]
    assert len(ids) == 8


def test_commands(pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    core, other = pair
    common = ["--max-new-tokens", "16", "--raw", "-q", "--json", "--threads", "1"]
    texts = []
    for path, arguments in (
        (core.path, []),
        (other.path, ["--backend", "onnxruntime", "--provider", "CPUExecutionProvider"]),
    ):
        assert main(["run", str(path), "hello", *common, *arguments]) == 0
        texts.append(json.loads(capsys.readouterr().out)["text"])
    assert texts[0] == texts[1]


def test_bench(pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["-p", "8", "-n", "4", "-r", "1", "--steps", "2", "--no-ceilings", "-o", "json"]
    path = str(pair[1].path)
    assert main(["bench", path, *flags, "--backend", "onnxruntime"]) == 0
    records = json.loads(capsys.readouterr().out)
    assert [record["test"] for record in records] == ["pp8", "blk32", "tg4", "ar4"]
    assert {record["backends"] for record in records} == {"onnxruntime: CPUExecutionProvider"}
    assert main(["bench", path, *flags]) == 1
    assert "--backend onnxruntime" in capsys.readouterr().err


def test_the_server_takes_it_from_the_environment(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = pytest.importorskip("clover_edge.server.live", reason="needs extra server")
    served: list[dict[str, Any]] = []
    monkeypatch.setattr(live, "serve", lambda model, *_: served.append(model.info()))
    monkeypatch.setenv("CLOVER_BACKEND", "onnxruntime")
    monkeypatch.setenv("CLOVER_PROVIDER", "CPUExecutionProvider")
    assert main(["serve", str(pair[1].path), "-q"]) == 0
    assert served[0]["providers"] == ["CPUExecutionProvider"]
    monkeypatch.setenv("CLOVER_BACKEND", "tpu")
    assert main(["serve", str(pair[1].path), "-q"]) == 2
