"""Export: a PyTorch checkpoint folder becomes a packed folder (docs/format.md), or ONNX graphs
(docs/onnx.md)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .checkpoint import Checkpoint
    from .onnx import export_onnx
    from .pipeline import export_checkpoint, plan_export
    from .plan import Plan
    from .report import Report

__all__ = ["Checkpoint", "Plan", "Report", "export_checkpoint", "export_onnx", "plan_export"]

_HOMES = {
    "Checkpoint": "checkpoint",
    "Plan": "plan",
    "Report": "report",
    "export_checkpoint": "pipeline",
    "export_onnx": "onnx",
    "plan_export": "pipeline",
}


def __getattr__(name: str) -> Any:
    """Loads the exporter when it is asked for; reading a packed folder does not need it."""
    if name in _HOMES:
        return getattr(import_module(f".{_HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
