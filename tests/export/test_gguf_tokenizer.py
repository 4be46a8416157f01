"""The tokenizer of a GGUF file, written out as Hugging Face files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_gguf
from tiny_clover import CHAT_TEMPLATE
from tokenizers import Tokenizer

from clover_edge.errors import CheckpointError, UnsupportedModelError
from clover_edge.export import Checkpoint, export_checkpoint

pytest.importorskip("gguf", reason="GGUF files need the extra: gguf")

TEXTS = ["the cat and the 1234 dogs", "It's  here,\n\n that's\tall!  ", "naïve 漢字 🙂 x_y (z)"]
KEYS = {
    "block_count": 1,
    "embedding_length": 64,
    "feed_forward_length": 64,
    "context_length": 64,
    "attention.head_count": 2,
    "attention.layer_norm_rms_epsilon": 1e-5,
}
VOCAB = 320


def tokenizer_keys(folder: Path, **other: Any) -> dict[str, Any]:
    """``tokenizer.ggml.*`` of a Hugging Face tokenizer, padded to the model's vocabulary."""
    data = json.loads((folder / "tokenizer.json").read_text())
    ids = {token: i for token, i in data["model"]["vocab"].items()}
    special = {token["content"]: token["id"] for token in data["added_tokens"]}
    ids |= special
    tokens = [f"[PAD{i}]" for i in range(VOCAB)]
    kinds = [5] * VOCAB
    for token, i in ids.items():
        tokens[i], kinds[i] = token, 3 if token in special else 1
    merges = [" ".join(pair) for pair in data["model"]["merges"]]
    keys = {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": tokens,
        "token_type": kinds,
        "merges": merges,
        "eos_token_id": special["<|im_end|>"],
        "eot_token_id": special["<|endoftext|>"],
        "bos_token_id": special["<|im_start|>"],
        "mask_token_id": special["<|mask|>"],
        **other,
    }
    out = {f"tokenizer.ggml.{key}": value for key, value in keys.items() if value is not None}
    return {**out, "tokenizer.chat_template": CHAT_TEMPLATE}


def write(path: Path, keys: dict[str, Any]) -> Path:
    shapes: dict[str, tuple[int, ...]] = {
        "embed_tokens.weight": (VOCAB, 64),
        "norm.weight": (64,),
        "layers.0.input_layernorm.weight": (64,),
        "layers.0.post_attention_layernorm.weight": (64,),
        **{f"layers.0.self_attn.{x}_proj.weight": (64, 64) for x in "qkvo"},
        **{f"layers.0.mlp.{x}_proj.weight": (64, 64) for x in ("gate", "up", "down")},
    }
    tensors = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    theirs = tiny_gguf.dense(tensors, "llama", 2, 2)
    tiny_gguf.write_gguf(path, "llama", KEYS, theirs, other_keys=keys)
    return path


def tokenizer(path: Path) -> Tokenizer:
    with Checkpoint(path) as checkpoint:
        data = checkpoint.side_file("tokenizer.json")
    assert data is not None
    return Tokenizer.from_str(data.decode())


def test_files_are_written(tiny: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "x.gguf", tokenizer_keys(tiny().folder))
    report = export_checkpoint(path, tmp_path / "out")
    original = Tokenizer.from_file(str(tiny().folder / "tokenizer.json"))
    written = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    for text in [*TEXTS, "<|im_start|>user\nhi<|im_end|>"]:
        assert written.encode(text).ids == original.encode(text).ids
        assert written.decode(written.encode(text).ids) == original.decode(
            original.encode(text).ids
        )
    config = json.loads((tmp_path / "out" / "tokenizer_config.json").read_text())
    assert (config["bos_token"], config["eos_token"]) == ("<|im_start|>", "<|im_end|>")
    assert (tmp_path / "out" / "chat_template.jinja").read_text() == CHAT_TEMPLATE
    stops = [original.token_to_id(token) for token in ("<|im_end|>", "<|endoftext|>")]
    assert report.plan.model.generation["eos_token_id"] == stops
    # rows behind the last real token are padding, whatever names the converter gave them
    assert report.plan.model.spec["valid_vocab"] == original.get_vocab_size() == 288


PIECES = {
    "gpt-2": ["it", "'s", " 1234", " A", "'", "S", "  ", " x", "\n", "\n", "y"],
    "smollm": ["it", "'s", " ", "1", "2", "3", "4", " A", "'", "S", "  ", " x", "\n", "\n", "y"],
    "qwen2": ["it", "'s", " ", "1", "2", "3", "4", " A", "'S", "  ", " x", "\n\n", "y"],
    "qwen35": ["it", "'s", " ", "1", "2", "3", "4", " A", "'S", "  ", " x", "\n\n", "y"],
    "llama-bpe": ["it", "'s", " ", "123", "4", " A", "'S", "  ", " x", "\n\n", "y"],
}


@pytest.mark.parametrize("pre", PIECES)
def test_text_is_split_as_the_pre_tokenizer_says(tiny: Any, tmp_path: Path, pre: str) -> None:
    path = write(tmp_path / "x.gguf", tokenizer_keys(tiny().folder, pre=pre))
    text = "it's 1234 A'S   x\n\ny"
    spans = tokenizer(path).pre_tokenizer.pre_tokenize_str(text)
    assert [text[start:stop] for _, (start, stop) in spans] == PIECES[pre]


def test_marks_belong_to_words_in_qwen35_alone(tiny: Any, tmp_path: Path) -> None:
    text = "कि"  # a letter and a mark
    found = {}
    for pre in ("qwen2", "qwen35"):
        path = write(tmp_path / f"{pre}.gguf", tokenizer_keys(tiny().folder, pre=pre))
        found[pre] = len(tokenizer(path).pre_tokenizer.pre_tokenize_str(text))
    assert found == {"qwen2": 2, "qwen35": 1}


def test_default_splits_runs_of_digits_and_punctuation(tiny: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "x.gguf", tokenizer_keys(tiny().folder, pre=None))
    spans = tokenizer(path).pre_tokenizer.pre_tokenize_str("a12345 (b)")
    assert [stop - start for _, (start, stop) in spans] == [1, 3, 2, 1, 1, 1, 1]


@pytest.mark.parametrize("add", [True, False])
def test_begin_of_text_is_put_in_front_where_the_file_says_so(
    tiny: Any, tmp_path: Path, add: bool
) -> None:
    path = write(tmp_path / "x.gguf", tokenizer_keys(tiny().folder, add_bos_token=add))
    made = tokenizer(path)
    begin = made.token_to_id("<|im_start|>")
    assert (made.encode("the").ids[0] == begin) == add
    assert made.encode("the", add_special_tokens=False).ids[0] != begin


def test_file_without_a_tokenizer_is_a_warning(tmp_path: Path) -> None:
    report = export_checkpoint(write(tmp_path / "x.gguf", {}), tmp_path / "out")
    assert any("tokenizer.json is absent" in line for line in report.plan.warnings)
    assert not (tmp_path / "out" / "tokenizer.json").exists()


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"model": "bert"}, UnsupportedModelError, r"ggml\.model: 'bert' is not read.*gpt2"),
        ({"pre": "tekken"}, UnsupportedModelError, r"ggml\.pre: 'tekken' is not read.*qwen2"),
        ({"eos_token_id": 9999}, CheckpointError, r"eos_token_id: 9999 is no id"),
        ({"merges": ["a"]}, CheckpointError, r"merges: 'a' is no pair"),
        ({"merges": ["zz qq"]}, CheckpointError, r"merges"),
        ({"tokens": ["a", "a"], "token_type": [1, 1]}, CheckpointError, r"'a' is there twice"),
        ({"tokens": [1, 2]}, CheckpointError, r"tokens: is no list of str"),
    ],
)
def test_bad_tokenizers_are_refused(
    tiny: Any, tmp_path: Path, change: dict[str, Any], error: type[Exception], words: str
) -> None:
    keys = tokenizer_keys(tiny().folder, **change)
    if len(change.get("tokens", [])) == 2:
        for key in ("eos", "eot", "bos", "mask"):
            keys[f"tokenizer.ggml.{key}_token_id"] = 0
    path = write(tmp_path / "x.gguf", keys)
    with pytest.raises(error, match=words):
        export_checkpoint(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()
