"""What an ONNX folder holds: files, configuration, weights stored once, graphs that say what they
take and give."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx_models import CASES
from oracle.packed import decode

Make = Callable[..., Any]
GRAPHS = {"preview": "preview.onnx", "commit": "commit.onnx", "head": "head.onnx"}
DATA = "model.onnx.data"


def protos(folder: Path) -> dict[str, Any]:
    onnx = pytest.importorskip("onnx")
    return {
        path.name: onnx.load(str(path), load_external_data=False)
        for path in sorted(folder.glob("*.onnx"))
    }


def places(folder: Path) -> dict[str, tuple[Any, int, int]]:
    """Initializer, offset and length by name; the same in every graph that has it."""
    found: dict[str, tuple[Any, int, int]] = {}
    for proto in protos(folder).values():
        for item in proto.graph.initializer:
            if not item.external_data:
                continue
            said = {entry.key: entry.value for entry in item.external_data}
            assert said.pop("location") == DATA
            place = item, int(said["offset"]), int(said["length"])
            assert found.setdefault(item.name, place)[1:] == place[1:], item.name
    return found


def stored(folder: Path, name: str) -> np.ndarray:
    """An initializer's array: float32, or uint8."""
    item, offset, length = places(folder)[name]
    data = (folder / DATA).read_bytes()[offset : offset + length]
    return np.frombuffer(data, np.float32 if item.data_type == 1 else np.uint8).reshape(item.dims)


def test_files(graphs: Make, packed: Make) -> None:
    folder, source = graphs("clover", "int4"), packed("clover", "int4")
    side = {f"{name}.json" for name in ("tokenizer", "tokenizer_config", "generation_config")}
    side.add("chat_template.jinja")
    names = {path.name for path in folder.iterdir()}
    assert names == {*GRAPHS.values(), DATA, "config.json", *side}
    for name in side:
        assert (folder / name).read_bytes() == (source / name).read_bytes()
    config, before = (json.loads((each / "config.json").read_text()) for each in (folder, source))
    ours, theirs = config.pop("clover_edge"), before.pop("clover_edge")
    assert config == before
    assert ours.pop("format") == "onnx"
    assert ours.pop("graphs") == GRAPHS
    assert ours.pop("activations") == "float"
    del theirs["tensors"]
    assert ours == theirs


def test_autoregressive_models_have_no_preview(graphs: Make) -> None:
    assert set(protos(graphs("qwen2", "f32"))) == {"commit.onnx", "head.onnx"}


@pytest.mark.parametrize("case", ["llada2", "dream"])
def test_one_graph_for_both_passes_where_they_are_the_same(graphs: Make, case: str) -> None:
    folder = graphs(case, "f32")
    assert set(protos(folder)) == {"commit.onnx", "head.onnx"}
    described = json.loads((folder / "config.json").read_text())["clover_edge"]["graphs"]
    assert described == {**GRAPHS, "preview": "commit.onnx"}


@pytest.mark.parametrize("recipe", ["f32", "int4"])
@pytest.mark.parametrize("case", CASES)
def test_checked(graphs: Make, case: str, recipe: str) -> None:
    """Valid, and every value's element type is known from the operators' own rules."""
    onnx = pytest.importorskip("onnx")
    folder = graphs(case, recipe)
    for name, proto in protos(folder).items():
        onnx.checker.check_model(str(folder / name))
        del proto.graph.value_info[:]
        contrib = [node for node in proto.graph.node if node.domain]
        whole = protos(folder)[name]
        declared = {out for node in contrib for out in node.output}
        proto.graph.value_info.extend(v for v in whole.graph.value_info if v.name in declared)
        found = onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True)
        typed = {v.name for v in [*found.graph.value_info, *found.graph.output]}
        assert {out for node in found.graph.node for out in node.output if out} <= typed


@pytest.mark.parametrize("case", ["clover", "llada2"])
def test_weights_are_stored_once(graphs: Make, case: str) -> None:
    folder = graphs(case, "int4")
    ends = 0
    for item, offset, length in sorted(places(folder).values(), key=lambda place: place[1]):
        assert offset >= ends
        assert offset % (4096 if length >= 4096 else 64) == 0, item.name
        assert length == np.prod(item.dims) * {1: 4, 2: 1, 16: 2}[item.data_type]
        ends = offset + length
    assert ends == (folder / DATA).stat().st_size
    for name, proto in protos(folder).items():  # what is inside a graph is small
        assert sum(len(item.raw_data) for item in proto.graph.initializer) < 4096, name


def test_a_tied_head_is_the_embedding(graphs: Make) -> None:
    names = set(places(graphs("gemma3", "int8")))
    assert "embed.codes" in names and "head.codes" not in names


def test_edges(graphs: Make, onnx_model: Make) -> None:
    """Names, types and sizes of inputs and outputs are the page's."""
    spec = onnx_model("clover", "f32").spec
    model = onnx_model("clover", "f32")
    delta, kv = (spec["layer_types"].index(kind) for kind in ("deltanet", "attention"))
    hidden, vocab = spec["hidden_size"], spec["vocab_size"]
    cache = ["p", spec["num_kv_heads"], spec["head_dim"]]
    S = [spec["delta_v_heads"], spec["delta_k_dim"], spec["delta_v_dim"]]
    channels = 2 * spec["delta_k_heads"] * S[1] + S[0] * S[2]
    inputs: dict[str, list[Any]] = {
        **{name: ["n"] for name in ("ids", "positions", "sees_to")},
        "rows": ["m"],
        f"kv.{kv}.k": cache,
        f"kv.{kv}.v": cache,
        f"delta.{delta}.S": S,
        f"delta.{delta}.ring": [spec["conv_taps"] - 1, channels],
    }
    outputs = {
        "logits": ["m", vocab],
        "hidden": ["n", hidden],
        f"kv.{kv}.k_new": ["n", *cache[1:]],
        f"kv.{kv}.v_new": ["n", *cache[1:]],
    }
    for role, session in model.sessions.items():
        given = {each.name: each.shape for each in session.get_inputs()}
        found = {each.name: each.shape for each in session.get_outputs()}
        if role == "head":
            assert given == {"hidden": ["m", hidden]} and found == {"logits": ["m", vocab]}
            continue
        assert inputs.items() <= given.items()
        assert outputs.items() <= found.items()
        assert ("history_width" in given) == (role == "preview")
        assert (f"delta.{delta}.S_new" in found) == (role == "commit")
        assert (f"delta.{delta}.ring_new" in found) == (role == "commit")


@pytest.mark.parametrize("recipe", ["int4-small", "codebook4-all", "int8", "mixed"])
def test_values_are_the_packed_ones(
    graphs: Make, packed: Make, tmp_path: Path, recipe: str
) -> None:
    """Every weight, bit for bit: of matrices, and of experts whose parts differ in scheme."""
    if recipe == "mixed":
        source, folder = mixed_experts(packed, tmp_path)
    else:
        source, folder = packed("clover", recipe), graphs("clover", recipe)
    entries = json.loads((source / "config.json").read_text())["clover_edge"]["tensors"]
    seen = 0
    for name, entry in entries.items():
        raw = packed_bytes(source, name)
        if entry["scheme"] == "experts":
            parts = {
                part: np.stack(
                    [
                        decode(said, record[said["offset"] :])
                        for record in raw.reshape(entry["shape"][0], -1)
                    ]
                )
                for part, said in entry["parts"].items()
            }
            pairs = np.stack([parts["gate"], parts["up"]], axis=2)
            both = pairs.reshape(pairs.shape[0], -1, pairs.shape[-1])
            for part, values in (("gate_up", both), ("down", parts["down"])):
                found = decoded(folder, f"{name}.{part}", values.shape[-1])
                assert np.array_equal(found, values), name
            seen += 1
        elif entry["scheme"] not in ("f32", "bf16"):
            found = decoded(folder, name, entry["shape"][1])
            assert np.array_equal(found, decode(entry, raw)), name
            seen += 1
    assert seen > 4


def decoded(folder: Path, name: str, columns: int) -> np.ndarray:
    """(code - zero) * scale of what the operators are given: [n, columns], or by expert."""
    codes, scales = stored(folder, f"{name}.codes"), stored(folder, f"{name}.scales")
    flat = codes.reshape(*scales.shape[:-1], -1)
    bits = 8 * flat.shape[-1] // columns
    if bits == 4:
        flat = np.stack([flat & 15, flat >> 4], axis=-1).reshape(*flat.shape[:-1], -1)
    levels = flat.astype(np.float32) - np.float32(1 << (bits - 1))
    return levels * np.repeat(scales, columns // scales.shape[-1], axis=-1)


def packed_bytes(folder: Path, name: str) -> np.ndarray:
    from clover_edge.export.safetensors_header import read_header

    for path in folder.glob("*.safetensors"):
        if header := read_header(path).get(name):
            return np.fromfile(path, np.uint8, header.nbytes, offset=header.offset)
    raise AssertionError(f"{name} is in no file")


def mixed_experts(packed: Make, tmp_path: Path) -> tuple[Path, Path]:
    from clover_edge.export import export_checkpoint, export_onnx

    recipe = tmp_path / "mixed.toml"
    rules = {"up": 'scheme = "codebook4"\ngroup = 32', "down": 'scheme = "int8"\ngroup = 32'}
    recipe.write_text(
        'base = "int4"\n'
        + "".join(
            f'[[rule]]\nmatch = "layers.*.experts.{part}"\n{rule}\n' for part, rule in rules.items()
        )
    )
    source = packed("clover", "f32").parent / "in"
    export_checkpoint(source, tmp_path / "packed", recipe=recipe)
    export_onnx(tmp_path / "packed", tmp_path / "graphs")
    return tmp_path / "packed", tmp_path / "graphs"


def test_same_bytes_again(packed: Make, graphs: Make, tmp_path: Path) -> None:
    """The same packed folder gives the same files, whether packed before or on the way."""
    from clover_edge.export import export_onnx

    folder = graphs("clover", "int4")
    source = packed("clover", "int4").parent / "in"
    export_onnx(source, tmp_path / "out", recipe="int4", activations="float")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]
    for path in folder.iterdir():
        assert path.read_bytes() == (tmp_path / "out" / path.name).read_bytes(), path.name


def test_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A matrix passes through memory in chunks."""
    pytest.importorskip("onnx")
    from tiny_transformer import make_transformer

    from clover_edge.export import export_checkpoint
    from clover_edge.export.onnx import packed as tensors
    from clover_edge.export.onnx import plan_onnx, write_onnx

    make_transformer(tmp_path / "in", "qwen2", vocab=18_000, hidden=256)
    export_checkpoint(tmp_path / "in", tmp_path / "packed", recipe="int8")
    monkeypatch.setattr(tensors, "CHUNK", 1 << 15)
    plan = plan_onnx(tmp_path / "packed")
    assert plan.nbytes > 10 << 20
    tracemalloc.start()
    try:
        write_onnx(plan, tmp_path / "out")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 << 20
