"""What the quantiser promises: quality on the demo model and on real float weights."""

from __future__ import annotations

from checks import quantisation_demo, quantisation_masked
from checks.row import Check

CHECKS: list[Check] = [
    *quantisation_demo.CHECKS,
    *quantisation_masked.CHECKS,
]
