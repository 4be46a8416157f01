"""Checkpoint to packed folder: read a few rows, quantise them, write them, forget them.

Memory is bounded by a chunk of rows, whatever the size of a tensor or of the model. Everything
that can be checked without the weights is checked before the output folder exists.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import ArgumentError, ExportError, OutOfMemoryError
from ..quant import ErrorStats, Recipe
from ..quant.schemes import TILE_ROWS
from .checkpoint import Checkpoint
from .coding import CHUNK, Calibrations, Coding
from .families import read_model
from .norms import NORMS, check_decay, detect_norm_offset
from .packed_file import PackedWriter
from .plan import SHARD_BYTES, Plan, PlannedExperts, PlannedTensor, make_plan
from .recipe_file import find_recipe
from .report import Report, config_hash

Progress = Callable[[int, int, str], None]

FORMAT_VERSION = 1
COPIED = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "generation_config.json",
)
_CHUNK_COST = 16  # bytes of memory per element of a chunk: as read, as converted, as stored
_SLACK = 64 << 20  # interpreter, headers, side files


def plan_export(
    checkpoint: Checkpoint,
    recipe: str | Path | Recipe = "int4",
    group_size: int | None = None,
    shard_bytes: int = SHARD_BYTES,
) -> Plan:
    """What ``export_checkpoint`` would write. Reads configuration and headers, no weight."""
    model = read_model(checkpoint)
    return make_plan(model, find_recipe(recipe), group_size, checkpoint.nbytes, shard_bytes)


def export_checkpoint(
    checkpoint: str | Path,
    out: str | Path,
    *,
    recipe: str | Path | Recipe = "int4",
    group_size: int | None = None,
    method: str = "rtn",
    calibrations: Calibrations | None = None,
    threads: int = 0,
    norm: str = "auto",
    shard_bytes: int = SHARD_BYTES,
    progress: Progress | None = None,
) -> Report:
    """Pack a checkpoint folder into ``out``, which must be absent or an empty folder.

    ``recipe``: a name, or a TOML file of one's own. ``group_size`` None: 32 where it fits.
    ``method``: one of ``quant.METHODS``; the calibrated ones ask ``calibrations`` matrix by matrix.
    ``threads`` 0: as many as fit the machine; they change no byte.
    ``progress(done, total, name)`` counts parameters. Raises CheckpointError, ExportError,
    UnsupportedModelError, ArgumentError or OutOfMemoryError; whatever happens, ``out`` is complete
    or untouched.
    """
    with Checkpoint(checkpoint) as source:
        coding = Coding(method, calibrations, threads)
        plan = plan_export(source, recipe, group_size, shard_bytes)
        return write_plan(source, plan, out, coding=coding, norm=norm, progress=progress)


def write_plan(
    source: Checkpoint,
    plan: Plan,
    out: str | Path,
    *,
    coding: Coding,
    norm: str = "auto",
    progress: Progress | None = None,
) -> Report:
    """Carry out a plan made for this checkpoint."""
    if norm not in ("auto", *NORMS):
        raise ArgumentError(f"norm must be auto, {' or '.join(NORMS)}, not {norm!r}")
    target = _check_target(Path(out))
    _check_room(target, plan)
    _check_memory(plan)
    for name in COPIED:
        if name.endswith(".json"):
            source.optional_json(name)
    check_decay(source, plan.model.decay_probes)
    offset = detect_norm_offset(source, plan.model.norm_probes, norm)
    spec = {**plan.model.spec, "norm_offset": offset}
    partial = target.parent / f".{target.name}.partial-{os.getpid()}"
    try:
        partial.mkdir()
        try:
            errors = _write_weights(source, plan, coding, partial, progress)
            report = Report(plan, errors, config_hash(source.config_bytes), coding)
            _write_side_files(source, spec, report, partial)
            os.replace(partial, target)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    except OSError as problem:
        place = problem.filename or target
        raise ExportError(f"{place}: {problem.strerror or problem}") from problem
    return report


def _check_target(out: Path) -> Path:
    target = out.resolve()
    if target.exists() and not target.is_dir():
        raise ExportError(f"{out}: is there already, and is not a folder")
    if target.exists() and any(target.iterdir()):
        raise ExportError(f"{out}: is not empty; an export never overwrites anything")
    if not target.parent.is_dir():
        raise ExportError(f"{target.parent}: does not exist; make it first")
    if not os.access(target.parent, os.W_OK):
        raise ExportError(f"{target.parent}: is not writable")
    return target


def _check_room(target: Path, plan: Plan) -> None:
    free = shutil.disk_usage(target.parent).free
    needed = plan.file_bytes + _SLACK
    if needed > free:
        raise ExportError(f"{target.parent}: the export needs {needed:,} bytes, {free:,} are free")


def _check_memory(plan: Plan) -> None:
    widest = max(_width(item) for item in plan.tensors)
    needed = _CHUNK_COST * max(CHUNK, widest * TILE_ROWS) + _SLACK
    available = available_memory()
    if available is not None and needed > available:
        message = f"the export needs {needed:,} bytes of memory, {available:,} are available"
        raise OutOfMemoryError(needed, available, message)


def _width(item: PlannedTensor | PlannedExperts) -> int:
    if isinstance(item, PlannedTensor):
        return item.source.shape[-1]
    return max(part.source.shape[-1] for part in item.parts.values())


def available_memory() -> int | None:
    """Bytes that can be allocated without swapping; None where the system does not say."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return None
    return None


class _Meter:
    """Counts parameters done and tells ``progress`` about it."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self.done, self.total, self.progress = 0, total, progress

    def add(self, count: int, name: str) -> None:
        self.done += count
        if self.progress is not None:
            self.progress(self.done, self.total, name)


def _write_weights(
    source: Checkpoint, plan: Plan, coding: Coding, folder: Path, progress: Progress | None
) -> dict[str, ErrorStats]:
    errors: dict[str, ErrorStats] = {}
    meter = _Meter(plan.parameters, progress)
    with PackedWriter(folder, list(plan.files)) as writer:
        for item in plan.tensors:
            if isinstance(item, PlannedTensor):
                stats = errors[item.name] = ErrorStats()
                pieces, width = item.source.pieces, item.source.shape[-1]
                for data, count in coding.chunks(
                    source, item.name, None, pieces, width, item.scheme, stats
                ):
                    writer.write(item.name, data)
                    meter.add(count, item.name)
            else:
                errors.update(_write_experts(source, item, coding, writer, meter))
        writer.finish()
    return errors


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
            matrix = f"{item.name}.{name}"
            pieces, width = (part.source.pieces[expert],), part.source.shape[-1]
            for data, count in coding.chunks(
                source, matrix, expert, pieces, width, part.scheme, errors[matrix]
            ):
                writer.write(item.name, data)
                meter.add(count, item.name)
            done = part.offset + part.nbytes
        if gap := item.record_bytes - done:
            writer.write(item.name, bytes(gap))
    return errors


def _write_side_files(
    source: Checkpoint, spec: dict[str, Any], report: Report, folder: Path
) -> None:
    plan = report.plan
    for name in COPIED:
        if (source.path / name).is_file():
            shutil.copyfile(source.path / name, folder / name)
    ours = {
        "format_version": FORMAT_VERSION,
        "family": plan.model.family,
        "recipe": plan.recipe,
        "group_size": plan.group_size,
        "spec": spec,
        "generation": plan.model.generation,
        "tensors": {item.name: item.entry for item in plan.tensors},
    }
    _write_json(folder / "config.json", {**source.config, "clover_edge": ours})
    _write_json(folder / "export_report.json", report.as_dict())


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")
