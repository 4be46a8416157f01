"""Chooses how to decode a model on this machine: mode, block width, approximations, threads."""

from __future__ import annotations

from ..generation import QUALITIES
from .planner import Candidate, Plan, tune
from .stored import plan_for

__all__ = ["QUALITIES", "Candidate", "Plan", "plan_for", "tune"]
