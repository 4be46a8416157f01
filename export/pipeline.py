"""Checkpoint to packed folder: read a few rows, quantise them, write them, forget them.

Memory is bounded by a chunk of rows, whatever the size of a tensor or of the model. Everything
that can be checked without the weights is checked before the output folder exists.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from .. import __version__
from ..errors import ArgumentError, ExportError, OutOfMemoryError
from ..quant import CALIBRATED, Recipe, Scheme
from ..quant.schemes import TILE_ROWS
from .calibration import DEFAULT_TOKENS, Calibrator, Passage, calibration_passages
from .checkpoint import Checkpoint
from .coding import CHUNK, Coding
from .families import Model, Piece, read_model
from .kept import choose
from .norms import NORMS, check_decay, detect_norm_offset
from .partial import Partial, identity, unfinished
from .plan import SHARD_BYTES, Plan, PlannedExperts, PlannedTensor, make_plan
from .recipe_file import find_recipe
from .report import Report, config_hash
from .weights import Progress, write_weights

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
    """What ``export_checkpoint`` would write. Reads configuration and headers, no weight; of
    quantised tensors the scales, and codes of 8 bits."""
    model = read_model(checkpoint)

    def origin(pieces: tuple[Piece, ...], wanted: Scheme) -> tuple[Scheme, str]:
        return choose(checkpoint, pieces, wanted)

    chosen = find_recipe(recipe)
    return make_plan(model, chosen, group_size, checkpoint.nbytes, shard_bytes, origin)


def export_checkpoint(
    checkpoint: str | Path,
    out: str | Path,
    *,
    recipe: str | Path | Recipe = "int4",
    group_size: int | None = None,
    method: str = "rtn",
    calib: str | Path | None = None,
    calib_tokens: int = DEFAULT_TOKENS,
    threads: int = 0,
    norm: str = "auto",
    shard_bytes: int = SHARD_BYTES,
    resume: bool = False,
    preview_tensors: str | Path | None = None,
    progress: Progress | None = None,
) -> Report:
    """Pack a checkpoint (a folder or a GGUF file) into ``out``, which must be absent or empty.

    ``recipe``: a name, or a TOML file of one's own. ``group_size`` None: 32 where it fits.
    ``method``: one of ``quant.METHODS``; the calibrated ones run ``calib_tokens`` tokens of
    ``calib`` (a .txt or .jsonl file; None: a small built-in set) through the checkpoint.
    ``threads`` 0: as many as fit the machine; they change no byte.
    ``resume``: go on where an interrupted export of the same things to the same place stopped; the
    result is the same, byte for byte. ``progress(done, total, name)`` counts parameters.

    Raises CheckpointError, ExportError, UnsupportedModelError, ArgumentError or OutOfMemoryError;
    whatever happens, ``out`` is complete or untouched.
    """
    with Checkpoint(checkpoint, preview_tensors=preview_tensors) as source:
        coding = Coding(method, threads=threads)
        plan = plan_export(source, recipe, group_size, shard_bytes)
        spec = plan.model.spec
        passages = calibration_passages(source, spec, method, calib, calib_tokens)
        return write_plan(
            source,
            plan,
            out,
            coding=coding,
            passages=passages,
            norm=norm,
            resume=resume,
            progress=progress,
        )


def write_plan(
    source: Checkpoint,
    plan: Plan,
    out: str | Path,
    *,
    coding: Coding,
    passages: list[Passage] | None = None,
    norm: str = "auto",
    resume: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Carry out a plan made for this checkpoint; a calibrated method needs ``passages``."""
    if norm not in ("auto", *NORMS):
        raise ArgumentError(f"norm must be auto, {' or '.join(NORMS)}, not {norm!r}")
    if coding.method in CALIBRATED and not passages and coding.calibrations is None:
        raise ArgumentError(f"method {coding.method} needs calibration")
    target = check_target(Path(out))
    _check_room(target, plan, resume)
    _check_memory(plan)
    for name in COPIED:
        if name.endswith(".json"):
            source.optional_json(name)
    check_decay(source, plan.model.decay_probes)
    spec = {**plan.model.spec, "norm_offset": _norm_offset(source, plan.model, norm)}
    if passages:
        hessians = coding.method == "gptq"
        coding.calibrations = Calibrator(
            source, plan.model, spec, passages, hessians=hessians, threads=coding.threads
        )
    made_of = _identity(source, plan, spec, coding, passages or [])
    try:
        with Partial(target, made_of, resume=resume) as partial:
            errors = write_weights(source, plan, coding, partial.folder, progress, partial)
            report = Report(plan, errors, config_hash(source.config_bytes), coding)
            _write_side_files(source, spec, report, partial.folder)
            partial.finish()
    except OSError as problem:
        place = problem.filename or target
        raise ExportError(f"{place}: {problem.strerror or problem}") from problem
    return report


def _identity(
    source: Checkpoint, plan: Plan, spec: dict[str, Any], coding: Coding, passages: list[Passage]
) -> str:
    """Of everything that decides a byte of the result."""
    tensors = {
        name: [info.dtype, info.shape, info.file.name, *_stamp(info.file)]
        for name, info in source.tensors.items()
    }
    texts = [[passage.ids.tolist(), passage.masked.tolist()] for passage in passages]
    entries = {item.name: item.entry for item in plan.tensors}
    files = [[layout.name, layout.nbytes] for layout in plan.files]
    config = config_hash(source.config_bytes)
    return identity(
        __version__, FORMAT_VERSION, config, tensors, entries, files, spec, coding.method, texts
    )


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _norm_offset(source: Checkpoint, model: Model, norm: str) -> float:
    known: float | None = model.spec.get("norm_offset")
    if known is None:
        return detect_norm_offset(source, model.norm_probes, norm)
    if norm != "auto" and NORMS[norm] != known:
        raise ArgumentError(f"norm: {norm!r} is not how the {model.family} family means its norms")
    return known


def check_target(out: Path) -> Path:
    """The folder to write, which is absent or empty; ExportError where it cannot be written."""
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


def _check_room(target: Path, plan: Plan, resume: bool) -> None:
    free = shutil.disk_usage(target.parent).free
    needed = plan.file_bytes + _SLACK
    if resume:
        needed -= sum(path.stat().st_size for path in unfinished(target).glob("*"))
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


def _write_side_files(
    source: Checkpoint, spec: dict[str, Any], report: Report, folder: Path
) -> None:
    plan = report.plan
    for name in COPIED:
        if (data := source.side_file(name)) is not None:
            (folder / name).write_bytes(data)
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
