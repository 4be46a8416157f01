"""Sessions: every turn says what a cold prompt says, and computes only what is new."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from families import BY_TYPE, write
from tiny_core import same
from tiny_drafter import make_drafter

import clover_edge
from clover_edge import DoneEvent, TextEvent
from clover_edge.errors import ArgumentError, CloverError, ContextLengthError
from clover_edge.export import export_checkpoint

SHORT: dict[str, Any] = {"max_new_tokens": 20, "temperature": 0}
# One of each kind of state: recurrent or not, blocks that count from the start, from the prompt's
# end or not at all, windows, canvases, whole texts.
KINDS = (
    "clover_moe",
    "qwen3",
    "gemma3",
    "llada2_moe",
    "Fast_dLLM_Qwen",
    "a2d-qwen3",
    "a2d-qwen3_5",
    "nemotron_labs_diffusion",
    "diffusion_gemma",
    "Dream",
)


def text_of(rng: random.Random, model: clover_edge.Model, length: int) -> list[int]:
    return [rng.randrange(model.spec["valid_vocab"] // 2) for _ in range(length)]


def wrote(result: clover_edge.GenerationResult) -> tuple[Any, ...]:
    return result.token_ids, result.text, result.finish_reason


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., clover_edge.Model]]:
    opened: dict[str, clover_edge.Model] = {}

    def load(kind: str) -> clover_edge.Model:
        if kind not in opened:
            folder = tmp_path_factory.mktemp("kind")
            write(folder / "in", kind)
            export_checkpoint(folder / "in", folder / "out", recipe="f32")
            opened[kind] = clover_edge.load(folder / "out", threads=1)
        return opened[kind]

    yield load
    for model in opened.values():
        model.close()


@pytest.mark.parametrize("kind", KINDS)
def test_turns_are_cold_prompts(models: Callable[..., clover_edge.Model], kind: str) -> None:
    """Follow-ups, edits, regenerated and shorter prompts, in every mode the model has."""
    model, rng = models(kind), random.Random(kind)
    room = min(model.spec["max_positions"], 400)
    for mode in BY_TYPE[kind].modes:
        session = model.session(snapshot_every=1)
        prompt = text_of(rng, model, 30)
        for turn in range(7):
            options = {**SHORT, "mode": mode, "max_new_tokens": rng.choice([5, 20])}
            found = session.generate(prompt, **options)
            assert wrote(found) == wrote(model.generate(prompt, **options)), (mode, turn)
            assert list(session.tokens[: len(prompt)]) == prompt
            assert found.counters.cached_tokens <= len(prompt)
            held = list(session.tokens)
            if turn == 2:  # the same again
                continue
            if turn == 3:  # somewhere in the middle another word
                held = held[: rng.randrange(10, len(held))]
            prompt = [*held, *text_of(rng, model, rng.randrange(1, 9))]
            if len(prompt) + 40 > room:
                break


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "Dream" and "a2d" not in kind])
def test_states_are_cold_states(models: Callable[..., clover_edge.Model], kind: str) -> None:
    """Bit for bit, however a text was cut into turns: keys, values, recurrent matrices, logits."""
    model, rng = models(kind), random.Random(kind)
    session, prompt = model.session(snapshot_every=1), text_of(rng, model, 30)
    for length in (5, 1, 12):
        session.generate(prompt, **SHORT)
        held = list(session.tokens)
        prompt = [*held[: len(held) - length // 6], *text_of(rng, model, length)]
    found = session.state.arrays()
    cold = model.core.new_state(len(session.tokens))
    model.core.commit(cold, session.tokens, logits="none")
    same(found, cold.arrays())


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mode": "ar"},
        {"mode": "speculative"},
        {"block_length": 7, "threshold": 0.3},
        {"skip_rows": True},
        {"temperature": 1.0, "seed": 3, "threshold": 0.05},
        {"repetition_penalty": 1.3},
        {"stop": "e"},
    ],
)
def test_whatever_the_options(model: clover_edge.Model, options: dict[str, Any]) -> None:
    asked = {**SHORT, "max_new_tokens": 40, **options}
    session = model.session()
    prompt = model.tokenize("Hello")
    cached = []
    for turn in range(4):
        found = session.generate(prompt, **asked)
        assert wrote(found) == wrote(model.generate(prompt, **asked)), turn
        cached.append(found.counters.cached_tokens)
        assert found.counters.prompt_tokens == len(prompt)
        prompt = [*session.tokens, *model.tokenize(" and then")]
    assert cached[0] == 0
    assert all(cached[1:])


def test_only_new_tokens_are_computed(model: clover_edge.Model) -> None:
    session = model.session()
    first = session.generate([5] * 50, **SHORT)
    assert first.counters.cached_tokens == 0
    held = session.tokens
    assert held[:50] == (5,) * 50
    assert held[50 : 50 + len(first.token_ids)] == first.token_ids
    before = model.core.counters["rows"]
    second = session.generate([*held, 1, 2, 3], max_new_tokens=0 + 1, mode="ar", temperature=0)
    assert second.counters.cached_tokens == len(held)
    rows = model.core.counters["rows"] - before
    assert rows == 3 + 1  # the answer's token, for the next turn
    assert model.generate([5] * 50, **SHORT).counters.cached_tokens == 0


def test_a_regenerated_turn_starts_where_its_prompt_ends(model: clover_edge.Model) -> None:
    session = model.session(snapshot_every=0)
    prompt = [5, 6, 7] * 20
    first = session.generate(prompt, **SHORT)
    assert session.snapshots == (60,)
    again = session.generate(prompt, **SHORT)
    assert again.counters.cached_tokens == 60
    assert wrote(again) == wrote(first)
    other = session.generate([*prompt[:-1], 9], **SHORT)  # and no snapshot is in front of that
    assert other.counters.cached_tokens == 0
    assert wrote(other) == wrote(model.generate([*prompt[:-1], 9], **SHORT))


def test_snapshots_every_few_blocks(model: clover_edge.Model) -> None:
    session = model.session(snapshot_every=1)
    prompt = [5, 6, 7] * 120
    session.generate(prompt, **SHORT)
    assert session.snapshots == (128, 256, 360)  # a pass has 128 rows
    edited = [*prompt[:300], 9, 9]
    found = session.generate(edited, **SHORT)
    assert found.counters.cached_tokens == 256
    assert wrote(found) == wrote(model.generate(edited, **SHORT))


def test_snapshots_take_no_more_than_their_limit(model: clover_edge.Model) -> None:
    session = model.session(snapshot_every=1, memory_limit=0)
    session.generate([5, 6, 7] * 120, **SHORT)
    assert session.snapshots == (360,)


def test_rewind(model: clover_edge.Model) -> None:
    session = model.session(snapshot_every=1)
    prompt = [5, 6, 7] * 120
    session.generate(prompt, **SHORT)
    assert session.rewind(200) == 128
    assert session.tokens == tuple(prompt[:128])
    assert session.snapshots == (128,)
    for wrong in (-1, 129, 1.5, True):
        with pytest.raises(ArgumentError, match="tokens: "):
            session.rewind(wrong)  # type: ignore[arg-type]
    assert session.rewind(0) == 0
    assert wrote(session.generate(prompt, **SHORT)) == wrote(model.generate(prompt, **SHORT))


def test_prompts_of_text_and_messages(model: clover_edge.Model) -> None:
    session = model.session()
    text = session.generate("Hello", **SHORT)
    assert wrote(text) == wrote(model.generate("Hello", **SHORT))
    messages = [{"role": "user", "content": "Hello"}]
    assert wrote(session.generate(messages, **SHORT)) == wrote(model.generate(messages, **SHORT))


def test_streams(model: clover_edge.Model) -> None:
    session = model.session()
    events = list(session.stream([5] * 40, **SHORT))
    last = events[-1]
    assert isinstance(last, DoneEvent)
    assert wrote(last.result) == wrote(model.generate([5] * 40, **SHORT))
    with pytest.raises(ArgumentError, match="a stream of it is still open"):
        for _ in session.stream([5] * 40, **SHORT):
            session.rewind(3)
    assert session.tokens[:40] == (5,) * 40


def test_a_cancelled_turn_leaves_the_session_usable(model: clover_edge.Model) -> None:
    """What it holds then is part of the text; a turn that goes on from there is a cold prompt."""
    for events_read in range(1, 12):
        session = model.session()
        stream = session.stream([5] * 40, max_new_tokens=96, temperature=0)
        for _ in range(events_read):
            next(stream, None)
        stream.close()
        held = session.tokens
        whole = model.generate([5] * 40, max_new_tokens=96, temperature=0)
        assert held == ((5,) * 40 + whole.token_ids)[: len(held)]
        prompt = [*held, 1, 2]
        found = session.generate(prompt, **SHORT)
        assert found.counters.cached_tokens == len(held)
        assert wrote(found) == wrote(model.generate(prompt, **SHORT))


@pytest.mark.parametrize("options", [{}, {"mode": "ar"}, {"mode": "speculative"}])
def test_an_error_in_a_turn_leaves_the_session_usable(
    model: clover_edge.Model, options: dict[str, Any]
) -> None:
    """Behind the prompt, in the middle of a block, and in the middle of a pass."""
    prompt = [5, 6, 7] * 50
    for after in (1, 2, 3, 7, 15):
        session = model.session()
        passes = 0

        def stop(layer: int, half: str, arrays: Any, after: int = after) -> None:
            nonlocal passes
            passes += layer == 1
            if passes > after:
                raise RuntimeError("enough")

        model.core.observe(stop)
        try:
            with pytest.raises(RuntimeError, match="enough"):
                session.generate(prompt, **{**SHORT, "max_new_tokens": 96, "steps": 4, **options})
        finally:
            model.core.observe(None)
        assert list(session.tokens[: len(prompt)]) == prompt[: len(session.tokens)]
        more = [*prompt, 9]
        found = session.generate(more, **{**SHORT, **options})
        assert wrote(found) == wrote(model.generate(more, **{**SHORT, **options}))


def test_refused_turns_change_nothing(model: clover_edge.Model) -> None:
    session = model.session(capacity=100)
    session.generate([5] * 40, **SHORT)
    held = session.tokens
    with pytest.raises(ContextLengthError, match="the session has 100"):
        session.generate([5] * 90, **SHORT)
    with pytest.raises(ArgumentError, match="is no generation option"):
        session.generate([5] * 40, tokens=3)  # type: ignore[call-arg]
    with pytest.raises(ArgumentError, match="is empty"):
        session.generate([], **SHORT)
    assert session.tokens == held
    assert len(session.generate([5] * 40).token_ids) <= 60  # left out: what there is room for


def test_arguments(model: clover_edge.Model) -> None:
    for options in (
        {"capacity": 0},
        {"capacity": model.spec["max_positions"] + 1},
        {"capacity": "10"},
        {"snapshot_every": -1},
        {"memory_limit": -1},
        {"memory_limit": 0.5},
    ):
        with pytest.raises(ArgumentError, match=next(iter(options))):
            model.session(**options)


def test_room_grows_with_the_text(model: clover_edge.Model) -> None:
    session = model.session()
    sizes = [session.nbytes]
    for length in (10, 200, 440):
        session.generate([5] * length, **SHORT)
        sizes.append(session.nbytes)
    assert sizes == sorted(sizes)


def test_a_closed_model(packed: Path) -> None:
    with clover_edge.load(packed, threads=1) as model:
        session = model.session()
        session.generate("Hello", **SHORT)
    with pytest.raises(ArgumentError, match="is closed"):
        session.generate("Hello", **SHORT)


def test_threads_take_turns(model: clover_edge.Model) -> None:
    """On sessions of their own and on one that they share."""
    shared = model.session()
    failed: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            rng, own = random.Random(seed), model.session()
            for session in (own, shared, own):
                prompt = text_of(rng, model, 40)
                events = list(session.stream(prompt, **SHORT))
                assert isinstance(events[-1], DoneEvent)
                assert wrote(events[-1].result) == wrote(model.generate(prompt, **SHORT))
                texts = [event.text for event in events if isinstance(event, TextEvent)]
                assert "".join(texts) == events[-1].result.text
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


@pytest.fixture(scope="module")
def pair(
    tiny_transformer: Callable[..., Any],
    pack: Callable[..., Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[clover_edge.Model]:
    """A model and its drafter."""
    folder = tmp_path_factory.mktemp("drafter")
    make_drafter(folder / "in")
    export_checkpoint(folder / "in", folder / "out", recipe="int4")
    model = pack(tiny_transformer("qwen3", seed=7, max_position_embeddings=256), "int4")
    with clover_edge.load(model, threads=1, drafter=folder / "out") as opened:
        yield opened


def test_a_drafter_keeps_up(pair: clover_edge.Model) -> None:
    """Its context is kept, too; where a turn ran without it, it goes on from where it was."""
    session, prompt = pair.session(), pair.tokenize("the other")
    cached = []
    for mode in ("speculative", "speculative", "ar", "speculative", "speculative"):
        found = session.generate(prompt, **SHORT, mode=mode)
        assert wrote(found) == wrote(pair.generate(prompt, **SHORT, mode=mode))
        cached.append(found.counters.cached_tokens)
        held = len(session.tokens)
        prompt = [*session.tokens, *pair.tokenize(" and")]
    assert cached[1] > 0
    assert cached[2] > cached[1]
    assert cached[3] == cached[2]  # the drafter has not seen what "ar" wrote
    assert cached[4] > cached[3]
    assert held < len(prompt)


def test_full_attention_has_nothing_to_keep(models: Callable[..., clover_edge.Model]) -> None:
    session = models("Dream").session()
    session.generate([5] * 20, **SHORT)
    assert session.generate([*session.tokens, 6], **SHORT).counters.cached_tokens == 0


def test_errors_are_this_packages(model: clover_edge.Model) -> None:
    with pytest.raises(CloverError):
        model.session(capacity=-5)
