"""Muon for the matrices (orthogonalised momentum), AdamW for embeddings, vectors and routers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # quintic Newton-Schulz of the Muon paper


def orthogonalise(g: Tensor, steps: int = 5) -> Tensor:
    """Nearest semi-orthogonal matrix, roughly; g [..., m, n]."""
    a, b, c = COEFFICIENTS
    tall = g.shape[-2] > g.shape[-1]
    x = g.transpose(-1, -2) if tall else g
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.transpose(-1, -2)
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.transpose(-1, -2) if tall else x


class Muon(torch.optim.Optimizer):
    """Momentum, orthogonalised; stacks of expert matrices are treated one by one."""

    def __init__(self, params: list[nn.Parameter], lr: float, momentum: float, decay: float):
        super().__init__(params, {"lr": lr, "momentum": momentum, "decay": decay})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                buf = state.setdefault("momentum", torch.zeros_like(p))
                buf.lerp_(p.grad, 1 - group["momentum"])
                update = orthogonalise(p.grad.lerp(buf, group["momentum"]))
                p.mul_(1 - group["lr"] * group["decay"])
                p.add_(update, alpha=-group["lr"] * max(1.0, p.shape[-2] / p.shape[-1]) ** 0.5)


RATES = (1.0, 0.125)  # learning rates of the two optimisers, as shares of the run's


def make_optimisers(model: nn.Module) -> list[torch.optim.Optimizer]:
    """Muon for matrices, AdamW for the rest; the schedule sets their learning rates."""
    matrices, rest = [], []
    for name, p in model.named_parameters():
        small = any(s in name for s in ("embed", "lm_head", "gate.weight", "_gate", "in_proj_a"))
        small = small or "in_proj_b" in name or "conv" in name
        (rest if small or p.ndim < 2 else matrices).append(p)
    return [
        Muon(matrices, lr=0.0, momentum=0.95, decay=0.05),
        torch.optim.AdamW(rest, lr=0.0, betas=(0.9, 0.98), weight_decay=0.01, fused=True),
    ]
