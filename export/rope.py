"""Rotary embedding: what a configuration says of it, as the spec's inverse frequencies.

Plain ones follow from a base and stay that in the spec. Stretched ones are worked out here, so that
the core needs no rule for any of them. Equations: as in `transformers`' ``modeling_rope_utils``;
linear: kaiokendev; llama3: the Llama 3.1 release; yarn: Peng et al., arXiv 2309.00071.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, floor, log, pi, tau
from typing import Any

from ..errors import UnsupportedModelError
from .fields import Fields

# mrope's three axes carry the same position for text: plain rotary embedding
_PLAIN = ("default", "mrope")
_PROPORTIONAL = "proportional"  # the leading share of a head's pairs turns, as if all did


def rope_fields(
    config: Fields, head_dim: int, *, share: float = 1.0, theta: float | None = None
) -> dict[str, Any]:
    """``rotary_dim`` and ``rope_theta``, or ``rope_inv_freq`` and ``rope_attention_factor``.

    Keys are read nested (``rope_parameters``, or ``rope_scaling`` for the stretching alone) or at
    the top; ``share`` of a head rotates and ``theta`` is the base where no key says. Raises
    UnsupportedModelError for a rope type that is not served, CheckpointError for a key that is
    missing or outside its domain.
    """
    scaling, nested = config.section("rope_scaling"), config.section("rope_parameters")
    for key, value in nested.values.items():
        if isinstance(value, dict):
            raise UnsupportedModelError(
                f"{config.path}: rope_parameters: {key!r}: parameters by layer type are not "
                "supported"
            )
    merged = Fields(config.path, {**config.values, **scaling.values, **nested.values})
    share = merged.number("partial_rotary_factor", share, high=1.0)
    kind, base = _kind(config.path, nested, scaling), merged.number("rope_theta", theta, low=1.0)
    if kind == _PROPORTIONAL:
        return _proportional(merged, head_dim, share, base)
    rotary = int(head_dim * share)
    if rotary < 2 or rotary % 2:
        reason = f"{share:g} of {head_dim} is not an even number of dimensions"
        raise config.refuse("partial_rotary_factor", reason)
    if kind in _PLAIN:
        return {"rotary_dim": rotary, "rope_theta": base}
    plain = [base ** (-2 * i / rotary) for i in range(rotary // 2)]
    frequencies, factor = _STRETCHED[kind](merged, plain, base)
    return {
        "rotary_dim": rotary,
        "rope_inv_freq": frequencies,
        "rope_attention_factor": factor,
    }


def query_scale_fields(config: Fields) -> dict[str, Any]:
    """``query_scale_beta`` and ``query_scale_positions``, where rotary keys ask for Llama 4's
    scaling of queries; else nothing. Raises CheckpointError for a key outside its domain."""
    rope = config.section("rope_parameters")
    keys = Fields(config.path, {**config.section("rope_scaling").values, **rope.values})
    beta = keys.number("llama_4_scaling_beta", 0.0, high=1e3)
    if beta == 0:
        return {}
    positions = keys.integer("original_max_position_embeddings")
    return {"query_scale_beta": beta, "query_scale_positions": positions}


def _kind(path: Any, *sections: Fields) -> str:
    named = [section.get(key) for section in sections for key in ("rope_type", "type")]
    kinds = [kind for kind in named if kind is not None]
    for kind in kinds:
        if not isinstance(kind, str) or kind not in (*_PLAIN, _PROPORTIONAL, *_STRETCHED):
            known = ", ".join((*_PLAIN, _PROPORTIONAL, *_STRETCHED))
            raise UnsupportedModelError(
                f"{path}: rope_type {kind!r} is not supported (there are: {known})"
            )
    stretched = sorted({kind for kind in kinds if kind not in _PLAIN})
    if len(stretched) > 1:
        raise sections[0].refuse("rope_type", f"is {' and '.join(stretched)} at once")
    return stretched[0] if stretched else _PLAIN[0]


def _proportional(keys: Fields, head_dim: int, share: float, base: float) -> dict[str, Any]:
    """Pairs are those of the whole head; the ones that stay have the frequency 0."""
    if head_dim % 2:
        raise keys.refuse("head_dim", f"{head_dim} is not an even number of dimensions")
    pairs, turning = head_dim // 2, int(share * head_dim // 2)
    factor = keys.number("factor", 1.0, low=1e-3)
    turns = [base ** (-2 * i / head_dim) / factor for i in range(turning)]
    return {"rotary_dim": head_dim, "rope_inv_freq": turns + [0.0] * (pairs - turning)}


def _linear(keys: Fields, plain: list[float], base: float) -> tuple[list[float], float]:
    factor = keys.number("factor", low=1e-3)
    return [f / factor for f in plain], 1.0


def _llama3(keys: Fields, plain: list[float], base: float) -> tuple[list[float], float]:
    """Waves longer than the original context divided by ``low_freq_factor`` are stretched, those
    shorter than it divided by ``high_freq_factor`` stay, and the ones between are blended."""
    factor = keys.number("factor", low=1e-3)
    low, high = keys.number("low_freq_factor", low=1e-3), keys.number("high_freq_factor", low=1e-3)
    context = keys.integer("original_max_position_embeddings")
    if not low < high:
        raise keys.refuse("high_freq_factor", f"{high:g} is not above low_freq_factor {low:g}")

    def stretched(f: float) -> float:
        kept = min(max((context * f / tau - low) / (high - low), 0.0), 1.0)
        return kept * f + (1 - kept) * f / factor

    return [stretched(f) for f in plain], 1.0


def _yarn(keys: Fields, plain: list[float], base: float) -> tuple[list[float], float]:
    """Pairs that turn more than ``beta_fast`` times within the original context stay, those that
    turn less than ``beta_slow`` times are stretched, and a ramp over the pairs lies between."""
    factor = keys.number("factor", low=1e-3)
    context = keys.integer(
        "original_max_position_embeddings", keys.integer("max_position_embeddings")
    )
    fast, slow = keys.number("beta_fast", 32.0, low=1e-3), keys.number("beta_slow", 1.0, low=1e-3)
    if base <= 1:
        raise keys.refuse("rope_theta", f"{base:g} leaves yarn nothing to stretch")
    dim = 2 * len(plain)

    def pair(turns: float) -> float:
        return dim * log(context / (turns * 2 * pi)) / (2 * log(base))

    first, last = pair(fast), pair(slow)
    if keys.flag("truncate", True):
        first, last = floor(first), ceil(last)
    first, last = max(first, 0), min(last, dim - 1)
    span = last - first or 0.001  # a ramp of no width

    def stretched(i: int, f: float) -> float:
        part = min(max((i - first) / span, 0.0), 1.0)
        return part * f / factor + (1 - part) * f

    return [stretched(i, f) for i, f in enumerate(plain)], _yarn_attention(keys, factor)


def _yarn_attention(keys: Fields, factor: float) -> float:
    def strength(scale: float) -> float:
        return 0.1 * scale * log(factor) + 1 if factor > 1 else 1.0

    if keys.get("attention_factor") is not None:
        return keys.number("attention_factor", low=1e-3, high=1e3)
    if keys.get("mscale") and keys.get("mscale_all_dim"):
        return strength(keys.number("mscale")) / strength(keys.number("mscale_all_dim"))
    return strength(1.0)


def _factors(keys: Fields, plain: list[float], base: float) -> tuple[list[float], float]:
    """A divisor for every pair: how a GGUF file states llama3's."""
    factors = keys.required("factors")
    good = isinstance(factors, list) and len(factors) == len(plain)
    if not good or not all(type(f) is float and 1e-3 <= f <= 1e6 for f in factors):
        reason = f"is not a list of {len(plain)} numbers from 0.001 to 1000000"
        raise keys.refuse("factors", reason)
    return [f / factor for f, factor in zip(plain, factors, strict=True)], 1.0


_Stretch = Callable[[Fields, list[float], float], tuple[list[float], float]]
_STRETCHED: dict[str, _Stretch] = {
    "linear": _linear,
    "llama3": _llama3,
    "yarn": _yarn,
    "factors": _factors,
}
