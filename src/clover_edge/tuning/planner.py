"""The planner: predicts every setting from costs and traces, then times the best.

The prediction runs nothing, so that a machine which is not at hand can be planned for as well: its
costs are then told instead of measured (benches/roofline.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any

from ..generation import is_autoregressive
from .costs import Costs, measure_costs
from .predict import autoregressive, diffusion, speculative
from .traces import Trace, measure_trace

if TYPE_CHECKING:
    from .._core import Model as CoreModel

FINALISTS = 3  # settings that are timed for real
_WIDTHS = (4, 8, 16, 32, 64)
_REFRESH = 4
_CORESET_SHARE = 3 / 16  # of the experts: what LLaDA2.2 was trained with
_MANY_EXPERTS = 32  # from which a coreset saves anything
_SHARE = 0.4  # of the experts that later steps would choose: costs the demo model no answers
_ROUNDS = 3
_NOISE = 0.03  # of a speed: what a change of settings must be worth

Progress = Callable[[str], None]
Limit = tuple[int, float]  # coreset_size (0: the model's own), coreset_share
FREE: Limit = (0, 0.0)
CostTable = Mapping[Limit, Costs]
Traces = Mapping[tuple[str, int], Trace]  # by mode and width


@dataclass(frozen=True)
class Candidate:
    """A setting, what it should reach, and what it did where it was timed."""

    mode: str
    block_length: int
    skip_rows: bool
    refresh: int
    coreset_size: int
    coreset_share: float
    predicted_tps: float
    measured_tps: float | None = None
    cache: str = ""  # of models with full attention

    @property
    def options(self) -> dict[str, Any]:
        """Generation options."""
        chosen: dict[str, Any] = {"mode": self.mode}
        if self.mode == "ar":
            return chosen
        chosen["block_length"] = self.block_length
        if self.coreset_size:
            chosen["coreset_size"] = self.coreset_size
        if self.coreset_share:
            chosen["coreset_share"] = self.coreset_share
        if self.skip_rows:
            chosen["skip_rows"] = True
        if self.refresh:
            chosen["refresh"] = self.refresh
        if self.cache:
            chosen["cache"] = self.cache
        return chosen


@dataclass(frozen=True)
class Plan:
    """The table that a decision was made from, the best first; what was timed comes in front."""

    quality: str
    threads: int
    costs: Costs
    candidates: tuple[Candidate, ...]

    @property
    def options(self) -> dict[str, Any]:
        """Generation options of the choice."""
        return self.candidates[0].options

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**asdict(self), "options": self.options}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Plan:
        """The inverse of to_dict(). Raises KeyError or TypeError for anything else."""
        costs = Costs(**{name: tuple(values) for name, values in plain["costs"].items()})
        candidates = tuple(Candidate(**each) for each in plain["candidates"])
        return cls(plain["quality"], plain["threads"], costs, candidates)


@dataclass(frozen=True)
class Settings:
    """What the planner may choose from for one model."""

    modes: tuple[str, ...]
    widths: tuple[int, ...]
    skips: tuple[tuple[bool, int], ...]  # (skip_rows, refresh)
    limits: tuple[Limit, ...]  # of experts
    fused: bool
    caches: tuple[str, ...] = ("",)

    @property
    def finalists(self) -> int | None:
        """How many of the best are timed. All where passes run over the whole text, which the
        predictions know nothing of."""
        return FINALISTS if self.caches == ("",) else None

    @classmethod
    def of(cls, spec: Mapping[str, Any], generation: Mapping[str, Any], quality: str) -> Settings:
        """`exact` leaves out every approximation that the model does not ask for itself; only
        `fast` takes blocks wider than the model's own default."""
        if is_autoregressive(spec):
            return cls(("ar",), (1,), ((False, 0),), (FREE,), False)
        own, mask = spec["block_size"], spec.get("mask", "causal")
        causal, full = mask == "causal", mask == "full"
        # Wider than the model is used by itself, it may write worse.
        most = own if quality == "fast" or not causal else generation.get("block_length", own)
        widths = (*(w for w in _WIDTHS if w < most and mask != "block"), most)
        noise = spec.get("noise", "mask") != "mask"
        free_rows = not noise and not full
        free_rows &= spec.get("delta_preview", "operator") == "operator"
        free_rows &= "edit_threshold" not in generation and "delete_token_id" not in spec
        skips: tuple[tuple[bool, int], ...] = ((False, 0),)
        if quality != "exact" and free_rows:
            skips = ((False, 0), (True, 0), (True, _REFRESH))
        experts = spec.get("num_experts", 0)
        size = max(spec.get("top_k", 0), round(experts * _CORESET_SHARE))
        limits: list[Limit] = [FREE]
        if quality != "exact" and free_rows and experts > 2 * spec.get("top_k", 0):
            limits.append((0, _SHARE))
        if quality == "fast" and experts >= _MANY_EXPERTS:
            limits.append((size, 0.0))
        modes = ("diffusion", "ar", "speculative") if causal and not noise else ("diffusion",)
        seeded = bool(spec.get("logit_shift", 0) or spec.get("block_seed", False))
        caches: tuple[str, ...] = ("",)
        if full:
            caches = ("none",) if quality == "exact" else ("dual", "prefix")
        fused = not (noise or full or seeded)
        return cls(modes, widths, skips, tuple(limits), fused, caches)


def tune(
    core: CoreModel,
    spec: Mapping[str, Any],
    generation: Mapping[str, Any],
    prompts: Sequence[Sequence[int]],
    *,
    quality: str = "balanced",
    core_options: Callable[[Mapping[str, Any]], dict[str, Any]],
    traces: Traces | None = None,
    progress: Progress = lambda _: None,
) -> Plan:
    """Measures costs and traces of a model on `prompts` (token ids) and chooses.

    `core_options(options)`: the core's dictionary for generation options, with the number of new
    tokens. `traces`: by mode and width, instead of measured ones.
    """
    settings = Settings.of(spec, generation, quality)
    widest = max(settings.widths)
    progress("costs of a forward")
    text = max(prompts, key=len)
    costs = {
        (size, share): measure_costs(
            core,
            text,
            2 * widest,
            coreset=size,
            share=share,
            commits=settings.finalists is not None,
        )
        for size, share in settings.limits
    }
    if traces is None:
        traces = measure_traces(core, settings, prompts, core_options, progress)
    found = predicted(settings, costs, traces)
    finalists = found[: settings.finalists] if len(found) > 1 else []
    best = _timed(core, finalists, prompts, core_options, progress)
    return Plan(quality, core.threads, costs[FREE], (*best, *found[len(best) :]))


def predicted(settings: Settings, costs: CostTable, traces: Traces) -> list[Candidate]:
    """Every setting and the speed that it would reach, the fastest first; no model is run.

    `costs`: by what experts are limited to, an entry for each of `settings.limits`.
    """
    return sorted(_candidates(settings, costs, traces), key=lambda c: -c.predicted_tps)


def measure_traces(
    core: CoreModel,
    settings: Settings,
    prompts: Sequence[Sequence[int]],
    core_options: Callable[[Mapping[str, Any]], dict[str, Any]],
    progress: Progress = lambda _: None,
) -> dict[tuple[str, int], Trace]:
    """What the model accepts on `prompts` in every mode and width of `settings`."""
    found = {}
    for mode in settings.modes:
        for width in settings.widths if mode != "ar" else (1,):
            progress(f"acceptance, {mode}" + (f", {width} wide" if mode != "ar" else ""))
            found[mode, width] = measure_trace(
                core, prompts, width, core_options({"mode": mode, "block_length": width})
            )
    return found


def _candidates(settings: Settings, costs: CostTable, traces: Traces) -> Iterable[Candidate]:
    for (mode, width), trace in traces.items():
        if mode == "ar":
            seconds = autoregressive(trace, costs[FREE])
            yield Candidate(mode, 1, False, 0, *FREE, trace.tokens / seconds)
            continue
        for limit in settings.limits:
            if mode == "speculative":
                if not limit[1]:  # whose drafts' acceptance no trace shows
                    seconds = speculative(trace, costs[limit])
                    yield Candidate(mode, width, False, 0, *limit, trace.tokens / seconds)
                continue
            for skip, refresh in settings.skips:
                seconds = diffusion(
                    trace,
                    costs[limit],
                    first=costs[limit[0], 0.0],
                    skip_rows=skip,
                    refresh=refresh,
                    fused=settings.fused,
                )
                plain = Candidate(mode, width, skip, refresh, *limit, trace.tokens / seconds)
                yield from (replace(plain, cache=cache) for cache in settings.caches)


def _timed(
    core: CoreModel,
    candidates: Sequence[Candidate],
    prompts: Sequence[Sequence[int]],
    core_options: Callable[[Mapping[str, Any]], dict[str, Any]],
    progress: Progress,
) -> list[Candidate]:
    """With their tokens a second behind the prefill, medians of rounds in which they take turns.
    The fastest first, but for such as noise may have put in front: of those the widest, which is
    nearest to the model's own default."""
    speeds: list[list[float]] = [[] for _ in candidates]
    for number in range(_ROUNDS if candidates else 0):
        progress(f"the best {len(candidates)} settings, round {number + 1} of {_ROUNDS}")
        for candidate, found in zip(candidates, speeds, strict=True):
            found.append(_speed(core, candidate, prompts, core_options(candidate.options)))
    timed = [
        replace(candidate, measured_tps=median(found))
        for candidate, found in zip(candidates, speeds, strict=True)
    ]
    fastest = max((c.measured_tps or 0 for c in timed), default=0)

    def order(candidate: Candidate) -> tuple[bool, int, float]:
        speed = candidate.measured_tps or 0
        slower = speed < (1 - _NOISE) * fastest
        return slower, 0 if slower else -candidate.block_length, -speed

    return sorted(timed, key=order)


def _speed(
    core: CoreModel,
    candidate: Candidate,
    prompts: Sequence[Sequence[int]],
    options: dict[str, Any],
) -> float:
    tokens, seconds = 0, 0.0
    for prompt in prompts:
        room = len(prompt) + options["max_new_tokens"] + 2 * candidate.block_length
        result = core.generate(core.new_state(room), prompt, options)
        tokens += len(result["ids"]) + (result["stop_id"] is not None)
        seconds += result["counters"]["decode_seconds"]
    return tokens / seconds
