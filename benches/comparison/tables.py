"""Markdown tables of results: every test, the devices, and what could not run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .results import Result, ordered

Cell = Callable[[Result], str]
NONE = "–"  # a figure that was not measured


def significant(value: float, digits: int = 3) -> str:
    """A number to so many digits, without a power of ten."""
    if value >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{value:#.{digits}g}".rstrip(".")


def speed(result: Result) -> str:
    """Tokens a second, mean and deviation to the same place."""
    mean, deviation = result.record["avg_ts"], result.record["stddev_ts"]
    places = 0 if mean >= 100 else 1 if mean >= 10 else 2
    return f"{mean:,.{places}f} ± {deviation:,.{places}f}"


def _figure(name: str, scale: float = 1.0) -> Cell:
    def cell(result: Result) -> str:
        value = result.record.get(name)
        return NONE if value is None else significant(value * scale)

    return cell


def _maybe(value: Callable[[Result], float | None], scale: float = 1.0) -> Cell:
    def cell(result: Result) -> str:
        found = value(result)
        return NONE if found is None else significant(found * scale)

    return cell


def _of_read(result: Result) -> str:
    """The share of the memory's bandwidth that its weights were read at."""
    rate, ceiling = result.record.get("effective_gbps"), result.read_ceiling
    return NONE if rate is None or not ceiling else f"{100 * rate * 1e9 / ceiling:.0f} %"


COLUMNS: tuple[tuple[str, bool, Cell], ...] = (  # whether numbers stand in it
    ("model", False, lambda r: r.model),
    ("test", False, lambda r: r.test),
    ("depth", True, lambda r: f"{r.depth:,}"),
    ("device", False, lambda r: r.device),
    ("runtime", False, lambda r: r.runtime),
    ("weights", False, lambda r: str(r.record["quant"])),
    ("tok/s", True, speed),
    ("first block, ms", True, _maybe(lambda r: r.first_block_ns, 1e-6)),
    ("tokens a forward", True, _figure("tokens_per_forward")),
    ("MB a token", True, _maybe(lambda r: r.bytes_per_token, 1e-6)),
    ("GB/s", True, _figure("effective_gbps")),
    ("of read", True, _of_read),
    ("mJ a token", True, _maybe(lambda r: r.joules_per_token, 1e3)),
)


def table(results: Iterable[Result]) -> str:
    """One row a test. Columns that say the same of all, or nothing of any, are left out, but for
    the speed."""
    rows = [[cell(result) for _, _, cell in COLUMNS] for result in ordered(results)]
    kept = [
        i
        for i, (name, number, _) in enumerate(COLUMNS)
        if name in ("test", "tok/s")
        or (any(row[i] != NONE for row in rows) if number else len({row[i] for row in rows}) > 1)
    ]
    heads = [COLUMNS[i][:2] for i in kept]
    return markdown(heads, [[row[i] for i in kept] for row in rows])


def markdown(heads: Sequence[tuple[str, bool]], rows: Iterable[Sequence[str]]) -> str:
    """A table; `heads`: names, and whether a column is set to the right."""
    lines = [
        [name for name, _ in heads],
        ["---:" if right else "---" for _, right in heads],
        *rows,
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


_DEVICE = [
    ("device", False),
    ("instructions", False),
    ("threads", False),
    ("memory, GB", True),
    ("virtual", False),
    ("int8, GOP/s", True),
    ("f32, GFLOP/s", True),
    ("read, GB/s", True),
    ("energy", False),
    ("throttled", False),
]


def devices(results: Iterable[Result]) -> str:
    """One row a device, by its records of ours: those of others do not measure the machine."""
    described: dict[str, list[Result]] = {}
    for result in ordered(results):
        if "machine" in result.record:
            described.setdefault(result.device, []).append(result)
    return markdown(_DEVICE, [_device(name, found) for name, found in described.items()])


def _device(name: str, found: Sequence[Result]) -> list[str]:
    """Ceilings from the lowest to the highest of all records: a shared machine moves."""
    machine = found[-1].record["machine"]
    measured = [each for r in found if (each := r.record["machine"].get("ceilings"))]
    ceilings = (
        _range([each[key] / 1e9 for each in measured])
        for key in ("dot_ops", "fma_flops", "read_bytes")
    )
    throttled = [result.record.get("throttled") for result in found]
    memory = machine.get("memory_bytes")
    return [
        name,
        str(machine["isa"]),
        f"{machine['threads']} ({machine['threads_why']})",
        NONE if memory is None else significant(memory / 1e9),
        _said(machine.get("virtualised")),
        *ceilings,
        machine.get("energy_source") or f"not measured: {machine['energy_why']}",
        "yes" if any(throttled) else _said(None if None in throttled else False),
    ]


def _range(values: Sequence[float]) -> str:
    ends = [significant(value) for value in (min(values), max(values))] if values else [NONE]
    return " to ".join(dict.fromkeys(ends))


def _said(value: bool | None) -> str:
    return {True: "yes", False: "no", None: "not told"}[value]


def models(results: Iterable[Result]) -> str:
    """One row a model file: its size, and what opening it and running it takes."""
    seen: dict[Any, list[Result]] = {}
    for result in ordered(results):
        key = (result.model, result.device, result.runtime, result.record["model_filename"])
        seen.setdefault(key, []).append(result)
    heads = [
        ("model", False),
        ("device", False),
        ("runtime", False),
        ("version", False),
        ("file", False),
        ("parameters, M", True),
        ("working on a token, M", True),
        ("size, MB", True),
        ("open, ms", True),
        ("most memory, MB", True),
    ]
    rows = [_model(found) for found in seen.values()]
    if len({row[1] for row in rows}) < 2:
        heads, rows = [heads[0], *heads[2:]], [[row[0], *row[2:]] for row in rows]
    return markdown(heads, rows)


def _model(found: Sequence[Result]) -> list[str]:
    result, record = found[0], found[0].record
    peaks = [each.record["peak_rss_bytes"] for each in found if each.record.get("peak_rss_bytes")]
    return [
        result.model,
        result.device,
        result.runtime,
        str(record.get("runtime_version") or record.get("build_version") or NONE),
        record["model_filename"],
        _figure("model_n_params", 1e-6)(result),
        _figure("n_active_params", 1e-6)(result),
        significant(record["model_size"] / 1e6),
        _figure("load_ns", 1e-6)(result),
        significant(max(peaks) / 1e6) if peaks else NONE,
    ]


def not_measured(results: Iterable[Result]) -> list[str]:
    """What was left out, and why, a line each."""
    lines = [
        f"{result.runtime}{' on ' + result.record['model'] if 'model' in result.record else ''}: "
        f"{result.skipped}"
        for result in results
        if result.skipped
    ]
    return list(dict.fromkeys(lines))
