"""The most that this machine does with a number of threads: what speeds are to be judged by.

`python -m clover_edge.benchmark.ceilings --threads N --isa NAME` prints them as JSON: in a process
of its own the memory that reading needs is none of the model's.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _core

READ_BYTES = 512 << 20  # more than caches hold
RUNS = 7  # the best counts: a shared machine changes speed from one second to the next


def best(run: Callable[[], float]) -> float:
    """The best of several runs of a ceiling."""
    return max(run() for _ in range(RUNS))


@cache
def stream() -> NDArray[np.uint8]:
    """The bytes that are read."""
    return np.ones(READ_BYTES, np.uint8)


def ceilings(threads: int, isa: str | None = None) -> dict[str, float]:
    """int8 and float operations (a multiply-add is two) and bytes read, a second."""
    timing = _core.timing
    return {
        "threads": threads,
        "dot_ops": best(lambda: timing.ceiling_dot(isa, threads)),
        "fma_flops": best(lambda: timing.ceiling_fma(isa, threads)),
        "read_bytes": best(lambda: timing.ceiling_read(isa, threads, stream())),
    }


def ceilings_apart(threads: int, isa: str) -> dict[str, Any] | None:
    """The same, measured in another process; None where that fails, as for lack of memory."""
    command = [sys.executable, "-m", __name__, "--threads", str(threads), "--isa", isa]
    done = subprocess.run(command, capture_output=True, text=True)
    found: dict[str, Any] | None = json.loads(done.stdout) if done.returncode == 0 else None
    return found


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--isa")
    arguments = parser.parse_args()
    print(json.dumps(ceilings(arguments.threads, arguments.isa)))


if __name__ == "__main__":
    main()
