"""Calibration: texts, passages, layers run one by one, and what exports make of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracle.packed import read_packed

from clover_edge.errors import ArgumentError, ExportError
from clover_edge.export import export_checkpoint
from clover_edge.export.calibration.calibrator import Calibrator
from clover_edge.export.calibration.passages import LENGTH, Passage, make_passages
from clover_edge.export.calibration.reader import calibration_passages
from clover_edge.export.calibration.texts import read_texts
from clover_edge.export.checkpoint import Checkpoint
from clover_edge.export.families import read_model
from clover_edge.loader import open_core, read_folder

MASK = 3


def letters(text: str) -> list[int]:
    return [ord(letter) for letter in text]


def roles(messages: list[Any]) -> str:
    return " ".join(message["content"] for message in messages)


def test_built_in_texts() -> None:
    texts = read_texts(None, roles)
    assert len(texts) > 8 and all(len(text) > 200 for text in texts)


def test_texts_of_files(tmp_path: Path) -> None:
    plain, lines = tmp_path / "a.txt", tmp_path / "a.jsonl"
    plain.write_text("one text\n\nall of it\n")
    rows = [{"text": "first"}, {"messages": [{"content": "you"}, {"content": "me"}]}, {"text": " "}]
    lines.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    assert read_texts(plain, roles) == ["one text\n\nall of it\n"]
    assert read_texts(lines, roles) == ["first", "you me"]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.json", b"{}", "is a .txt or a .jsonl"),
        ("a.txt", b" \n", "holds no text"),
        ("a.txt", b"\xff\xfe", "not UTF-8"),
        ("a.jsonl", b'{"text": "x"}\n{"text"', "line 2: is not valid JSON"),
        ("a.jsonl", b'{"prompt": "x"}', 'line 1: has neither a "text"'),
        ("a.jsonl", b"[" * 100_000, "line 1: is not valid JSON"),
        ("a.txt", None, "No such file"),
    ],
)
def test_texts_that_cannot_be_used(
    tmp_path: Path, name: str, content: bytes | None, reason: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ExportError, match=reason) as caught:
        read_texts(path, roles)
    assert str(path) in str(caught.value)


def test_messages_that_a_template_refuses(tmp_path: Path, tiny: Any) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"messages": [{"role": "user"}]}')
    reason = r"line 1: messages\[0\].content: is missing"
    with Checkpoint(tiny().folder) as source, pytest.raises(ExportError, match=reason):
        calibration_passages(source, {}, "gptq", path, 100)


def test_passages_mask_at_every_ratio() -> None:
    texts = ["x" * 2000, "y" * 700, "z" * 10]
    passages = make_passages(texts, letters, block_size=16, most_tokens=2048)
    assert [len(passage) for passage in passages] == [LENGTH, LENGTH, LENGTH, 188, 324]
    ratios = [
        passage.masked[at : at + 16].mean() for passage in passages for at in range(0, 176, 16)
    ]
    assert min(ratios) > 0
    counts = np.histogram(ratios, bins=4, range=(0, 1))[0]
    assert counts.min() > len(ratios) / 8
    again = make_passages(texts, letters, block_size=16, most_tokens=2048)
    assert all((a.masked == b.masked).all() for a, b in zip(passages, again, strict=True))


def test_passages_do_not_cross_the_mask_token() -> None:
    text = "a" * 40 + "#" + "b" * 40
    passages = make_passages([text], letters, block_size=8, most_tokens=99, forbidden=ord("#"))
    assert [set(passage.ids.tolist()) for passage in passages] == [{ord("a")}, {ord("b")}]


def test_texts_too_short_for_a_passage() -> None:
    with pytest.raises(ExportError, match="as long as"):
        make_passages(["abc"], letters, block_size=8, most_tokens=99)


def walk(core: Any, spec: Any, passages: list[Passage]) -> dict[tuple[int, str], np.ndarray]:
    """What the whole model's layers read: commits' rows, then previews'."""
    seen: dict[tuple[str, int, str], list[np.ndarray]] = {}
    mode = ""

    def observe(layer: int, half: str, arrays: dict[str, np.ndarray]) -> None:
        for name, values in arrays.items():
            seen.setdefault((mode, layer, f"{half}.{name}"), []).append(values)

    core.observe(observe)
    width = spec.get("block_size", 128)
    for passage in passages:
        state = core.new_state(LENGTH + width)
        for at in range(0, len(passage), width):
            ids, masked = passage.ids[at : at + width], passage.masked[at : at + width]
            if spec.get("preview", True):
                mode = "preview"
                core.preview(state, np.where(masked, spec["mask_token_id"], ids), rows=[])
            mode = "commit"
            core.commit(state, ids, logits="none")
    core.observe(None)
    return {
        (layer, name): np.concatenate([*arrays, *seen.get(("preview", layer, name), [])])
        for (which, layer, name), arrays in seen.items()
        if which == "commit"
    }


@pytest.fixture(scope="module")
def walked(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A tiny checkpoint, passages, and what all its layers read when it runs as a whole."""
    folder = tiny().folder
    packed = tmp_path_factory.mktemp("walked") / "f32"
    export_checkpoint(folder, packed, recipe="f32")
    described = read_folder(packed)
    with Checkpoint(folder) as source:
        passages = calibration_passages(source, described.spec, "gptq", None, 300)
    arrays = walk(open_core(described, threads=1), described.spec, passages)
    return folder, described.spec, passages, arrays


@pytest.mark.parametrize("hessians", [False, True])
def test_layers_run_alone_read_the_same(walked: Any, hessians: bool) -> None:
    """Moments of every matrix against those of the whole model's activations."""
    folder, spec, passages, arrays = walked
    with Checkpoint(folder) as source:
        calibrator = Calibrator(
            source, read_model(source), spec, passages, hessians=hessians, threads=1
        )
        for layer, kind in enumerate(spec["layer_types"]):
            mixer = "attn" if kind == "attention" else "delta"
            for matrix, read in {
                f"{mixer}.in": "mixer.input",
                f"{mixer}.out": "mixer.mixed",
                "shared.gate_up": "feed_forward.input",
                "shared.down": "feed_forward.shared_hidden",
            }.items():
                x = arrays[layer, read].astype(np.float64)
                check(calibrator, f"layers.{layer}.{matrix}", None, x.T @ x / len(x), hessians)
            check_experts(calibrator, arrays, spec, layer, hessians)


def check(
    calibrator: Calibrator, name: str, expert: int | None, want: np.ndarray, hessians: bool
) -> None:
    found = calibrator(name, expert)
    assert found is not None
    np.testing.assert_allclose(found.mean_squares, np.diagonal(want), rtol=1e-3)
    assert (found.factor(1) is not None) == hessians


def check_experts(
    calibrator: Calibrator, arrays: Any, spec: Any, layer: int, hessians: bool
) -> None:
    ids = arrays[layer, "feed_forward.expert_ids"]
    weights = arrays[layer, "feed_forward.expert_weights"].astype(np.float64)
    x = arrays[layer, "feed_forward.input"].astype(np.float64)[:, None] * weights[:, :, None]
    hidden = arrays[layer, "feed_forward.expert_hidden"] * weights[:, :, None]
    for expert in range(spec["num_experts"]):
        for matrix, read in (("gate", x), ("up", x), ("down", hidden)):
            mine, all_ = read[ids == expert], read.reshape(-1, read.shape[-1])
            name = f"layers.{layer}.experts.{matrix}"
            if not len(mine):
                assert calibrator(name, expert) is None
                continue
            prior = 16 * (all_.T @ all_) / len(all_)
            check(calibrator, name, expert, (mine.T @ mine + prior) / (len(mine) + 16), hessians)


def test_models_without_previews(tiny_transformer: Any, tmp_path: Path) -> None:
    """They only commit; a dense feed-forward has calibration, too."""
    folder, packed = tiny_transformer("qwen2").folder, tmp_path / "f32"
    export_checkpoint(folder, packed, recipe="f32")
    described = read_folder(packed)
    with Checkpoint(folder) as source:
        passages = calibration_passages(source, described.spec, "gptq", None, 300)
        calibrator = Calibrator(
            source, read_model(source), described.spec, passages, hessians=True, threads=1
        )
        arrays = walk(open_core(described, threads=1), described.spec, passages)
        for layer in range(described.spec["num_layers"]):
            for matrix, read in {
                "attn.in": "mixer.input",
                "dense.gate_up": "feed_forward.input",
                "dense.down": "feed_forward.dense_hidden",
            }.items():
                x = arrays[layer, read].astype(np.float64)
                check(calibrator, f"layers.{layer}.{matrix}", None, x.T @ x / len(x), True)
    report = export_checkpoint(folder, tmp_path / "out", method="gptq", calib_tokens=300)
    assert report.coding.methods["rtn"] == 1 and report.coding.methods["gptq"] > 4


def test_the_head_and_what_nothing_is_known_of(walked: Any) -> None:
    folder, spec, passages, arrays = walked
    with Checkpoint(folder) as source:
        calibrator = Calibrator(source, read_model(source), spec, passages, hessians=False)
        assert calibrator("embed", None) is None
        assert calibrator("layers.0.router", None) is None
        last = spec["num_layers"] - 1
        h = arrays[last, "feed_forward.residual"] + arrays[last, "feed_forward.output"]
        norm = source.read("model.norm.weight") + spec["norm_offset"]
        x = h / np.sqrt(np.square(h).mean(axis=1, keepdims=True) + spec["rms_eps"]) * norm
        found = calibrator("head", None)
        assert found is not None
        np.testing.assert_allclose(found.mean_squares, np.square(x).mean(axis=0), rtol=1e-3)


@pytest.mark.parametrize(("method", "most"), [("weighted", 0.999), ("gptq", 0.9)])
def test_outputs_come_nearer(walked: Any, tmp_path: Path, method: str, most: float) -> None:
    """A calibrated method beats rtn where it matters: in what the products put out."""
    folder, _, _, arrays = walked
    x = arrays[0, "mixer.input"].astype(np.float64)
    losses = {}
    for name in ("rtn", method):
        export_checkpoint(
            folder, tmp_path / name, recipe="int4-all", method=name, calib_tokens=300, threads=1
        )
        losses[name] = output_loss(folder, tmp_path / name, x)
    assert losses[method] < most * losses["rtn"]


def output_loss(folder: Path, packed: Path, x: np.ndarray) -> float:
    stored = read_packed(packed)[0]
    name = "layers.0.linear_attn.in_proj_qkv.weight"
    with Checkpoint(folder) as source:
        want = source.read("model." + name).reshape(stored[name].shape)
    return float(np.square(x @ (stored[name] - want).T).sum())


def test_experts_that_no_token_reached(tiny: Any, tmp_path: Path) -> None:
    """They get data-free codes, and a warning counts them."""
    text = tmp_path / "short.txt"
    text.write_text("the end of that is the end " * 2)
    report = export_checkpoint(
        tiny(experts=64).folder, tmp_path / "out", method="weighted", calib=text, calib_tokens=32
    )
    methods = report.coding.methods
    assert methods["rtn"] > 10 and methods["weighted"] > 10
    (warning,) = report.coding.warnings
    assert str(methods["rtn"]) in warning
    assert json.loads((tmp_path / "out" / "export_report.json").read_text())[
        "matrices_by_method"
    ] == {"rtn": methods["rtn"], "weighted": methods["weighted"]}


def test_twice_the_same(tiny: Any, tmp_path: Path) -> None:
    for name in ("a", "b"):
        export_checkpoint(tiny().folder, tmp_path / name, method="gptq", calib_tokens=64)
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes(), path.name


def test_text_for_a_method_without_data(tiny: Any, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="method rtn uses none"):
        export_checkpoint(tiny().folder, tmp_path / "out", method="rtn", calib=tmp_path / "a.txt")
    assert not (tmp_path / "out").exists()


def test_a_checkpoint_without_a_tokenizer(tiny: Any, tmp_path: Path) -> None:
    folder = tmp_path / "source"
    shutil.copytree(tiny().folder, folder)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ExportError, match=r"needs its tokenizer: .*is missing"):
        export_checkpoint(folder, tmp_path / "out", method="gptq")
    assert not (tmp_path / "out").exists()
