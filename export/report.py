"""What an export did: sizes and losses, as ``export_report.json`` and as a table.

The report holds no time, path or host, so that the same checkpoint gives the same folder, byte for
byte.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Any

from ..quant.metrics import ErrorStats
from .coding import Coding
from .kept import FROM_FLOAT
from .plan import Plan, Planned, PlannedTensor


@dataclass(frozen=True)
class Report:
    """A finished export. ``errors`` holds a measure for each matrix, expert parts by
    ``layers.{i}.experts.gate`` and so on."""

    plan: Plan
    errors: dict[str, ErrorStats]
    config_sha256: str
    coding: Coding

    def as_dict(self) -> dict[str, Any]:
        """The content of ``export_report.json``."""
        return {
            "format_version": 1,
            "source": {"config_sha256": self.config_sha256, "bytes": self.plan.source_bytes},
            **plan_dict(self.plan),
            "method": self.coding.method,
            "matrices_by_method": dict(sorted(self.coding.methods.items())),
            "warnings": [*self.plan.warnings, *self.coding.warnings],
            "tensors": {tensor.name: self._tensor(tensor) for tensor in self.plan.tensors},
        }

    def measures(self, tensor: Planned) -> dict[str, ErrorStats]:
        """Loss of a tensor's matrices: itself under "", or the parts of an expert record."""
        if isinstance(tensor, PlannedTensor):
            return {"": self.errors[tensor.name]}
        return {name: self.errors[f"{tensor.name}.{name}"] for name in tensor.parts}

    def _tensor(self, tensor: Planned) -> dict[str, Any]:
        losses = {name: _loss(stats) for name, stats in self.measures(tensor).items()}
        entry = {**tensor.entry, "bytes": tensor.blob.nbytes}
        if isinstance(tensor, PlannedTensor):
            return {**entry, "origin": tensor.origin, **losses[""]}
        entry["parts"] = {
            name: {**part, "origin": tensor.parts[name].origin, **losses[name]}
            for name, part in entry["parts"].items()
        }
        return entry


def _loss(stats: ErrorStats) -> dict[str, Any]:
    sqnr = stats.sqnr_db
    return {
        "relative_error": float(f"{stats.relative_error:.4g}"),
        "sqnr_db": None if sqnr is None or math.isinf(sqnr) else round(sqnr, 2),
    }


def config_hash(config_bytes: bytes) -> str:
    return hashlib.sha256(config_bytes).hexdigest()


def plan_dict(plan: Plan) -> dict[str, Any]:
    """The plan as data: what ``--dry-run --json`` prints, and part of the report."""
    return {
        "family": plan.model.family,
        "recipe": plan.recipe,
        "group_size": plan.group_size,
        "totals": {
            "parameters": plan.parameters,
            "tensor_bytes": plan.tensor_bytes,
            "file_bytes": plan.file_bytes,
            "files": len(plan.files),
            "bits_per_weight": round(8 * plan.tensor_bytes / plan.parameters, 3),
        },
        "classes": {
            row.kind: {
                "tensors": row.tensors,
                "parameters": row.parameters,
                "bytes": row.nbytes,
                "schemes": list(row.schemes),
            }
            for row in plan.classes
        },
        "origins": plan.origins,
        "warnings": list(plan.warnings),
    }


def plan_table(plan: Plan) -> str:
    """The plan for a person to read: a line a class, then the totals."""
    lines = [f"{'class':<8}{'tensors':>8}{'parameters':>16}{'bytes':>16}  schemes"]
    for row in plan.classes:
        schemes = ", ".join(row.schemes)
        lines.append(
            f"{row.kind:<8}{row.tensors:>8}{row.parameters:>16,}{row.nbytes:>16,}  {schemes}"
        )
    count = len(plan.tensors)
    bits = 8 * plan.tensor_bytes / plan.parameters
    lines.append(
        f"{'total':<8}{count:>8}{plan.parameters:>16,}{plan.tensor_bytes:>16,}  "
        f"{bits:.2f} bits a weight; checkpoint {plan.source_bytes:,} bytes"
    )
    if set(plan.origins) != {FROM_FLOAT}:
        counts = ", ".join(f"{count} {origin}" for origin, count in plan.origins.items())
        lines.append(f"values of the matrices and vectors: {counts}")
    return "\n".join(lines)


def loss_table(report: Report) -> str:
    """Signal-to-noise ratio and worst relative error of each class that lost anything."""
    kinds: dict[str, list[ErrorStats]] = {}
    for tensor in report.plan.tensors:
        kinds.setdefault(tensor.kind, []).extend(report.measures(tensor).values())
    lines = [f"{'class':<8}{'SQNR dB':>10}{'worst relative error':>24}"]
    for kind, measured in kinds.items():
        noise = sum(stats.noise for stats in measured)
        if noise:
            sqnr = 10 * math.log10(sum(stats.signal for stats in measured) / noise)
            worst = max(stats.relative_error for stats in measured)
            lines.append(f"{kind:<8}{sqnr:>10.2f}{worst:>24.4f}")
    return "\n".join(lines) if len(lines) > 1 else "nothing was lost: every value is exact"
