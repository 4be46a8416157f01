"""A plan as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .devices import Device

Row = Mapping[str, Any]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The first column to the left, the others to the right."""
    lines = ["| " + " | ".join(head) + " |", "| --- |" + " ---: |" * (len(head) - 1)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def devices(known: Iterable[Device]) -> str:
    """The table of devices, with where its figures are from."""
    rows = [
        [
            device.name,
            device.unit,
            f"{device.memory:g}",
            f"{device.usable:g}",
            f"{device.bandwidth:g}",
            "nominal" if device.attainable is None else f"{device.attainable:.0%}",
            f"{device.int8:,.0f}",
            device.source,
        ]
        for device in known
    ]
    head = ["device", "unit", "GiB", "usable", "GB/s", "of it", "int8 GOP/s", "source"]
    return table(head, rows)


def markdown(found: Row) -> str:
    """Every table of a plan."""
    model = found["model"]
    title = (
        f"{model['name']}, {model['recipe']}, {model['bytes'] / 1e9:.2f} GB; "
        f"{found['routing']} routing, {found['context']:,} tokens in front, {found['kv']} cache"
    )
    parts = [title, passes(found["passes"]), floors(found["devices"])]
    parts.append("\\*: computing takes longer than reading.")
    if any("plan" in row for row in found["devices"]):
        told = "measured"
        if found["acceptance"] == "stated":
            told = f"stated, {found['tokens_per_forward']:g} tokens a forward in the widest block"
        quality = next(row["plan"]["quality"] for row in found["devices"] if "plan" in row)
        parts.append(f"Quality {quality}, acceptance {told}:")
    parts.append(_choices(found["devices"]))
    if any(row["memory"]["verdict"] == "pages experts" for row in found["devices"]):
        parts.append("Where experts are paged, floors and speeds are those of memory alone.")
    if "check" in found:
        parts += ["Beside timings on this machine:", _check(found["check"])]
    return "\n\n".join(parts)


def passes(rows: Iterable[Row]) -> str:
    """What a pass reads and computes, whatever the device."""
    head = ["pass", "rows", "experts a layer", "weights, GB", "state, GB", "GOP"]
    return table(
        head,
        [
            [
                row["pass"],
                str(row["rows"]),
                f"{row['experts']:.1f}",
                f"{row['weights'] / 1e9:.3f}",
                f"{row['state'] / 1e9:.3f}",
                f"{row['operations'] / 1e9:.1f}",
            ]
            for row in rows
        ],
    )


def floors(rows: Sequence[Row]) -> str:
    """Milliseconds; a star where computing takes longer than reading. Commits of a block, alone or
    with a preview, of the widest."""
    first = rows[0]["floors"]
    commits = [floor["pass"] for floor in first if floor["pass"].startswith("commit")]
    shown = [
        i
        for i, floor in enumerate(first)
        if floor["pass"] not in commits or floor["pass"] == commits[-1]
    ]
    lines = [
        [
            *_rates(row["device"]),
            *(_milliseconds(row["floors"][i]) for i in shown),
        ]
        for row in rows
    ]
    return table(["floor, ms", "GB/s", "TOP/s", *(first[i]["pass"] for i in shown)], lines)


def _rates(device: Row) -> list[str]:
    """Name, and the rates that floors are computed from."""
    share = 1 if device["attainable"] is None else device["attainable"]
    name = f"{device['name']} ({device['unit']})"
    return [name, f"{share * device['bandwidth']:.1f}", f"{device['int8'] / 1e3:.2f}"]


def _figure(value: float) -> str:
    """Three digits that count, and never a power of ten."""
    return f"{value:.3g}" if value < 999.5 else f"{value:,.0f}"


def _milliseconds(floor: Row) -> str:
    return _figure(floor["ms"]) + ("\\*" if floor["bound_by"] == "computing" else "")


def _choices(rows: Sequence[Row]) -> str:
    widths = [str(width) for width in rows[0].get("break_even", {})]
    head = ["device", "memory", *(f"break-even, {width} wide" for width in widths)]
    head += ["settings", "tokens a forward", "tok/s", "× autoregressive"]
    return table(head, [_choice(row) for row in rows])


def _choice(row: Row) -> list[str]:
    cells = [row["device"]["name"], _memory(row["memory"])]
    if "plan" not in row:
        return [*cells, "is timed, not predicted", "", "", ""]
    even, chosen = row["break_even"].values(), row["plan"]
    cells += ["never" if found is None else f"{found:.2f}" for found in even]
    if row["memory"]["verdict"] == "does not fit":
        return [*cells, "–", "–", "–", "–"]
    speed = chosen["tokens_per_second"]
    return [
        *cells,
        settings(chosen),
        f"{chosen['tokens_per_forward']:.2f}",
        _figure(speed),
        f"{speed / row['autoregressive_tps']:.2f}",
    ]


def settings(chosen: Row) -> str:
    """Options and threshold, shortly."""
    options = dict(chosen["options"])
    parts = [options.pop("mode")]
    for name, value in options.items():
        parts.append(name if value is True else f"{name} {value}")
    if chosen["threshold"] is not None:
        parts.append(f"threshold {chosen['threshold']:g}")
    return ", ".join(parts)


def _memory(found: Row) -> str:
    if found["verdict"] == "pages experts":
        missed = f"{found['missed'] / 1e9:.2f} GB a token from disk"
        return f"{found['resident']:.0%} of the experts, {missed}"
    return str(found["verdict"])


def _check(rows: Iterable[Row]) -> str:
    head = ["pass", "ms", "× floor", "experts", "assumed", "× floor of those touched"]
    return table(
        [*head, "bound by"],
        [
            [
                row["pass"],
                _figure(row["ms"]),
                f"{row['times_floor']:.2f}",
                f"{row['experts']:.1f}",
                f"{row['experts_assumed']:.1f}",
                f"{row['times_floor_touched']:.2f}",
                row["bound_by"],
            ]
            for row in rows
        ],
    )
