"""Sessions as files: the same conversation goes on; files that lie are refused by name."""

from __future__ import annotations

import hashlib
import json
import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tiny_drafter import make_drafter

import clover_edge
from clover_edge.errors import CloverError, SavedSessionError
from clover_edge.export import export_checkpoint

SHORT: dict[str, Any] = {"max_new_tokens": 20, "temperature": 0}
START = struct.Struct("<8sII32s")
PROMPT = [5, 6, 7] * 50


@pytest.fixture(scope="module")
def saved(model: clover_edge.Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    session = model.session(snapshot_every=1)
    session.generate(PROMPT, **SHORT)
    path = tmp_path_factory.mktemp("saved") / "a.session"
    session.save(path)
    return path


def with_header(path: Path, out: Path, **fields: Any) -> Path:
    """A copy whose header says something else, its length and digest fitting; None: left out."""
    data = path.read_bytes()
    magic, version, length, _ = START.unpack(data[: START.size])
    text = data[START.size : START.size + length]
    rest = data[-(-(START.size + length) // 64) * 64 :]
    header = {**json.loads(text), **fields}
    text = json.dumps({name: value for name, value in header.items() if value is not None}).encode()
    return framed(out, text, rest, magic, version)


def framed(
    out: Path, text: bytes, rest: bytes, magic: bytes = b"CLVRSESS", version: int = 1
) -> Path:
    start = START.pack(magic, version, len(text), hashlib.sha256(text).digest()) + text
    out.write_bytes(start + bytes(-len(start) % 64) + rest)
    return out


def test_the_conversation_goes_on(model: clover_edge.Model, tmp_path: Path) -> None:
    session = model.session(snapshot_every=1, capacity=300, memory_limit=1 << 20)
    session.generate(PROMPT, **SHORT)
    path = tmp_path / "a.session"
    session.save(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.session"]
    found = model.load_session(path)
    assert (found.tokens, found.snapshots) == (session.tokens, session.snapshots)
    assert (found.capacity, found.snapshot_every, found.memory_limit) == (300, 1, 1 << 20)
    follow_up = [*session.tokens, 1, 2]
    for prompt in (follow_up, [*PROMPT[:140], 9]):
        a, b = (each.generate(prompt, **SHORT) for each in (session, found))
        assert (a.token_ids, a.counters.cached_tokens) == (b.token_ids, b.counters.cached_tokens)
        assert a.counters.cached_tokens >= 128
    session.save(path)  # over the other
    assert model.load_session(path).tokens == session.tokens


def test_another_process_goes_on(packed: Path, saved: Path, model: clover_edge.Model) -> None:
    """The same folder opened anew, with fewer bits for keys refused."""
    with clover_edge.load(packed, threads=1) as again:
        session = again.load_session(saved)
        found = session.generate([*session.tokens, 1], **SHORT)
        assert found.counters.cached_tokens == len(session.tokens) - len(found.token_ids) - 1
    want = model.generate([*model.load_session(saved).tokens, 1], **SHORT)
    assert found.token_ids == want.token_ids
    with (
        clover_edge.load(packed, threads=1, kv="int8") as other,
        pytest.raises(SavedSessionError, match=r"state\.kv: 0 is not the model's 2"),
    ):
        other.load_session(saved)


def test_an_empty_session(model: clover_edge.Model, tmp_path: Path) -> None:
    model.session().save(tmp_path / "a")
    assert model.load_session(tmp_path / "a").tokens == ()


def test_another_model(
    saved: Path, tiny: Callable[..., Any], pack: Callable[..., Path], tmp_path: Path
) -> None:
    """Of the same shape, with other weights."""
    twin = pack(tiny(seed=22, overrides={"max_position_embeddings": 512}), "int4")
    with (
        clover_edge.load(twin, threads=1) as other,
        pytest.raises(SavedSessionError, match=r"a\.session: model: is another one than"),
    ):
        other.load_session(saved)


def test_a_file_that_cannot_be_written(model: clover_edge.Model, tmp_path: Path) -> None:
    session = model.session()
    session.generate([5] * 10, **SHORT)
    with pytest.raises(OSError, match="No such file"):
        session.save(tmp_path / "nowhere" / "a")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="directory"):
        session.save(tmp_path / "folder")
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder"]


def test_files_that_are_none(model: clover_edge.Model, tmp_path: Path) -> None:
    path = tmp_path / "a"
    for reason in ("No such file", "empty", "magic", "magic", "directory"):
        with pytest.raises(SavedSessionError, match=reason) as caught:
            model.load_session(path)
        assert caught.value.path == str(path)
        if reason == "No such file":
            path.write_bytes(b"")
        elif reason == "empty":
            path.write_bytes(b"CLVR")
        elif path.is_file() and path.stat().st_size == 4:
            path.write_bytes(b"<html>" * 100)
        elif path.is_file():
            path.unlink()
            path.mkdir()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model": None}, "model: None is no str"),
        ({"model": "0" * 64}, "model: is another one"),
        ({"capacity": 1 << 40}, "capacity: "),
        ({"capacity": 0}, "capacity: "),
        ({"capacity": -1}, "capacity: -1 is no int"),
        ({"capacity": True}, "capacity: True is no int"),
        ({"snapshot_every": "often"}, "snapshot_every: "),
        ({"tokens": {}}, "tokens: {} is no list"),
        ({"tokens": [1.5]}, "tokens: are not all ids"),
        ({"tokens": [1, 2]}, "tokens: are 2, the state holds"),
        ({"tokens": [1 << 70]}, "tokens: .* is no id of a text"),
        ({"tokens": [-1]}, "tokens: -1, at 0, is no id"),
        ({"grid": None}, "grid: None"),
        ({"state": 64}, "file: has .* bytes, the header says"),
        ({"state": 1 << 62}, "file: has"),
        ({"context": 64}, "file: has"),
    ],
)
def test_headers_that_lie(
    model: clover_edge.Model, saved: Path, tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(SavedSessionError, match=message):
        model.load_session(with_header(saved, tmp_path / "a", **fields))


def test_headers_that_are_none(model: clover_edge.Model, tmp_path: Path) -> None:
    for text, message in ((b"[]", "is no object"), (b"{", "is no JSON"), (b"\xff", "is no JSON")):
        with pytest.raises(SavedSessionError, match=message):
            model.load_session(framed(tmp_path / "a", text, b""))
    with pytest.raises(SavedSessionError, match="version: 2 is not supported"):
        model.load_session(framed(tmp_path / "a", b"{}", b"", version=2))


def test_damage_is_seen(model: clover_edge.Model, saved: Path, tmp_path: Path) -> None:
    """Flipped bits anywhere but in the zeros between the parts, and lost ends."""
    data, rng, path = saved.read_bytes(), random.Random(3), tmp_path / "a"
    length = START.unpack(data[: START.size])[2]
    zeros = range(START.size + length, -(-(START.size + length) // 64) * 64)
    for _ in range(60):
        flipped = bytearray(data)
        at = rng.choice((rng.randrange(len(data)), rng.randrange(START.size + length)))
        if at in zeros:
            continue
        flipped[at] ^= 1 << rng.randrange(8)
        path.write_bytes(flipped)
        with pytest.raises(SavedSessionError):
            model.load_session(path)
    for _ in range(40):
        path.write_bytes(data[: rng.randrange(len(data))])
        with pytest.raises(SavedSessionError):
            model.load_session(path)
    path.write_bytes(data + b"\0")
    with pytest.raises(SavedSessionError, match="file: has"):
        model.load_session(path)


@pytest.fixture(scope="module")
def beside(
    tiny_transformer: Callable[..., Any],
    pack: Callable[..., Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[str], clover_edge.Model]]:
    """A model with one drafter, with another, and alone."""
    model = pack(tiny_transformer("qwen3", seed=7, max_position_embeddings=256), "int4")
    opened = {"": clover_edge.load(model, threads=1)}
    for seed, name in enumerate(("one", "other")):
        folder = tmp_path_factory.mktemp(name)
        make_drafter(folder / "in", seed=seed)
        export_checkpoint(folder / "in", folder / "out", recipe="int4")
        opened[name] = clover_edge.load(model, threads=1, drafter=folder / "out")
    yield opened.__getitem__
    for each in opened.values():
        each.close()


def test_a_drafters_context_is_saved(
    beside: Callable[[str], clover_edge.Model], tmp_path: Path
) -> None:
    """Where another drafter drafts, or none, the context is not used and nothing else changes."""
    session, path = beside("one").session(), tmp_path / "a"
    session.generate([5] * 30, **SHORT)
    session.save(path)
    prompt = [*session.tokens, 6]
    want = session.generate(prompt, **SHORT)
    assert want.counters.cached_tokens == len(prompt) - 1
    for name, cached in (("one", len(prompt) - 1), ("other", 0), ("", len(prompt) - 1)):
        found = beside(name).load_session(path).generate(prompt, **SHORT)
        assert found.token_ids == want.token_ids
        assert found.counters.cached_tokens == cached, name


def test_errors_are_this_packages() -> None:
    assert issubclass(SavedSessionError, CloverError)
