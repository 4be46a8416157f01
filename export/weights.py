"""A plan's weights to their files: tensor by tensor, expert by expert, a few rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from ..quant import ErrorStats
from .checkpoint import Checkpoint
from .coding import Coding
from .families import Piece
from .kept import KEPT, packed_rows
from .packed_file import PackedWriter
from .partial import Done, Partial
from .plan import Plan, PlannedExperts, PlannedPart, PlannedTensor

Progress = Callable[[int, int, str], None]

_SAVE_BYTES = 64 << 20  # of finished tensors that an interruption may cost, beside the one at hand


class _Meter:
    """Counts parameters done and tells ``progress`` about it."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self.done, self.total, self.progress = 0, total, progress

    def add(self, count: int, name: str) -> None:
        self.done += count
        if self.progress is not None:
            self.progress(self.done, self.total, name)


def write_weights(
    source: Checkpoint,
    plan: Plan,
    coding: Coding,
    folder: Path,
    progress: Progress | None = None,
    partial: Partial | None = None,
) -> dict[str, ErrorStats]:
    """Writes the weight files and their index; returns a measure for each matrix.

    ``progress(done, total, name)`` counts parameters. ``partial``: goes on behind what that has
    done, and tells it what is done now and then.
    """
    done = partial.done if partial else Done()
    coding.methods.update(done.methods)
    meter = _Meter(plan.parameters, progress)
    unsaved = 0
    with PackedWriter(folder, list(plan.files), done.tensors) as writer:
        for item in plan.tensors[: done.tensors]:
            meter.add(item.parameters, item.name)
        for item in plan.tensors[done.tensors :]:
            if isinstance(item, PlannedTensor):
                done.errors.update(_write_tensor(source, item, coding, writer, meter))
            else:
                done.errors.update(_write_experts(source, item, coding, writer, meter))
            done.tensors += 1
            unsaved += item.blob.nbytes
            if partial and unsaved >= _SAVE_BYTES:
                writer.sync()
                done.methods = coding.methods
                partial.save()
                unsaved = 0
        writer.finish()
    return done.errors


def _write_tensor(
    source: Checkpoint, item: PlannedTensor, coding: Coding, writer: PackedWriter, meter: _Meter
) -> dict[str, ErrorStats]:
    stats, pieces = ErrorStats(), item.source.pieces
    for data, count in _stored_bytes(source, coding, item.name, None, pieces, item, stats):
        writer.write(item.name, data)
        meter.add(count, item.name)
    return {item.name: stats}


def _write_experts(
    source: Checkpoint, item: PlannedExperts, coding: Coding, writer: PackedWriter, meter: _Meter
) -> dict[str, ErrorStats]:
    """Record by record; a record is padded between its parts and behind the last."""
    errors = {f"{item.name}.{name}": ErrorStats() for name in item.parts}
    for expert in range(item.source.experts):
        done = 0
        for name, part in item.parts.items():
            if gap := part.offset - done:
                writer.write(item.name, bytes(gap))
            matrix, pieces = f"{item.name}.{name}", (part.source.pieces[expert],)
            for data, count in _stored_bytes(
                source, coding, matrix, expert, pieces, part, errors[matrix]
            ):
                writer.write(item.name, data)
                meter.add(count, item.name)
            done = part.offset + part.nbytes
        if gap := item.record_bytes - done:
            writer.write(item.name, bytes(gap))
    return errors


def _stored_bytes(
    source: Checkpoint,
    coding: Coding,
    name: str,
    expert: int | None,
    pieces: tuple[Piece, ...],
    planned: PlannedTensor | PlannedPart,
    stats: ErrorStats,
) -> Iterator[tuple[memoryview, int]]:
    """Chunks of a matrix as it is stored, and how many weights each holds."""
    width = planned.source.shape[-1]
    if planned.origin == KEPT:
        return packed_rows(source, pieces, width, planned.scheme)
    return coding.chunks(source, name, expert, pieces, width, planned.scheme, stats)
