"""A constraint that is no grammar, for the core: what may come next by the text so far."""

from __future__ import annotations

from typing import Any

import numpy as np

STOP = 149  # of tiny_core's vocabulary


class Rule:
    """Allows `allow(text)`; forces `must(text)`; refuses what `takes(text, room)` does not take."""

    stop = STOP

    def __init__(
        self, allow: Any, must: Any = lambda text: [], takes: Any = None, size: int = 160
    ) -> None:
        self.allow, self.must = allow, must
        self.takes = takes or (lambda text, room: True)
        self.bits = np.zeros((size + 31) // 32, np.uint32)
        self.text: list[int] = []
        self.picked: list[int] = []  # places that were no forced ones
        self.rooms: list[int] = []

    def force(self, most: int, room: int) -> list[int]:
        self.rooms.append(room + len(self.text))
        assert 1 <= most <= room
        forced = self.must(self.text)[:most]
        self.text += forced
        return forced

    def allowed(self) -> None:
        assert self.stop not in self.text
        flags = np.zeros(32 * len(self.bits), bool)
        flags[list(self.allow(self.text))] = True
        self.bits[:] = np.packbits(flags, bitorder="little").view(np.uint32)

    def advance(self, token: int, room: int) -> bool:
        assert token in self.allow(self.text)
        self.rooms.append(room + len(self.text) + 1)
        if not self.takes([*self.text, token], room):
            return False
        self.picked.append(len(self.text))
        self.text.append(token)
        return True
