"""Bench records read from files: which device, runtime, model and test each one is of."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TESTS = ("pp", "blk", "tg", "ar")
OURS = "clover-edge"
_NAME = re.compile(r"(pp|blk|tg|ar)(\d+)(?: @ d\d+)?")
_MARKETING = re.compile(r"\((?:R|TM|tm)\)|\bCPU\b|\bProcessor\b|@.*")


class BadResults(Exception):
    """A file holds something other than bench records; the message says where and what."""


@dataclass(frozen=True)
class Result:
    """A record. Those of tests that could not run have a reason, and no figures."""

    record: Mapping[str, Any]

    @property
    def runtime(self) -> str:
        return str(self.record["runtime"])

    @property
    def skipped(self) -> str | None:
        return self.record.get("skipped")

    @property
    def model(self) -> str:
        """Several runtimes' files of one model go by one name."""
        return str(self.record.get("model") or self.record["model_filename"])

    @property
    def test(self) -> str:
        """Such as "pp512", without the depth."""
        return str(self.record["test"]).partition(" @ ")[0]

    @property
    def kind(self) -> str:
        """One of TESTS."""
        return _parts(self.record["test"])[0]

    @property
    def tokens(self) -> int:
        """Of one repetition."""
        return _parts(self.record["test"])[1]

    @property
    def depth(self) -> int:
        return int(self.record["n_depth"])

    @property
    def device(self) -> str:
        """The processor, its threads and, where the system tells it, its power mode."""
        record = self.record
        chip = record["gpu_info"] if record.get("device", "cpu") != "cpu" else record["cpu_info"]
        mode = record.get("nvpmodel") or record.get("power_mode")
        count = record["n_threads"]
        threads = f"{count} thread{'s' if count > 1 else ''}"
        return ", ".join([chip_name(chip), threads, *([mode] if mode else [])])

    @property
    def read_ceiling(self) -> float | None:
        """Bytes a second that the device's memory delivers, where that was measured."""
        ceilings = self.record.get("machine", {}).get("ceilings")
        return ceilings["read_bytes"] if ceilings else None

    @property
    def bytes_per_token(self) -> float | None:
        """Of weights, where the runtime counts them."""
        nbytes = self.record.get("bytes_read")
        return None if nbytes is None else nbytes / self.tokens

    @property
    def first_block_ns(self) -> float | None:
        """Until a block stands; a text that is written token by token has none."""
        return None if self.kind == "ar" else self.record.get("ttfb_ns")

    @property
    def joules_per_token(self) -> float | None:
        energy = self.record.get("energy_j")
        return None if energy is None else energy / self.tokens


def _parts(test: str) -> tuple[str, int]:
    found = _NAME.fullmatch(test)
    assert found, test  # `_check` has seen it
    return found[1], int(found[2])


def chip_name(text: str) -> str:
    """A processor's name without trademarks and clock."""
    return " ".join(_MARKETING.sub(" ", text).split())


def read(paths: Iterable[Path]) -> list[Result]:
    """All records of files as `clover-edge bench -o jsonl` or `-o json` writes them. Of one test
    on one device that is there twice the later one counts. Raises BadResults."""
    found: dict[Any, Result] = {}
    for path in paths:
        for where, record in _records(path):
            _check(where, record)
            result = Result(record)
            key = (result.runtime, result.model if not result.skipped else result.skipped)
            if not result.skipped:
                key += (result.device, record["quant"], record["model_filename"], record["test"])
            found.pop(key, None)
            found[key] = result
    return list(found.values())


def _records(path: Path) -> Iterable[tuple[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadResults(f"{path}: cannot be read: {error}") from error
    if text.lstrip().startswith("["):
        try:
            yield from ((f"{path}: record {i}", item) for i, item in enumerate(json.loads(text)))
        except json.JSONDecodeError as error:
            raise BadResults(f"{path}: no JSON: {error}") from error
        return
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                yield f"{path}:{number}", json.loads(line)
            except json.JSONDecodeError as error:
                raise BadResults(f"{path}:{number}: no JSON: {error}") from error


_FIELDS: dict[str, type | tuple[type, ...]] = {
    "test": str,
    "runtime": str,
    "cpu_info": str,
    "gpu_info": str,
    "model_filename": str,
    "model_size": int,
    "quant": str,
    "n_threads": int,
    "n_depth": int,
    "avg_ts": (int, float),
    "stddev_ts": (int, float),
}


_NUMBER = (int, float)
_FIGURES = {  # that a record may have: the fields that then stand beside each
    "ttfb_ns": ("stddev_ttfb_ns",),
    "energy_j": ("stddev_energy_j",),
    "bytes_read": (),
    "effective_gbps": (),
    "tokens_per_forward": (),
    "load_ns": (),
    "peak_rss_bytes": (),
}
_MACHINE = {"isa": str, "threads": int, "threads_why": str, "energy_why": str}
_CEILINGS = dict.fromkeys(("dot_ops", "fma_flops", "read_bytes"), _NUMBER)


def _check(where: str, record: Any) -> None:
    """Raises BadResults for what tables and pictures could not be made of."""
    if not isinstance(record, dict):
        raise BadResults(f"{where}: a {type(record).__name__}, not an object")
    if "skipped" in record:
        _has(where, "", record, {"runtime": str, "test": str, "skipped": str})
        return
    _has(where, "", record, _FIELDS)
    if not _NAME.fullmatch(record["test"]):
        raise BadResults(f"{where}: test: {record['test']!r} is none of {', '.join(TESTS)}")
    for name, beside in _FIGURES.items():
        if name in record:
            _has(where, "", record, dict.fromkeys((name, *beside), _NUMBER))
    if "machine" in record:
        _has(where, "", record, {"machine": dict})
        _has(where, "machine.", record["machine"], _MACHINE)
        ceilings = record["machine"].get("ceilings")
        if ceilings is not None:
            _has(where, "machine.", record["machine"], {"ceilings": dict})
            _has(where, "machine.ceilings.", ceilings, _CEILINGS)


def _has(where: str, inside: str, record: Mapping[str, Any], needed: Mapping[str, Any]) -> None:
    for name, kinds in needed.items():
        if name not in record:
            raise BadResults(f"{where}: {inside}{name}: is missing")
        value = record[name]
        if not isinstance(value, kinds) or isinstance(value, bool):
            raise BadResults(f"{where}: {inside}{name}: {value!r} is not what a record has there")


def ordered(results: Iterable[Result]) -> list[Result]:
    """Measured ones; what may be compared stands together, ours first."""
    measured = [result for result in results if not result.skipped]
    models = list(dict.fromkeys(result.model for result in measured))
    return sorted(
        measured,
        key=lambda r: (
            models.index(r.model),
            TESTS.index(r.kind),
            r.tokens,
            r.depth,
            r.device,
            r.runtime != OURS,
            r.runtime,
            r.record["model_size"],
        ),
    )
