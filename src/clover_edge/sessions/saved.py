"""Sessions as files: one file each, for the model that wrote it alone.

    offset  bytes  what
    0       8      b"CLVRSESS"
    8       4      format version, little-endian
    12      4      bytes of the header, little-endian
    16      32     SHA-256 of the header
    48      …      the header, JSON; behind it zeros up to a multiple of 64
                   the model's state, and where there is one the drafter's, each up to such a
                   multiple; their form is the core's, with lengths and a checksum of its own

A model is told from others by its spec, its tensor table, the sizes of its files, the first bytes
of each tensor (of an ONNX folder: samples of its files) and its tokenizer: reading whole weights
would take longer than what is saved.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import struct
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, TYPE_CHECKING, Any

from ..errors import ModelFormatError, SavedSessionError
from ..generation import NO_MASK
from ..loader import PackedFolder
from .held import Held
from .session import FIRST_ROOM, Session

if TYPE_CHECKING:
    from .._core import Model as CoreModel
    from .._core import State as CoreState
    from ..model import Model

MAGIC = b"CLVRSESS"
VERSION = 1
ALIGNMENT = 64
_START = struct.Struct("<8sII32s")
_SAMPLE = 4096  # bytes of each tensor that tell models of one shape apart
_GRAPH_SAMPLES = 256  # of a file of an ONNX folder, whose tensors are not described
_FIELDS = {
    "model": str,
    "drafter": str,
    "capacity": int,
    "snapshot_every": int,
    "memory_limit": int,
    "grid": int,
    "turn": int,
    "tokens": list,
    "state": int,
    "context": int,
}


def identity(folder: PackedFolder) -> str:
    """What tells a packed folder from every other, in hexadecimal."""
    digest = hashlib.sha256()
    sizes = [file.stat().st_size for file in folder.files]
    described = {"spec": folder.spec, "table": folder.table, "sizes": sizes}
    digest.update(json.dumps(described, sort_keys=True, default=list).encode())
    for number, path in enumerate(folder.files):
        with path.open("rb") as file:
            for offset, size in _samples(folder, number, sizes[number]):
                file.seek(offset)
                digest.update(file.read(size))
    tokenizer = folder.path / "tokenizer.json"
    if tokenizer.is_file():  # drafters have none
        digest.update(tokenizer.read_bytes())
    return digest.hexdigest()


def _samples(folder: PackedFolder, number: int, size: int) -> list[tuple[int, int]]:
    """Places of a file that are looked at, and bytes there."""
    if folder.graphs:
        return [(size * i // _GRAPH_SAMPLES, _SAMPLE) for i in range(_GRAPH_SAMPLES)]
    rows = [row for row in folder.table if row["file"] == number]
    return [(row["offset"], min(_SAMPLE, row["bytes"])) for row in rows]


def save_session(session: Session, held: Held, path: Path) -> None:
    """Writes `held` of `session`; nothing is left behind where that fails. Raises OSError."""
    model = session.model
    drafter = model.drafter
    header = {
        "model": identity(model.folder),
        "drafter": "" if drafter is None else identity(drafter.folder),
        "capacity": session.capacity,
        "snapshot_every": session.snapshot_every,
        "memory_limit": session.memory_limit,
        "grid": held.grid,
        "turn": held.turn,
        "tokens": held.tokens,
        "state": _length(held.state),
        "context": 0 if held.context is None else _length(held.context),
    }
    with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}-", delete=False) as file:
        try:
            _write(file, header, held)
            file.flush()
            os.fsync(file.fileno())
            os.replace(file.name, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(file.name)
            raise


def _length(state: CoreState) -> int:
    total = 0

    def count(piece: memoryview) -> None:
        nonlocal total
        total += piece.nbytes

    state.save(count)
    return total


def _write(file: IO[bytes], header: Mapping[str, Any], held: Held) -> None:
    text = json.dumps(header, separators=(",", ":")).encode()
    file.write(_START.pack(MAGIC, VERSION, len(text), hashlib.sha256(text).digest()))
    file.write(text)
    for state in (held.state, held.context):
        file.write(b"\0" * (-file.tell() % ALIGNMENT))
        if state is not None:
            state.save(file.write)


def load_session(model: Model, path: Path) -> Session:
    """The session that `save_session` wrote; errors as of `Model.load_session`."""
    where = str(path)
    try:
        if path.is_file() and not path.stat().st_size:  # which cannot be mapped
            raise SavedSessionError(where, "file", "is empty")
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            header, end = _header(where, data)
            _check_model(where, model, header)
            return _session(where, model, header, data, end)
    except OSError as error:
        raise SavedSessionError(where, "file", f"cannot be read: {error.strerror}") from error


def _header(where: str, data: mmap.mmap) -> tuple[dict[str, Any], int]:
    """The header, its fields checked one by one, and where it ends."""
    if len(data) < _START.size or data[: len(MAGIC)] != MAGIC:
        raise SavedSessionError(where, "magic", "is not that of a saved session")
    _, version, length, digest = _START.unpack(data[: _START.size])
    if version != VERSION:
        raise SavedSessionError(
            where, "version", f"{version} is not supported (this version reads {VERSION})"
        )
    text = data[_START.size : _START.size + length]
    if hashlib.sha256(text).digest() != digest:
        raise SavedSessionError(where, "header", "is damaged or cut short")
    try:
        header = json.loads(text)
    except ValueError as error:
        raise SavedSessionError(where, "header", f"is no JSON: {error}") from None
    if not isinstance(header, dict):
        raise SavedSessionError(where, "header", "is no object")
    for name, kind in _FIELDS.items():
        value = header.get(name)
        if type(value) is not kind or (isinstance(value, int) and value < 0):
            raise SavedSessionError(where, name, f"{value!r:.50} is no {kind.__name__}")
    if any(type(token) is not int for token in header["tokens"]):
        raise SavedSessionError(where, "tokens", "are not all ids")
    return header, _aligned(_START.size + length)


def _aligned(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT


def _check_model(where: str, model: Model, header: Mapping[str, Any]) -> None:
    if header["model"] != identity(model.folder):
        raise SavedSessionError(where, "model", f"is another one than {model.path}")
    most = model.spec["max_positions"]
    if not 1 <= header["capacity"] <= most:
        raise SavedSessionError(where, "capacity", f"{header['capacity']} is not in [1, {most}]")
    limit, mask = model.spec["valid_vocab"], model.spec.get("mask_token_id", NO_MASK)
    for at, token in enumerate(header["tokens"]):
        if not 0 <= token < limit or token == mask:
            raise SavedSessionError(where, "tokens", f"{token}, at {at}, is no id of a text")


def _session(
    where: str, model: Model, header: Mapping[str, Any], data: mmap.mmap, end: int
) -> Session:
    tokens, context = header["tokens"], None
    second = _aligned(end + header["state"])
    if len(data) != second + header["context"]:
        wanted = second + header["context"]
        raise SavedSessionError(where, "file", f"has {len(data)} bytes, the header says {wanted}")
    room = min(header["capacity"], max(FIRST_ROOM, len(tokens)))
    state = _state(where, "state", model.core, data, end, header["state"], room)
    if state.position != len(tokens):
        reason = f"are {len(tokens)}, the state holds {state.position}"
        raise SavedSessionError(where, "tokens", reason)
    drafter = model.drafter
    same = drafter is not None and identity(drafter.folder) == header["drafter"]
    if drafter is not None and same and header["context"]:  # another one's is computed anew
        context = _state(where, "context", drafter.core, data, second, header["context"], room)
        context.rewind(len(tokens))
    held = Held(model.spec, state, tokens, context=context, grid=header["grid"])
    held.turn = header["turn"]
    return Session(
        model,
        capacity=header["capacity"],
        snapshot_every=header["snapshot_every"],
        memory_limit=header["memory_limit"],
        held=held,
    )


def _state(
    where: str, name: str, core: CoreModel, data: mmap.mmap, start: int, length: int, room: int
) -> CoreState:
    with memoryview(data) as whole, whole[start : start + length] as part:
        try:
            return core.load_state(part, room)
        except ModelFormatError as error:
            raise SavedSessionError(where, f"{name}.{error.field}", error.reason) from None
