"""The store: the longest prefix wins, no conversation is lost to another, memory is bounded."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest

import clover_edge
from clover_edge.errors import ArgumentError, OutOfMemoryError
from clover_edge.sessions import PrefixStore, Session

SHORT: dict[str, Any] = {"max_new_tokens": 20, "temperature": 0}
ROOM = 1 << 30
SYSTEM = [5, 6, 7] * 50


def turn(store: PrefixStore, prompt: list[int]) -> tuple[tuple[int, ...], int]:
    """One turn through the store: all that the session then holds, and its cached tokens."""
    with store.lease(prompt) as session:
        found = session.generate(prompt, **SHORT)
        want = session.model.generate(prompt, **SHORT)
        assert (found.token_ids, found.text) == (want.token_ids, want.text)
        return session.tokens, found.counters.cached_tokens


def test_a_conversation_goes_on(model: clover_edge.Model) -> None:
    store = PrefixStore(model, ROOM)
    held, cached = turn(store, [*SYSTEM, 1])
    assert cached == 0
    total = 0
    for _ in range(3):
        before = len(held)
        held, cached = turn(store, [*held, 2, 3])
        assert cached == before
        total += cached
    counters = store.counters()
    assert (counters.hits, counters.misses, counters.sessions, counters.evictions) == (3, 1, 1, 0)
    assert counters.cached_tokens == total
    assert 0 < counters.nbytes <= ROOM


def test_the_longest_prefix_wins(model: clover_edge.Model) -> None:
    store = PrefixStore(model, ROOM, snapshot_every=1)
    short, _ = turn(store, [*SYSTEM, 1])
    long, _ = turn(store, [*short, *[8] * 30])
    other, cached = turn(store, [9] * 40)
    assert cached == 0
    assert turn(store, [*long, 1])[1] == len(long)
    assert turn(store, [*other, 1])[1] == len(other)
    assert store.counters().sessions == 2


def test_a_shared_beginning_is_copied(model: clover_edge.Model) -> None:
    """Another conversation with the same system prompt takes a copy of it."""
    store = PrefixStore(model, ROOM, snapshot_every=1)
    first, _ = turn(store, [*SYSTEM, *[1] * 40])
    second, cached = turn(store, [*SYSTEM, *[2] * 40])
    assert cached == 128
    assert store.counters().sessions == 2
    for held in (first, second):
        assert turn(store, [*held, 3])[1] == len(held)


def test_a_regenerated_answer_takes_the_others_place(model: clover_edge.Model) -> None:
    store = PrefixStore(model, ROOM)
    prompt = [*SYSTEM, 1]
    turn(store, prompt)
    assert turn(store, prompt)[1] == len(prompt)
    assert store.counters().sessions == 1


def test_the_least_recently_used_goes_first(model: clover_edge.Model) -> None:
    store = PrefixStore(model, ROOM)
    held = [turn(store, [first] * 60)[0] for first in (1, 2, 3)]
    each = store.counters().nbytes // 3
    turn(store, [*held[0], 9])
    small = PrefixStore(model, each * 5 // 2)
    held = [turn(small, [first] * 60)[0] for first in (1, 2)]
    turn(small, [*held[0], 9])
    turn(small, [3] * 60)
    counters = small.counters()
    assert (counters.sessions, counters.evictions) == (2, 1)
    assert counters.nbytes <= small.memory_limit
    assert turn(small, [*held[1], 9])[1] == 0  # gone
    nothing = PrefixStore(model, 0)
    turn(nothing, [4] * 60)
    assert nothing.counters().sessions == 0
    store.clear()
    assert store.counters().nbytes == 0


def test_a_leased_session_is_nobody_elses(model: clover_edge.Model) -> None:
    store = PrefixStore(model, ROOM)
    held, _ = turn(store, [*SYSTEM, 1])
    prompt = [*held, 2]
    with store.lease(prompt) as one, store.lease(prompt) as other:
        assert one is not other
        assert one.reach(prompt) == len(held)
        assert other.reach(prompt) == 0
    assert store.counters().sessions == 1  # one without tokens is not kept


def test_an_error_gives_the_session_back(model: clover_edge.Model) -> None:
    store = PrefixStore(model, ROOM)
    with pytest.raises(KeyError), store.lease(SYSTEM) as session:
        session.generate(SYSTEM, **SHORT)
        raise KeyError
    assert turn(store, [*SYSTEM, 1])[1] == len(SYSTEM)


def test_without_memory_for_a_copy(
    model: clover_edge.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session itself is lent."""

    def fork(self: Session, tokens: int) -> Session:
        raise OutOfMemoryError(1, 0)

    store = PrefixStore(model, ROOM, snapshot_every=1)
    turn(store, [*SYSTEM, *[1] * 40])
    monkeypatch.setattr(Session, "fork", fork)
    assert turn(store, [*SYSTEM, *[2] * 40])[1] == 128
    assert store.counters().sessions == 1


@pytest.mark.parametrize("limit", [-1, 1.5, "1", None])
def test_limits(model: clover_edge.Model, limit: Any) -> None:
    with pytest.raises(ArgumentError, match="memory_limit"):
        PrefixStore(model, limit)


def test_many_threads(model: clover_edge.Model) -> None:
    """Conversations of one beginning, under a limit that drops some: nothing is lost or mixed."""
    store = PrefixStore(model, 400_000, snapshot_every=1)
    failed: list[BaseException] = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        try:
            held: tuple[int, ...] = tuple(SYSTEM)
            for _ in range(4):
                held, _ = turn(store, [*held, *(rng.randrange(100) for _ in range(5))])
                counters = store.counters()
                assert counters.nbytes <= store.memory_limit
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    counters = store.counters()
    assert counters.hits + counters.misses == 24
    assert counters.hits > 6
