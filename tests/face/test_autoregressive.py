"""Models without denoising passes at the face: one mode, chosen by itself."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import clover_edge
from clover_edge.cli.main import main
from clover_edge.errors import ArgumentError, ModelFormatError
from clover_edge.generation import GenerationConfig

PROMPT = "the other"
SPEC = {"preview": False, "vocab_size": 320}


@pytest.fixture(scope="module")
def folder(tiny_transformer: Callable[..., Any], pack: Callable[..., Path]) -> Path:
    return pack(tiny_transformer("llama", seed=7, max_position_embeddings=256), "int4")


@pytest.fixture(scope="module")
def llama(folder: Path) -> Iterator[clover_edge.Model]:
    with clover_edge.load(folder, threads=1) as opened:
        yield opened


def test_generates_by_itself(llama: clover_edge.Model) -> None:
    result = llama.generate(PROMPT, max_new_tokens=12, temperature=0)
    assert len(result.token_ids) == 12
    assert result.counters.denoise_steps == 0
    assert result.counters.blocks == 12
    assert llama.generate(PROMPT, max_new_tokens=12, temperature=0, mode="ar").text == result.text


def test_a_whole_context_is_used(llama: clover_edge.Model) -> None:
    """No answer is rounded up to blocks."""
    ids = llama.tokenize(PROMPT) * 20
    room = 256 - len(ids)
    result = llama.generate(ids, max_new_tokens=room, temperature=0)
    assert len(result.token_ids) == room or result.finish_reason == "stop"
    with pytest.raises(clover_edge.ContextLengthError):
        llama.generate(ids, max_new_tokens=room + 1)


def test_stream_has_text_and_no_drafts(llama: clover_edge.Model) -> None:
    events = list(llama.stream(PROMPT, max_new_tokens=12, temperature=0))
    assert not any(isinstance(event, clover_edge.DraftEvent) for event in events)
    text = "".join(event.text for event in events if isinstance(event, clover_edge.TextEvent))
    assert isinstance(events[-1], clover_edge.DoneEvent)
    assert events[-1].result.text == text


def test_chat(llama: clover_edge.Model) -> None:
    messages = [{"role": "user", "content": PROMPT}]
    prompt = llama.detokenize(llama.chat_prompt(messages))
    assert prompt.split() == ["user", *f"{PROMPT}assistant".split()]  # between special tokens
    assert llama.chat(messages, max_new_tokens=4, seed=1).counters.tokens == 4


def test_checkpoint_defaults_are_used(llama: clover_edge.Model) -> None:
    config = GenerationConfig.resolve("", llama.spec, llama.info()["generation"])
    assert (config.mode, config.temperature, config.top_k) == ("ar", 0.7, 20)
    assert config.stop_token_ids == (287, 285)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mode", "diffusion"),
        ("block_length", 1),
        ("threshold", 0.9),
        ("steps", 2),
        ("coreset_size", 0),
    ],
)
def test_options_of_denoising_are_refused(llama: clover_edge.Model, name: str, value: Any) -> None:
    options: Any = {name: value}
    with pytest.raises(ArgumentError, match=f"^{name}: .*autoregressive"):
        llama.generate(PROMPT, **options)


def test_a_folder_that_asks_for_denoising_is_refused() -> None:
    with pytest.raises(ModelFormatError, match="threshold"):
        GenerationConfig.resolve("config.json", SPEC, {"threshold": 0.9})


def test_command_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["run", str(folder), PROMPT, "--raw", "--max-new-tokens", "6", "--seed", "3"]
    assert main([*arguments, "--show"]) == 0
    assert main([*arguments, "--json", "--mode", "ar"]) == 0
    shown, found = capsys.readouterr().out.split("\n{")
    assert json.loads("{" + found)["text"] == shown
    assert main([*arguments, "--mode", "diffusion"]) == 2
    assert "the model is autoregressive" in capsys.readouterr().err


def test_inspect(
    folder: Path,
    tiny_transformer: Callable[..., Any],
    pack: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["inspect", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "llama, recipe int4" in out
    assert "3 layers (0 DeltaNet, 3 attention), hidden 64, feed-forward 96, vocabulary 288" in out
    assert "context 256, autoregressive" in out
    assert "\nfeed-forward " in out
    experts = tiny_transformer("qwen3_moe", mlp_only_layers=[0])
    assert main(["inspect", str(pack(experts, "int4"))]) == 0
    assert "feed-forward 96, 8 experts of which 2 a token" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("ffn_types", ["dense"]),
        ("dense_intermediate", 0),
        ("dense_intermediate", 97),
        ("num_experts", 4),
        ("qk_norm", True),
        ("attn_in_bias", True),
        ("attn_out_bias", 1),
        ("rope_inv_freq", [0.5] * 8),
        ("rope_attention_factor", 0),
        ("mask_token_id", 320),
        ("block_size", -1),
        ("coreset_size", 1),
        ("preview", "no"),
        ("preview", True),
    ],
)
def test_spec_lies(folder: Path, tmp_path: Path, field: str, value: Any) -> None:
    shutil.copytree(folder, tmp_path / "lie")
    path = tmp_path / "lie" / "config.json"
    config = json.loads(path.read_text())
    config["clover_edge"]["spec"][field] = value
    path.write_text(json.dumps(config))
    with pytest.raises(ModelFormatError) as caught:
        clover_edge.load(tmp_path / "lie")
    assert str(tmp_path / "lie") in str(caught.value)
