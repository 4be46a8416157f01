"""How far stored weights are from their source, gathered chunk by chunk."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


@dataclass
class ErrorStats:
    """Running error of a tensor: ``add`` its chunks, then read the two figures.

    Sums are float64, so that a tensor of a billion elements is measured as well as a small one.
    """

    signal: float = 0.0
    noise: float = 0.0
    largest: float = 0.0
    worst: float = 0.0

    def add(self, source: Floats, stored: Floats) -> None:
        reference = source.reshape(-1).astype(np.float64)
        difference = stored.reshape(-1) - reference
        # Not np.dot: BLAS would wake its threads for every chunk.
        self.add_sums(
            float(np.square(reference).sum()),
            float(np.square(difference).sum()),
            float(np.abs(reference).max()),
            float(np.abs(difference).max()),
        )

    def add_sums(self, signal: float, noise: float, largest: float, worst: float) -> None:
        """A chunk that the core has measured."""
        self.signal += signal
        self.noise += noise
        self.largest = max(self.largest, largest)
        self.worst = max(self.worst, worst)

    @property
    def relative_error(self) -> float:
        """max |stored - source| / max |source|; 0 for an all-zero tensor stored as zeros."""
        return self.worst / self.largest if self.largest else self.worst

    @property
    def sqnr_db(self) -> float | None:
        """10 log10(sum source^2 / sum error^2); None when nothing was lost."""
        if not self.noise:
            return None
        return 10 * math.log10(self.signal / self.noise) if self.signal else -math.inf


def relative_error(source: Floats, stored: Floats) -> float:
    """max |stored - source| / max |source|."""
    stats = ErrorStats()
    stats.add(source, stored)
    return stats.relative_error
