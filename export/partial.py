"""An unfinished export: a hidden folder beside the one it becomes, and a journal of what is done.

The journal counts whole tensors whose bytes are on the disk; what follows them in a file is written
again. It also says what was being exported, so that nothing is continued as something else.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from ..errors import CloverError, ExportError
from ..quant import ErrorStats

_JOURNAL = "journal.json"


@dataclass
class Done:
    """Tensors that are complete, what they lost, and the methods that their matrices got."""

    tensors: int = 0
    errors: dict[str, ErrorStats] = field(default_factory=dict)
    methods: Counter[str] = field(default_factory=Counter)


def identity(*parts: Any) -> str:
    """A digest of what an export is made from and how: JSON values."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


class Partial:
    """Context manager: ``folder`` is where to write, ``done`` what is there already.

    Left by ``finish`` the folder becomes ``target``. Left by an interruption or an error of the
    disk it stays, once a tensor is complete, for ``resume``; any other error removes it.
    """

    def __init__(self, target: Path, identity: str, *, resume: bool) -> None:
        self.target, self.folder = target, unfinished(target)
        self.done = Done()
        self._identity, self._resume = identity, resume
        self._lock: int | None = None

    def __enter__(self) -> Partial:
        """Raises ExportError when another export is at work here, or what there is to resume was
        begun as another export."""
        self.folder.mkdir(exist_ok=True)
        self._lock = _locked(self.folder)
        try:
            if self._resume:
                self.done = self._read()
            if not self.done.tensors:
                _clear(self.folder)
        except BaseException:
            self._release()
            raise
        return self

    def save(self) -> None:
        """Journals ``done``; the bytes themselves are the caller's to sync first."""
        value = {
            "identity": self._identity,
            "tensors": self.done.tensors,
            "errors": {name: asdict(stats) for name, stats in self.done.errors.items()},
            "methods": self.done.methods,
        }
        new = self.folder / f"{_JOURNAL}.new"
        with new.open("w") as file:
            json.dump(value, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.folder / _JOURNAL)

    def finish(self) -> None:
        """The folder becomes the target, which is absent or an empty folder."""
        (self.folder / _JOURNAL).unlink(missing_ok=True)
        self.folder.replace(self.target)

    def _read(self) -> Done:
        try:
            value = json.loads((self.folder / _JOURNAL).read_text())
            errors = {name: ErrorStats(**stats) for name, stats in value["errors"].items()}
            done = Done(value["tensors"], errors, Counter(value["methods"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return Done()  # interrupted before anything was complete
        if value["identity"] != self._identity:
            raise ExportError(
                f"{self.folder}: was begun from another checkpoint, text or version, or with other "
                "options; export without resuming, which begins again"
            )
        return done

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        refused = isinstance(error, CloverError)
        if error is not None and (refused or not (self.folder / _JOURNAL).exists()):
            shutil.rmtree(self.folder, ignore_errors=True)
        self._release()

    def _release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)


def unfinished(target: Path) -> Path:
    """The folder in which an export to ``target`` grows."""
    return target.parent / f".{target.name}.partial"


def _locked(folder: Path) -> int | None:
    """A descriptor that holds the folder's lock; the system lets go of it when the process ends.
    None where there are no such locks."""
    try:
        import fcntl
    except ImportError:
        return None
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as problem:
        os.close(descriptor)
        raise ExportError(f"{folder}: another export is writing here") from problem
    return descriptor


def _clear(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
