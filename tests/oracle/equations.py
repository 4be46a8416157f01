"""The equations of the model, one function each, in float64.

n rows of a pass, p committed positions; one head at a time where a head is meant.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

L2_EPS = 1e-6


# ---- elementary functions ----------------------------------------------------------------------


def sigmoid(x: Array) -> Array:
    return 0.5 * (1.0 + np.tanh(0.5 * x))


def silu(x: Array) -> Array:
    return x * sigmoid(x)


def softplus(x: Array) -> Array:
    return np.logaddexp(0.0, x)


def softmax(x: Array) -> Array:
    e: Array = np.exp(x - x.max(axis=-1, keepdims=True))
    total: Array = e.sum(axis=-1, keepdims=True)
    return e / total


def l2norm(u: Array) -> Array:
    length: Array = np.sqrt((u * u).sum(axis=-1, keepdims=True) + L2_EPS)
    return u / length


def rmsnorm(x: Array, w: Array, eps: float) -> Array:
    size: Array = np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps)
    return x / size * w


# ---- the gated delta rule ----------------------------------------------------------------------


def short_conv(ring: Array, rows: Array, taps: Array, right: Array | None = None) -> Array:
    """Depthwise convolution and SiLU. ring [taps-1, C], rows [n, C], taps [C, taps].

    ``right`` [C, taps-1] looks ahead inside the block: its column d-1 multiplies the row d
    positions later, and rows past the block are absent.
    """
    n, window = len(rows), np.concatenate([ring, rows])
    out = np.zeros_like(rows)
    for j in range(taps.shape[1]):
        out += window[j : j + n] * taps[:, j]
    if right is not None:
        for d in range(1, 1 + right.shape[1]):
            ahead = rows[d:]
            out[: len(ahead)] += ahead * right[:, d - 1]
    return silu(out)


def delta_recurrent(
    S: Array, q: Array, k: Array, v: Array, g: Array, beta: Array
) -> tuple[Array, Array]:
    """One head, token by token: S [dk, dv]; q, k [n, dk]; v [n, dv]; g, beta [n] -> o [n, dv], S.

    q is already scaled by dk^-1/2.
    """
    o = np.zeros_like(v)
    for t in range(len(v)):
        S = np.exp(g[t]) * S
        d = beta[t] * (v[t] - S.T @ k[t])
        S = S + np.outer(k[t], d)
        o[t] = S.T @ q[t]
    return o, S


def delta_closed(
    S: Array, q: Array, k: Array, v: Array, g: Array, beta: Array
) -> tuple[Array, Array]:
    """The same head, all tokens at once (the form that a fast kernel computes)."""
    n = len(v)
    G = np.cumsum(g)
    # Above the diagonal G_i - G_j is positive: masked before exp, where it would overflow.
    decay = np.exp(np.where(np.tri(n, dtype=bool), G[:, None] - G[None, :], -np.inf))
    L = beta[:, None] * (k @ k.T) * decay * np.tri(n, k=-1)
    T = np.linalg.inv(np.eye(n) + L)
    U = T @ (beta[:, None] * v)
    W = T @ ((beta * np.exp(G))[:, None] * k)
    V = U - W @ S
    o = (np.exp(G)[:, None] * q) @ S + ((q @ k.T) * decay) @ V
    return o, np.exp(G[-1]) * S + (np.exp(G[-1] - G)[:, None] * k).T @ V


def preview_weights(q: Array, k: Array, logit_scale: float, history_logit: float) -> Array:
    """Softmax over the n rows and, last, the history: [n, n + 1]. q, k are l2-normalised."""
    rows = logit_scale * (q @ k.T)
    return softmax(np.concatenate([rows, np.full((len(q), 1), history_logit)], axis=1))


def delta_preview(
    S: Array, q: Array, k: Array, v: Array, weights: Array, history_q_scale: float
) -> Array:
    """One head of a preview: rows of the block and the read-out of S, mixed by ``weights``."""
    return weights[:, :-1] @ v + weights[:, -1:] * (history_q_scale * q @ S)


# ---- attention ---------------------------------------------------------------------------------


def rope(x: Array, positions: NDArray[np.intp], theta: float, rotary_dim: int) -> Array:
    """Rotates pairs (i, i + rotary_dim/2) of x [n, heads, hd]; the other dimensions pass."""
    inv_freq = theta ** (-2.0 * np.arange(rotary_dim // 2) / rotary_dim)
    return rotate(x, positions[:, None] * inv_freq)


def rotate(x: Array, angles: Array, factor: float = 1.0) -> Array:
    """Rotates pairs (i, i + pairs) of x [n, heads, hd] by angles [n, pairs], and stretches them."""
    half = angles.shape[-1]
    cosine, sine = factor * np.cos(angles)[:, None], factor * np.sin(angles)[:, None]
    a, b = x[..., :half], x[..., half : 2 * half]
    return np.concatenate(
        [a * cosine - b * sine, b * cosine + a * sine, x[..., 2 * half :]], axis=-1
    )


def attend(q: Array, k: Array, v: Array, visible: NDArray[np.bool_]) -> Array:
    """Grouped-query attention. q [n, nh, hd]; k, v [m, nkv, hd]; visible [n, m] -> [n, nh, hd]."""
    group = q.shape[1] // k.shape[1]
    out = np.zeros_like(q)
    for h in range(q.shape[1]):
        scores = q[:, h] @ k[:, h // group].T * q.shape[-1] ** -0.5
        out[:, h] = softmax(np.where(visible, scores, -np.inf)) @ v[:, h // group]
    return out


# ---- expert routing ----------------------------------------------------------------------------


def best(scores: Array, count: int) -> NDArray[np.intp]:
    """Indices of the largest scores, of equal ones the lower index first."""
    return np.argsort(-scores, kind="stable")[:count]


def coreset(
    probabilities: Array, size: int, within: NDArray[np.bool_] | None = None
) -> NDArray[np.bool_]:
    """The experts [E] that the rows of a block may use: the ``size`` best, each with the largest
    probability that any row [n, E] gives it; among ``within`` [E]."""
    most = probabilities.max(axis=0)
    allowed = np.zeros(len(most), dtype=bool)
    allowed[best(most if within is None else np.where(within, most, -1.0), size)] = True
    return allowed


def share_of_choices(
    probabilities: Array, top_k: int, share: float, within: NDArray[np.bool_] | None
) -> NDArray[np.bool_]:
    """The ``share`` of the experts that the rows would choose ``within`` [E], at least ``top_k``,
    that any row wants most: [E]."""
    chosen = (route(probabilities, top_k, False, within) > 0).any(axis=0)
    return coreset(probabilities, max(top_k, int(np.ceil(share * chosen.sum()))), chosen)


def route(
    probabilities: Array,
    top_k: int,
    renormalise: bool,
    allowed: NDArray[np.bool_] | None = None,
) -> Array:
    """Weight of every expert for every row: [n, E] with ``top_k`` entries a row, among
    ``allowed`` [E]."""
    if allowed is None:
        allowed = np.ones(probabilities.shape[1], dtype=bool)
    weights = np.zeros_like(probabilities)
    for row, p in enumerate(probabilities):
        chosen = best(np.where(allowed, p, -1.0), top_k)
        weights[row, chosen] = p[chosen] / (p[chosen].sum() if renormalise else 1.0)
    return weights
