"""`PrefixStore`: what many conversations have computed, for those that begin the same way."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..domains import integer_of
from ..errors import ArgumentError, OutOfMemoryError
from .session import SNAPSHOT_EVERY, Session

if TYPE_CHECKING:
    from ..model import Model


@dataclass(frozen=True)
class StoreCounters:
    """What a store has done so far, and what it holds now."""

    hits: int  # leases that found a prefix
    misses: int  # leases that began with nothing
    cached_tokens: int  # that all leases together found
    evictions: int  # sessions that were dropped to keep the limit
    sessions: int  # that it holds now, leased ones left out
    nbytes: int  # of these


class PrefixStore:
    """Sessions of one model under a common memory limit, the least recently used dropped first.

    Any thread may lease. A leased session is the lessee's alone; a request with the same prefix
    that comes meanwhile finds another one, or none.
    """

    def __init__(
        self, model: Model, memory_limit: int, *, snapshot_every: int = SNAPSHOT_EVERY
    ) -> None:
        """`memory_limit`: bytes of all sessions that wait; each session's snapshots may take a
        quarter of it. `snapshot_every`: blocks, as of `Model.session`."""
        limit = integer_of(memory_limit)
        if limit is None or limit < 0:
            raise ArgumentError(f"memory_limit: {memory_limit!r} is not a number of bytes")
        self._model = model
        self.memory_limit = limit
        self._snapshot_every = snapshot_every
        self._lock = threading.Lock()
        self._sessions: list[Session] = []  # the most recently used last
        self._hits = self._misses = self._cached = self._evictions = 0

    @contextmanager
    def lease(self, ids: Sequence[int]) -> Iterator[Session]:
        """A session that holds the longest prefix of `ids` that any waiting one can serve.

        It comes back into the store when the block ends, however it ends.
        """
        session = self._take(list(ids))
        try:
            yield session
        finally:
            self._put(session)

    def counters(self) -> StoreCounters:
        """A consistent copy."""
        with self._lock:
            return StoreCounters(
                hits=self._hits,
                misses=self._misses,
                cached_tokens=self._cached,
                evictions=self._evictions,
                sessions=len(self._sessions),
                nbytes=sum(session.nbytes for session in self._sessions),
            )

    def clear(self) -> None:
        """Drops every session that waits."""
        with self._lock:
            self._sessions.clear()

    def _take(self, ids: list[int]) -> Session:
        with self._lock:
            reach, found = 0, None
            for session in self._sessions:  # of equals the most recently used
                reached = session.reach(ids)
                if reached and reached >= reach:
                    reach, found = reached, session
            self._hits += found is not None
            self._misses += found is None
            self._cached += reach
            if found is not None:
                self._sessions.remove(found)
        if found is None:
            return self._new()
        if found.follows(ids):
            return found
        try:  # another conversation's, which keeps its own
            copy = found.fork(reach)
        except OutOfMemoryError:
            return found
        self._put(found)
        return copy

    def _new(self) -> Session:
        return Session(
            self._model, snapshot_every=self._snapshot_every, memory_limit=self.memory_limit // 4
        )

    def _put(self, session: Session) -> None:
        if not session.tokens:
            return
        with self._lock:
            self._sessions = [each for each in self._sessions if not _serves(session, each)]
            self._sessions.append(session)
            while self._sessions and self._nbytes() > self.memory_limit:
                del self._sessions[0]
                self._evictions += 1

    def _nbytes(self) -> int:
        return sum(session.nbytes for session in self._sessions)


def _serves(session: Session, other: Session) -> bool:
    """Whether whoever asks for all that `other` holds can as well have `session`."""
    return session.reach(other.tokens) == len(other.tokens)
