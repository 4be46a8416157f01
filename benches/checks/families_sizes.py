"""Published shapes: what `clover-export --dry-run` says of them, and scaled-down copies from
checkpoint to text by the two commands."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

from checks.row import Check, Context, Row, at_least, at_most

from clover_edge.cli.main import main as clover_edge
from clover_edge.export.cli import main as clover_export

PERCENT = 2
NEW_TOKENS = 24


def planned_sizes(context: Context) -> Iterator[Row]:
    """Headers of random weights in the release's layout; every matrix int4, as the published
    figures have it."""
    from real_shapes import REAL, write_headers

    for name, (_, _, parameters, nbytes) in REAL.items():
        folder = context.scratch / name
        folder.mkdir()
        write_headers(folder, name)
        command = [str(folder), "--dry-run", "--json", "--recipe", "int4-all"]
        totals = _json(clover_export, command)["totals"]
        found = {"parameters": parameters, "tensor_bytes": nbytes}
        off = {key: 100 * abs(totals[key] / value - 1) for key, value in found.items()}
        note = f"{totals['parameters'] / 1e9:.2f} of {parameters / 1e9:.2f} G parameters, "
        note += f"{totals['tensor_bytes'] / 1e9:.2f} of {nbytes / 1e9:.2f} GB"
        label = f"{name}, --dry-run: off the published sizes"
        yield at_most(label, max(off.values()), PERCENT, "{:.2f}", " %", note)


def scaled_down_copies(context: Context) -> Iterator[Row]:
    """Fewer and narrower layers, the same routing."""
    from real_shapes import REAL, make_small

    for name in REAL:
        source, out = context.scratch / f"{name}-small", context.scratch / f"{name}-packed"
        make_small(source, name)
        _json(clover_export, [str(source), "-o", str(out), "--int4", "--json"])
        command = ["run", str(out), "the other", "--raw", "--json"]
        found = _json(clover_edge, [*command, "--max-new-tokens", str(NEW_TOKENS)])
        label = f"{name} scaled down, clover-export, clover-edge run: tokens"
        yield at_least(label, len(found["token_ids"]), NEW_TOKENS, "{:.0f}")


def _json(command: Callable[[list[str]], int], arguments: list[str]) -> dict[str, Any]:
    """What a command prints; RuntimeError with its last words if it fails."""
    out, log = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(log):
        code = command(arguments)
    if code:
        raise RuntimeError(f"{arguments}: exit code {code}: {log.getvalue().strip()[-300:]}")
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


CHECKS: list[Check] = [planned_sizes, scaled_down_copies]
