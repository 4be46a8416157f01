"""What the quantiser and the exporter promise."""

from __future__ import annotations

from checks import (
    quantisation_demo,
    quantisation_export,
    quantisation_masked,
    quantisation_smollm,
)
from checks.row import Check

CHECKS: list[Check] = [
    *quantisation_export.CHECKS,
    *quantisation_demo.CHECKS,
    *quantisation_masked.CHECKS,
    *quantisation_smollm.CHECKS,
]
