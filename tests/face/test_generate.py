"""generate(), stream() and chat() on a tiny model of noise."""

from __future__ import annotations

import functools
import gc
import json
import shutil
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clover_edge
from clover_edge import DoneEvent, DraftEvent, TextEvent
from clover_edge.errors import ArgumentError, ContextLengthError
from clover_edge.export.safetensors_header import read_header

# At this temperature the model of noise says cut code points, special tokens and line ends.
NOISY = {"temperature": 1.0, "threshold": 0.02, "max_new_tokens": 96}
WAYS: list[dict[str, Any]] = [
    {"max_new_tokens": 64},
    {"max_new_tokens": 40, "mode": "ar"},
    {"max_new_tokens": 50, "block_length": 7, "threshold": 0.3},
    {"max_new_tokens": 33, "block_length": 1},
    {"max_new_tokens": 64, "steps": 2},
    {"max_new_tokens": 64, "repetition_penalty": 1.3, "presence_penalty": 0.5},
    *({**NOISY, "seed": seed} for seed in range(6)),
    *({**NOISY, "seed": seed, "mode": "ar"} for seed in range(3)),
]


def test_the_noise_is_noisy(model: clover_edge.Model) -> None:
    """What the other tests rely on: some of these texts hold cut code points."""
    texts = [model.generate("abc", **way).text for way in WAYS]
    assert any("\ufffd" in text for text in texts)
    assert any(0x7F < ord(char) < 0xFFFD for text in texts for char in text)


@pytest.mark.parametrize("way", range(len(WAYS)))
def test_stream_is_generate(model: clover_edge.Model, way: int) -> None:
    options = WAYS[way]
    result = model.generate("Hello", **options)
    events = list(model.stream("Hello", **options))
    assert [type(event) for event in events].count(DoneEvent) == 1
    last = events[-1]
    assert isinstance(last, DoneEvent)
    assert (last.result.text, last.result.token_ids) == (result.text, result.token_ids)
    assert last.result.finish_reason == result.finish_reason
    texts = [event.text for event in events if isinstance(event, TextEvent)]
    assert "".join(texts) == result.text == model.detokenize(result.token_ids)
    assert all(texts)


@pytest.mark.parametrize("seed", range(8))
def test_text_events_never_split_a_code_point(model: clover_edge.Model, seed: int) -> None:
    """Whatever is said early stays said when everything is decoded at once."""
    options = {**NOISY, "seed": seed, "block_length": 3}
    whole = model.generate("x", **options).text
    said = ""
    for event in model.stream("x", **options):
        if isinstance(event, TextEvent):
            said += event.text
            assert whole.startswith(said)
    assert said == whole


def test_drafts(model: clover_edge.Model) -> None:
    """Every block starts masked, positions once accepted stay, and the last step accepts all."""
    events = list(model.stream("Hello", max_new_tokens=64, block_length=16, threshold=0.05))
    drafts = [event for event in events if isinstance(event, DraftEvent)]
    mask = model.spec["mask_token_id"]
    assert {draft.block for draft in drafts} == set(range(max(d.block for d in drafts) + 1))
    for draft in drafts:
        assert len(draft.states) == len(draft.pieces) == len(draft.token_ids) == 16
        assert set(draft.states) <= {"masked", "drafted", "accepted"}
        assert all(
            (token == mask) == (state == "masked")
            for token, state in zip(draft.token_ids, draft.states, strict=True)
        )
        assert (draft.step == 0) == (draft.states == ("masked",) * 16)
    for first, second in pairwise(drafts):
        if first.block != second.block:
            assert first.states == ("accepted",) * 16
            assert second.step == 0
            continue
        kept = [i for i, state in enumerate(first.states) if state == "accepted"]
        assert all(second.states[i] == "accepted" for i in kept)
        assert all(second.token_ids[i] == first.token_ids[i] for i in kept)
        assert second.states.count("accepted") > len(kept)


def test_prompts_of_all_kinds(model: clover_edge.Model) -> None:
    ids = model.tokenize("Hello")
    want = model.generate("Hello", max_new_tokens=8).token_ids
    assert model.generate(ids, max_new_tokens=8).token_ids == want
    assert model.generate(np.array(ids), max_new_tokens=8).token_ids == want
    assert model.generate(tuple(ids), max_new_tokens=8).token_ids == want
    messages = [{"role": "user", "content": "Hello"}]
    prompt = model.chat_prompt(messages)
    assert model.tokenize("<|im_start|>user\nHello<|im_end|><|im_start|>assistant") == prompt
    chat = model.generate(prompt, max_new_tokens=8).token_ids
    assert model.chat(messages, max_new_tokens=8).token_ids == chat
    assert model.generate(messages, max_new_tokens=8).token_ids == chat


def test_counters(model: clover_edge.Model) -> None:
    result = model.generate("Hello", max_new_tokens=48, block_length=16, threshold=1.0)
    counters = result.counters
    assert result.finish_reason == "length"
    assert counters.tokens == len(result.token_ids) == 48
    assert counters.prompt_tokens == len(model.tokenize("Hello"))
    assert counters.blocks == 3
    assert counters.denoise_steps == 48  # one token a preview
    # A commit shares the next block's first pass; nothing reads the last block's.
    assert counters.forward_passes == 48
    assert counters.rows == 16 * (48 + 2)
    assert counters.tokens_per_forward == pytest.approx(1)
    for name in ("experts_touched", "bytes_read", "time_to_first_block", "prefill_tps"):
        assert getattr(counters, name) > 0
    assert counters.peak_memory_bytes > 1 << 20


def test_autoregressive_counters(model: clover_edge.Model) -> None:
    counters = model.generate("Hello", max_new_tokens=12, mode="ar").counters
    assert counters.tokens == 12
    assert counters.denoise_steps == 0
    assert counters.forward_passes == counters.rows == 11
    # The first token comes from the prompt's own logits, the last one is not committed.


@pytest.mark.parametrize("mode", ["diffusion", "ar"])
def test_stop_token(packed: Path, model: clover_edge.Model, tmp_path: Path, mode: str) -> None:
    """The text ends in front of the first stop token, which is counted and not among the ids."""
    free = model.generate("Hello", max_new_tokens=64, mode=mode).token_ids
    stop = free[len(free) // 2]
    folder = tmp_path / "packed"
    shutil.copytree(packed, folder)
    config = json.loads((folder / "config.json").read_text())
    config["clover_edge"]["generation"]["eos_token_id"] = [stop]
    (folder / "config.json").write_text(json.dumps(config))
    with clover_edge.load(folder) as other:
        result = other.generate("Hello", max_new_tokens=64, mode=mode)
    end = free.index(stop)
    assert result.token_ids == free[:end]
    assert result.finish_reason == "stop"
    assert result.counters.tokens == end + 1


@pytest.mark.parametrize("mode", ["diffusion", "ar"])
def test_stop_string(model: clover_edge.Model, mode: str) -> None:
    free = model.generate("Hello", max_new_tokens=64, mode=mode)
    stop = free.text[10:13]
    result = model.generate("Hello", max_new_tokens=64, mode=mode, stop=["never said", stop])
    assert result.text == free.text[: free.text.index(stop)]
    assert result.finish_reason == "stop"
    said = [e.text for e in model.stream("Hello", max_new_tokens=64, mode=mode, stop=stop)
            if isinstance(e, TextEvent)]  # fmt: skip
    assert "".join(said) == result.text
    assert result.token_ids == free.token_ids[: len(result.token_ids)]
    assert result.counters.tokens == len(result.token_ids)
    assert stop in model.detokenize(result.token_ids)


def test_seeds(model: clover_edge.Model) -> None:
    texts = [model.generate("a", **NOISY, seed=seed).token_ids for seed in (1, 2, 1)]
    assert texts[0] == texts[2] != texts[1]


def test_abandoning_a_stream_cancels_it(model: clover_edge.Model) -> None:
    before = threading.active_count()
    stream = model.stream("Hello", max_new_tokens=300, threshold=1.0)
    assert isinstance(next(stream), DraftEvent)
    assert threading.active_count() == before + 1
    stream.close()
    assert threading.active_count() == before
    for event in model.stream("Hello", max_new_tokens=300, threshold=1.0):
        assert not isinstance(event, DoneEvent)
        break
    gc.collect()
    assert threading.active_count() == before
    assert model.generate("Hello", max_new_tokens=1).finish_reason == "length"  # it is free again


def test_leaving_python_with_a_stream_open(packed: Path) -> None:
    """The interpreter ends at once and cleanly, however far the generation is."""
    script = (
        "import clover_edge, sys\n"
        "stream = clover_edge.load(sys.argv[1]).stream('x', max_new_tokens=480, threshold=1.0)\n"
        "next(stream)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(packed)], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_an_error_in_the_loop_body_cancels(model: clover_edge.Model) -> None:
    """An exception in the consumer's loop body ends the worker."""
    before = threading.active_count()
    with pytest.raises(ZeroDivisionError):
        for _ in model.stream("Hello", max_new_tokens=300, threshold=1.0):
            raise ZeroDivisionError
    gc.collect()
    assert threading.active_count() == before


def test_a_stream_left_open_blocks_only_its_own_thread(model: clover_edge.Model) -> None:
    stream = model.stream("Hello", max_new_tokens=200, threshold=1.0)
    next(stream)
    with pytest.raises(ArgumentError, match="still open in this thread"):
        model.generate("Hello", max_new_tokens=4)
    with pytest.raises(ArgumentError, match="still open in this thread"):
        next(model.stream("Hello", max_new_tokens=4))
    done: list[Any] = []
    other = threading.Thread(
        target=lambda: done.append(model.generate("Hello", max_new_tokens=4).token_ids)
    )
    other.start()
    stream.close()
    other.join(timeout=60)
    assert done == [model.generate("Hello", max_new_tokens=4).token_ids]


def test_arguments_are_checked_before_the_first_event(model: clover_edge.Model) -> None:
    with pytest.raises(ArgumentError, match="threshold: 7"):
        model.stream("Hello", threshold=7)
    with pytest.raises(ArgumentError, match="prompt: is empty"):
        model.stream("")


def test_prompts_that_are_none(model: clover_edge.Model) -> None:
    mask, valid = model.spec["mask_token_id"], model.spec["valid_vocab"]
    for prompt, place in (
        ("", "prompt: is empty"),
        ([], "prompt: is empty"),
        (b"bytes", "prompt: bytes"),
        (None, "prompt: NoneType"),
        ({"role": "user", "content": "x"}, "prompt: dict"),
        ("a\udcff", "prompt: is not valid Unicode at character 1 "),
        ([1, mask], "prompt: token 1 is the mask token"),
        ("a<|mask|>b", "prompt: token 1 is the mask token"),
        ([{"role": "user", "content": "<|mask|>"}], "is the mask token"),
        ([0, valid], rf"prompt\[1\]: {valid} is outside"),
        ([-1], r"prompt\[0\]: -1 is outside"),
        ([2**70], r"prompt\[0\]: 1180591620717411303424 is outside"),
        ([1.0], r"prompt\[0\]: 1.0 is not a token id"),
        ([True], r"prompt\[0\]: True is not a token id"),
        (["a"], r"prompt\[0\]: 'a' is not a token id"),
    ):
        with pytest.raises(ArgumentError, match=place):
            model.generate(prompt, max_new_tokens=4)  # type: ignore[arg-type]


def test_context(model: clover_edge.Model) -> None:
    """Whole blocks have to fit, and are refused before any work where they do not."""
    limit = model.spec["max_positions"]
    prompt = [5] * (limit - 40)
    assert len(model.generate(prompt, max_new_tokens=32).token_ids) == 32
    with pytest.raises(ContextLengthError, match=rf"{limit - 40} tokens and 33 new ones"):
        model.generate(prompt, max_new_tokens=33)  # two blocks of 32
    assert len(model.generate(prompt, max_new_tokens=40, block_length=8).token_ids) == 40
    assert len(model.generate(prompt, max_new_tokens=40, mode="ar").token_ids) == 40
    assert len(model.generate(prompt).token_ids) == 32  # left out: what there is room for
    with pytest.raises(ContextLengthError, match=f"the model has {limit}"):
        model.generate([5] * limit, max_new_tokens=1)
    with pytest.raises(ContextLengthError):
        model.generate([5] * (limit - 3))
    with pytest.raises(ContextLengthError):
        model.stream([5] * limit, max_new_tokens=1)


def test_two_models_in_one_process(
    model: clover_edge.Model, tiny: Callable[..., Any], pack: Callable[..., Path]
) -> None:
    """Their streams run at once and neither disturbs the other."""
    with clover_edge.load(pack(tiny(seed=22, layers=3), "int8"), threads=1) as other:
        alone = [m.generate("Hello", max_new_tokens=64).token_ids for m in (model, other)]
        assert alone[0] != alone[1]
        together: list[Any] = [None, None]
        streams = [m.stream("Hello", max_new_tokens=64) for m in (model, other)]
        while None in together:
            for i, stream in enumerate(streams):
                event = next(stream, None)
                if isinstance(event, DoneEvent):
                    together[i] = event.result.token_ids
        assert together == alone


def test_a_closed_model(packed: Path) -> None:
    with clover_edge.load(packed) as model:
        stream = model.stream("Hello", max_new_tokens=8)
    assert "closed" in repr(model)
    with pytest.raises(ArgumentError, match="is closed"):
        model.generate("Hello")
    with pytest.raises(ArgumentError, match="is closed"):
        model.info()
    model.close()
    assert isinstance(list(stream)[-1], DoneEvent)  # what was prepared still runs


def test_module_functions(
    packed: Path, model: clover_edge.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    want = model.generate("Hello", max_new_tokens=8).token_ids
    assert clover_edge.generate("Hello", model=model, max_new_tokens=8).token_ids == want
    assert clover_edge.generate("Hello", model=packed, max_new_tokens=8).token_ids == want
    assert clover_edge.generate("Hello", model=str(packed), max_new_tokens=8).token_ids == want
    monkeypatch.setenv("CLOVER_MODEL", str(packed))
    assert clover_edge.generate("Hello", max_new_tokens=8).token_ids == want
    events = list(clover_edge.stream("Hello", max_new_tokens=8))
    assert isinstance(events[-1], DoneEvent)
    assert events[-1].result.token_ids == want
    with pytest.raises(ArgumentError, match="model: int is neither"):
        clover_edge.generate("Hello", model=3)  # type: ignore[arg-type]


def test_info(model: clover_edge.Model, packed: Path) -> None:
    info = model.info()
    assert info["path"] == str(packed)
    assert (info["recipe"], info["family"], info["threads"]) == ("int4", "clover", 2)
    assert info["spec"]["hidden_size"] == 64
    assert info["parameters"] == sum(row["parameters"] for row in info["tensors"])
    assert info["bytes"] == sum(row["bytes"] for row in info["tensors"])
    experts = next(row for row in info["tensors"] if row["class"] == "experts")
    assert experts["parameters"] == 4 * 16 * 3 * 64 * 32  # layers, experts, matrices, H, I
    assert experts["schemes"] == ["int4 g32"]


def test_copied_weights_and_narrow_caches(packed: Path, model: clover_edge.Model) -> None:
    with clover_edge.load(packed, threads=2, mmap=False) as copied:
        assert copied.generate("Hello").token_ids == model.generate("Hello").token_ids
    with clover_edge.load(packed, threads=2, kv="int8") as narrow:
        assert narrow.generate("Hello", max_new_tokens=8).counters.tokens > 0
    with pytest.raises(ArgumentError, match="kv: 'int4'"):
        clover_edge.load(packed, kv="int4")  # type: ignore[arg-type]


def test_weights_beyond_memory_are_announced(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paged = functools.partial(clover_edge.loader.open_core, read_ahead=True)
    monkeypatch.setattr("clover_edge.model.open_core", paged)
    with pytest.warns(UserWarning, match=r"GB of weights.*read from disk"):
        clover_edge.load(packed).close()


@pytest.mark.parametrize("threads", [0, -1, 1025, True, 1.5])
def test_threads_that_are_none(packed: Path, threads: Any) -> None:
    with pytest.raises(ArgumentError, match="threads: "):
        clover_edge.load(packed, threads=threads)


def test_an_error_in_the_worker_is_raised_here(packed: Path, tmp_path: Path) -> None:
    """A weight that is not finite is met in use; the consumer of the stream sees the error."""
    folder = tmp_path / "packed"
    shutil.copytree(packed, folder)
    weights = next(folder.glob("*.safetensors"))
    head = read_header(weights)["head"]
    with weights.open("r+b") as file:
        file.seek(head.offset)
        file.write(struct.pack("<e", float("nan")) * 16)
    with (
        clover_edge.load(folder) as model,
        pytest.raises(clover_edge.CloverError, match="not finite"),
    ):
        list(model.stream("Hello", max_new_tokens=8))
