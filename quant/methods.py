"""How codes are found, and what calibration gives to the search.

    absmax      the largest magnitude on the nearer outermost level; nothing is searched
    rtn         the scale of the smallest squared error, out of a grid whose members are refitted
    hqq         the scale of the smallest sum of |error|^(3/4): a few may be off, most are nearer.
                Half-quadratic splitting (Badri and Shaji, 2023) without its zero point, which our
                schemes have not, from rtn's scale on
    weighted    as rtn, with the error of column k weighted by the mean of x_k^2
    gptq        column by column, each one's error made good in the columns behind it as far as the
                second moments of x allow (Frantar et al., 2022); scales as weighted, of the columns
                as they are when their group's turn comes

A code is always the level nearest to its (moved) weight. int8's scale is the largest magnitude
/ 127, whatever the method.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _core
from ..errors import ArgumentError

DATA_FREE = ("absmax", "rtn", "hqq")
CALIBRATED = ("weighted", "gptq")
METHODS = (*DATA_FREE, *CALIBRATED)

_DAMPING = 0.01  # times the mean of a Hessian's diagonal, added to it


@lru_cache(maxsize=4)
def encoder(threads: int) -> _core.quant.Encoder:
    """The core's quantiser; its threads stay between calls. 0: as many as fit the machine."""
    return _core.quant.Encoder(threads)


class Calibration:
    """What the activations x [T, K] that meet a matrix [n, K] are like.

    One object serves all row chunks of a matrix, and all matrices that see the same activations:
    the factor that gptq needs is made once.
    """

    def __init__(self, moments: NDArray[np.floating[Any]]) -> None:
        """``moments``: the mean of x_k^2, ``[K]``, or of x_j x_k, ``[K, K]`` (float32 or float64).

        ArgumentError when the shape is another, a value is not finite or a mean square negative.
        """
        if moments.ndim not in (1, 2) or len(set(moments.shape)) != 1:
            raise ArgumentError(f"calibration takes [K] or [K, K], not shape {moments.shape}")
        squares = np.diagonal(moments) if moments.ndim == 2 else moments
        if not squares.size or not np.isfinite(squares).all() or bool((squares < 0).any()):
            raise ArgumentError("calibration: a mean square is negative or not finite")
        self.mean_squares: NDArray[np.float32] = np.ascontiguousarray(squares, np.float32)
        kind = np.float32 if moments.dtype == np.float32 else np.float64
        self._hessian: NDArray[np.floating[Any]] | None = None
        if moments.ndim == 2:
            self._hessian = np.ascontiguousarray(moments, kind)
        self._factor: _core.quant.Factor | None = None

    @property
    def columns(self) -> int:
        return self.mean_squares.size

    def factor(self, threads: int = 0) -> _core.quant.Factor | None:
        """The Hessian's factor; None without a Hessian, or when it is not positive definite."""
        if self._hessian is not None:
            try:
                self._factor = encoder(threads).factor(self._hessian, damping=_DAMPING)
            except ArgumentError:
                self._factor = None
            self._hessian = None  # the factor is as large
        return self._factor


def settle(method: str, calibration: Calibration | None, threads: int = 0) -> str:
    """The method that a matrix gets when ``method`` is asked for: gptq without a usable Hessian
    becomes weighted, and weighted rtn where no activation was seen or all were zero.
    """
    if method not in METHODS:
        raise ArgumentError(f"unknown method {method!r}; known: {', '.join(METHODS)}")
    if method in DATA_FREE:
        return method
    if calibration is None or not calibration.mean_squares.any():
        return "rtn"
    if method == "gptq" and calibration.factor(threads) is None:
        return "weighted"
    return method
