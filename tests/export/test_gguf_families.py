"""GGUF files of the hybrids, Gemma 3 and Llama 3: the same logits as the folder they come from."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_gguf
from oracle.compare import relative_error
from oracle.transformer import frequencies
from tiny_full_attention import make_full_attention, special_ids
from tiny_gemma import gemma_config, make_gemma
from tiny_hybrid import hybrid_config, make_hybrid
from tiny_transformer import make_transformer, transformer_config
from tokenizers import Tokenizer

from clover_edge.errors import CheckpointError, UnsupportedModelError
from clover_edge.export import Checkpoint, export_checkpoint

pytest.importorskip("gguf", reason="GGUF files need the extra: gguf")

IDS = np.random.default_rng(3).integers(0, 250, 30).tolist()


def logits(open_core: Callable[..., Any], source: Path, out: Path, family: str) -> np.ndarray:
    report = export_checkpoint(source, out, recipe="f32")
    assert report.plan.model.family == family
    core = open_core(out)
    found: np.ndarray = core.commit(core.new_state(len(IDS)), IDS, logits="all")
    return found


@pytest.mark.parametrize(
    ("arch", "family"),
    [("qwen35", "qwen3_5"), ("qwen35moe", "qwen3_5_moe"), ("qwen3next", "qwen3_next")],
)
def test_hybrids(tmp_path: Path, open_core: Callable[..., Any], arch: str, family: str) -> None:
    heads = {"linear_num_value_heads": 6}
    tensors = make_hybrid(tmp_path / "in", family, dtype="f32", **heads)
    rope = {"rope_theta": 1e7, "partial_rotary_factor": 0.25}
    experts = {"num_experts": 0, "num_experts_per_tok": 0, "moe_intermediate_size": 0}
    config = {**experts, "rope_parameters": rope, **hybrid_config(family, **heads)}
    keys = tiny_gguf.hybrid_keys(config)
    if arch == "qwen35":
        keys = {k: v for k, v in keys.items() if not k.startswith("expert")}
        keys["feed_forward_length"] = config["intermediate_size"]
    writer = tiny_gguf.next_hybrid if arch == "qwen3next" else tiny_gguf.hybrid
    tiny_gguf.write_gguf(tmp_path / "x.gguf", arch, keys, writer(tensors, config))
    want = logits(open_core, tmp_path / "in", tmp_path / "folder", family)
    got = logits(open_core, tmp_path / "x.gguf", tmp_path / "file", family)
    assert relative_error(got, want) < 1e-5


@pytest.mark.parametrize("family", ["dream", "llada"])
def test_full_attention(tmp_path: Path, open_core: Callable[..., Any], family: str) -> None:
    tensors, config = make_full_attention(tmp_path / "in", family, dtype="f32")
    keys = gemma_keys({**config, "head_dim": 16, "sliding_window": 0})
    keys["rope.freq_base"] = 100.0
    theirs = tiny_gguf.dense(tensors, family, 4, 2)
    mask = {"tokenizer.ggml.mask_token_id": max(special_ids(family, 320).values())}
    tiny_gguf.write_gguf(tmp_path / "x.gguf", family, keys, theirs, other_keys=mask)
    want = logits(open_core, tmp_path / "in", tmp_path / "folder", family)
    got = logits(open_core, tmp_path / "x.gguf", tmp_path / "file", family)
    assert relative_error(got, want) < 1e-5


GEMMA_NAMES = {
    "post_attention_layernorm.weight": "post_attention_norm.weight",
    "pre_feedforward_layernorm.weight": "ffn_norm.weight",
    "post_feedforward_layernorm.weight": "post_ffw_norm.weight",
}


def gemma_tensors(tensors: tiny_gguf.Arrays) -> tiny_gguf.Arrays:
    out = {}
    for name, value in tensors.items():
        last = name.split(".", 2)[-1]
        theirs = GEMMA_NAMES.get(last)
        known = f"blk.{name.split('.')[1]}.{theirs}" if theirs else tiny_gguf.gguf_name(name)
        out[known] = value + np.float32(1) if name.endswith("norm.weight") else value
    return out


def gemma_keys(config: dict[str, Any]) -> dict[str, Any]:
    return {
        **tiny_gguf.dense_keys(config),
        "attention.key_length": config["head_dim"],
        "attention.sliding_window": config["sliding_window"],
        "rope.freq_base": 1e6,
    }


PATTERN = {"num_hidden_layers": 6, "layer_types": None, "query_pre_attn_scalar": 32}


@pytest.mark.parametrize(
    ("keys", "pattern"),
    [
        ({}, 6),
        ({"attention.sliding_window_pattern": 2}, 2),
        ({"attention.sliding_window_pattern": [True, True, False] * 2}, 3),
    ],
)
def test_gemma(
    tmp_path: Path, open_core: Callable[..., Any], keys: dict[str, Any], pattern: int
) -> None:
    options = {**PATTERN, "sliding_window_pattern": pattern}
    tensors = make_gemma(tmp_path / "in", **options)
    theirs = {**gemma_keys(gemma_config(**options)), **keys}
    tiny_gguf.write_gguf(tmp_path / "x.gguf", "gemma3", theirs, gemma_tensors(tensors))
    want = logits(open_core, tmp_path / "in", tmp_path / "folder", "gemma3")
    got = logits(open_core, tmp_path / "x.gguf", tmp_path / "file", "gemma3")
    assert relative_error(got, want) < 1e-5


def test_gemma_with_a_soft_cap_is_refused(tmp_path: Path) -> None:
    tensors = make_gemma(tmp_path / "in")
    keys = {**gemma_keys(gemma_config()), "final_logit_softcapping": 30.0}
    tiny_gguf.write_gguf(tmp_path / "x.gguf", "gemma3", keys, gemma_tensors(tensors))
    with pytest.raises(UnsupportedModelError, match="final_logit_softcapping"):
        export_checkpoint(tmp_path / "x.gguf", tmp_path / "out")


@pytest.mark.parametrize("scaled", [True, False])
def test_rotary_frequencies_of_llama_3(
    tmp_path: Path, open_core: Callable[..., Any], scaled: bool
) -> None:
    """A tensor of divisors in the file, parameters in the folder; divisors of 1 change nothing."""
    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    keys = {"rope_scaling": scaling} if scaled else {}
    tensors = make_transformer(tmp_path / "in", "llama", dtype="f32", **keys)
    config = transformer_config("llama", **keys)
    heads = config["num_attention_heads"], config["num_key_value_heads"]
    width = config["hidden_size"] // heads[0]
    plain, stretched = frequencies({}, width)[0], frequencies(config, width)[0]
    theirs = tiny_gguf.dense(tensors, "llama", *heads)
    theirs["rope_freqs.weight"] = (plain / stretched).astype(np.float32)
    assert (theirs["rope_freqs.weight"].max() == 8) == scaled
    tiny_gguf.write_gguf(tmp_path / "x.gguf", "llama", tiny_gguf.dense_keys(config), theirs)
    want = logits(open_core, tmp_path / "in", tmp_path / "folder", "llama")
    got = logits(open_core, tmp_path / "x.gguf", tmp_path / "file", "llama")
    assert relative_error(got, want) < 1e-5


# ---- SentencePiece's BPE -------------------------------------------------------------------------

PIECES = [
    "▁",
    "t",
    "h",
    "e",
    "c",
    "a",
    "o",
    "▁t",
    "he",
    "▁the",
    "th",
    "at",
    "ca",
    "▁ca",
    "cat",
    "oo",
]
SCORES = [-90.0, *([-100.0] * 6), -1.0, -2.0, -3.0, -0.5, -5.0, -4.0, -6.0, -7.0, -8.0]
CONTROL = ["<pad>", "<eos>", "<bos>", "<unk>"]
TOKENS = [*CONTROL, *(f"<0x{byte:02X}>" for byte in range(256)), *PIECES, "\n\n"]
KINDS = [3, 3, 3, 2, *([6] * 256), *([1] * len(PIECES)), 4]


def write_pieces(path: Path, **other: Any) -> Path:
    keys: dict[str, Any] = {
        "model": "llama",
        "tokens": TOKENS,
        "scores": [0.0] * 260 + SCORES + [0.0],
        "token_type": KINDS,
        "bos_token_id": 2,
        "eos_token_id": 1,
        "unknown_token_id": 3,
        "padding_token_id": 0,
        "add_bos_token": True,
        "add_space_prefix": False,
        **other,
    }
    tokens = {f"tokenizer.ggml.{key}": value for key, value in keys.items()}
    config = gemma_config(vocab_size=len(TOKENS))
    tensors = make_gemma(path.parent / "in", vocab_size=len(TOKENS) + 60)
    tensors["embed_tokens.weight"] = tensors["embed_tokens.weight"][: len(TOKENS)]
    tiny_gguf.write_gguf(
        path, "gemma3", gemma_keys(config), gemma_tensors(tensors), other_keys=tokens
    )
    return path


def tokenizer(path: Path) -> Tokenizer:
    with Checkpoint(path) as checkpoint:
        data = checkpoint.side_file("tokenizer.json")
    assert data is not None
    return Tokenizer.from_str(data.decode())


def plain_pieces(text: str) -> list[str]:
    """The leftmost of the neighbours that make the best-scored piece are joined, again and again;
    what is no piece in the end is spelled in bytes."""
    parts, score = list(text.replace(" ", "▁")), dict(zip(PIECES, SCORES, strict=True))
    while True:
        pairs = [(-score[a + b], i) for i, (a, b) in enumerate(pairwise(parts)) if a + b in score]
        if not pairs:
            break
        i = min(pairs)[1]
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    spelled = ([f"<0x{b:02X}>" for b in part.encode()] for part in parts)
    return [
        t
        for part, bytes_ in zip(parts, spelled, strict=True)
        for t in ([part] if part in score else bytes_)
    ]


TEXTS = ["the cat", " the that", "thethe cathe", "a caté 漢 oo", "ooo", "  the"]


@pytest.mark.parametrize("text", TEXTS)
def test_pieces_are_joined_best_first(tmp_path: Path, text: str) -> None:
    made = tokenizer(write_pieces(tmp_path / "x.gguf"))
    encoded = made.encode(text)
    assert encoded.tokens == ["<bos>", *plain_pieces(text)]
    assert made.decode(encoded.ids) == text
    assert encoded.ids[0] == 2


def test_other_tokens_of_such_a_tokenizer(tmp_path: Path) -> None:
    made = tokenizer(write_pieces(tmp_path / "x.gguf"))
    assert made.encode("the<eos>\n\ncat", add_special_tokens=False).tokens == [
        *plain_pieces("the"), "<eos>", "\n\n", *plain_pieces("cat")
    ]  # fmt: skip
    spaced = tokenizer(
        write_pieces(tmp_path / "y.gguf", add_space_prefix=True, add_bos_token=False)
    )
    assert spaced.encode("the").tokens == plain_pieces(" the")
    assert spaced.decode(spaced.encode("the cat").ids) == "the cat"


def test_scores_must_be_whole(tmp_path: Path) -> None:
    path = write_pieces(tmp_path / "x.gguf", scores=[0.0, 1.0])
    with pytest.raises(CheckpointError, match=r"ggml\.scores: 2 for 277 tokens"):
        export_checkpoint(path, tmp_path / "out")
