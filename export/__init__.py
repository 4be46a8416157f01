"""Export: a PyTorch checkpoint folder becomes a packed folder (docs/format.md)."""

from .checkpoint import Checkpoint
from .pipeline import export_checkpoint, plan_export
from .plan import Plan
from .report import Report

__all__ = ["Checkpoint", "Plan", "Report", "export_checkpoint", "plan_export"]
