"""Progress on stderr: a bar for each part of the work on a terminal, nothing elsewhere."""

from __future__ import annotations

import sys
from typing import Any


class Bars:
    """`update(what, done, total)` moves the bar of `what`; a context manager that closes it."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._what = ""

    def update(self, what: str, done: int, total: int) -> None:
        from tqdm import tqdm

        if what != self._what:
            self.close()
            self._what = what
            self._bar = tqdm(total=total, desc=what, disable=None, file=sys.stderr)
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()

    def __enter__(self) -> Bars:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
