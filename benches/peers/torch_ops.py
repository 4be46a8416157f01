"""PyTorch: 4-bit weights with bfloat16 activations, its packed kernel for CPUs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .codes import Codes, Floats, Missing, needs

EXTRA = "peers"


class MatMul:
    """Each matrix times the same rows, one after the other."""

    def __init__(self, layers: Sequence[Codes], threads: int) -> None:
        with needs(EXTRA):
            import torch
        if layers[0].bits != 4:
            raise Missing("torch's packed kernel has 4 bits only")
        torch.set_num_threads(threads)
        self._group = layers[0].group
        self._weights = [_packed(layer) for layer in layers]

    def bind(self, x: Floats) -> None:
        """Sets the rows [m, k]."""
        import torch

        self._x = torch.from_numpy(np.ascontiguousarray(x))

    def run(self) -> None:
        import torch

        x = self._x.to(torch.bfloat16)
        multiply = torch.ops.aten._weight_int4pack_mm_for_cpu
        self._out = [multiply(x, codes, self._group, scales) for codes, scales in self._weights]

    def result(self) -> list[Floats]:
        """[m, n] of every matrix."""
        return [out.float().numpy() for out in self._out]


def _packed(layer: Codes) -> tuple[object, object]:
    """Codes as the kernel wants them, and (scale, zero) pairs [k / group, n, 2]: code 8 is zero."""
    import torch

    codes = torch.ops.aten._convert_weight_to_int4pack_for_cpu(
        torch.from_numpy(layer.codes.astype(np.int32)), 1
    )
    scales = torch.from_numpy(layer.scales.T.astype(np.float32))
    pairs = torch.stack([scales, torch.zeros_like(scales)], dim=2).to(torch.bfloat16)
    return codes, pairs.contiguous()
