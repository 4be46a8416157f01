"""The examples are scripts, not a package: their folders go on the path."""

from __future__ import annotations

import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"
for name in ("agent", "demo_model"):
    sys.path.append(str(EXAMPLES / name))
