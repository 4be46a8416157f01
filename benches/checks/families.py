"""What is promised of the model families that are read."""

from __future__ import annotations

from checks import families_real, families_refusals, families_sizes, families_tiny
from checks.row import Check

CHECKS: list[Check] = [
    *families_tiny.CHECKS,
    *families_refusals.CHECKS,
    *families_sizes.CHECKS,
    *families_real.CHECKS,
]
