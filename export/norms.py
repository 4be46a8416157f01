"""What only the weights tell: the norm convention, and whether the decay is sane."""

from __future__ import annotations

import numpy as np

from ..errors import CheckpointError
from .checkpoint import Checkpoint

NORMS = {"zero-centred": 1.0, "plain": 0.0}  # RMSNorm multiplies by (offset + w)
_MAX_DECAY = 64.0


def detect_norm_offset(checkpoint: Checkpoint, names: tuple[str, ...], choice: str) -> float:
    """1.0 for zero-centred norms (x * (1 + w)), 0.0 for plain ones (x * w).

    The two conventions differ by exactly one in every weight, and a trained norm stays near its
    start, so the mean over a layer is near 0 or near 1. ``choice`` is a key of NORMS, or "auto".
    Raises CheckpointError when the layers' means decide neither way, or contradict each other.
    """
    if choice != "auto":
        return NORMS[choice]
    means = np.array([float(checkpoint.read(name).mean()) for name in names])
    overall = float(means.mean())
    plain = means > 0.5
    undecided = min(abs(overall), abs(overall - 1)) > 0.4
    split = 0.2 < float(plain.mean()) < 0.8
    if undecided or split:
        span = f"from {means.min():.3f} to {means.max():.3f}, {overall:.3f} on average"
        raise CheckpointError(
            str(checkpoint.path),
            names[0],
            f"the norm convention is ambiguous: means over {len(names)} layers run {span}, neither "
            "all near 0 (zero-centred) nor all near 1 (plain); state it with --norm",
        )
    return NORMS["plain" if overall > 0.5 else "zero-centred"]


def check_decay(checkpoint: Checkpoint, names: tuple[str, ...]) -> None:
    """exp(A_log) is the decay rate of a head. A value far off means that A_log is stored in
    another form (-exp(A_log), as some converters do), and the model would forget everything."""
    for name in names:
        logs = checkpoint.read(name)
        if bool((logs < -20).any()) or float(np.exp(np.minimum(logs, 20)).max()) > _MAX_DECAY:
            raise CheckpointError(
                str(checkpoint.tensors[name].file),
                name,
                f"exp(A_log) spans {np.exp(logs.min()):g} .. {np.exp(min(logs.max(), 80)):g}, "
                f"outside (0, {_MAX_DECAY:g}]: not the logarithm of a decay rate?",
            )
