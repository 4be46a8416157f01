"""``python -m clover_edge.export``: the same as ``clover-export``."""

import sys

from .cli import main

sys.exit(main())
