"""What a generation is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypedDict

from .constrained.request import ResponseFormat, format_of
from .domains import INTEGERS, NUMBERS, integer_of, number_of, stop_strings, up_to
from .errors import ArgumentError, ModelFormatError

DEFAULT_MAX_NEW_TOKENS = 256
MODES = ("diffusion", "ar", "speculative")
QUALITIES = ("exact", "balanced", "fast")  # of a plan: see clover_edge.tuning
STRATEGIES = ("low_confidence_dynamic", "low_confidence_static", "sequential", "entropy_bounded")
NO_MASK = -1  # the mask token's id where there is none
# Options of models with full attention: what a name may be, and up to where a number goes, from 0.
FULL_NAMES = {
    "cache": ("none", "prefix", "dual"),
    "confidence": ("probability", "margin", "entropy", "random"),
}
FULL_NUMBERS = {"eps": 1.0, "confidence_temperature": 1e6, "stop_penalty": 1e6}


class GenerationOptions(TypedDict, total=False):
    """Keyword arguments of generate(), stream() and chat(); GenerationConfig explains each."""

    max_new_tokens: int | None
    block_length: int | None
    threshold: float | None
    steps: int | None
    edit_threshold: float | None
    max_post_steps: int | None
    fixed_schedule: bool | None
    sub_block: int | None
    strategy: str | None
    factor: float | None
    credit: float | None
    entropy_bound: float | None
    cache: str | None
    eps: float | None
    confidence: str | None
    confidence_temperature: float | None
    stop_penalty: float | None
    t_min: float | None
    t_max: float | None
    stability_threshold: int | None
    confidence_threshold: float | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    seed: int | None
    stop: str | Sequence[str] | None
    presence_penalty: float | None
    frequency_penalty: float | None
    repetition_penalty: float | None
    coreset_size: int | None
    coreset_share: float | None
    skip_rows: bool | None
    refresh: int | None
    mode: str | None
    logprobs: bool | None
    top_logprobs: int | None
    response_format: Mapping[str, Any] | None
    quality: str | None


@dataclass(frozen=True)
class GenerationConfig:
    """The options of one generation, all checked.

    `resolve` takes the checkpoint's own defaults first and the caller's arguments second.
    """

    max_new_tokens: int | None = None  # None: 256; a default is cut to the room there is
    # positions denoised together, at most the model's block_size; with full attention any number
    block_length: int = 32
    threshold: float = 0.9  # accept a position above this probability; 1.0: one a forward
    steps: int = 0  # previews a block may take; 0: as many as it needs
    edit_threshold: float | None = None  # replace accepted tokens above it; None: never
    max_post_steps: int = 16  # previews that a block which is edited may take behind its last mask
    fixed_schedule: bool = False  # steps share out the whole block; False: what is masked
    sub_block: int = 0  # positions of a block finished before those behind them; 0: all at once
    # Which masked positions are accepted: "low_confidence_dynamic", above the threshold or at least
    # the scheduled number; "low_confidence_static", that number; "sequential", it from the left;
    # "entropy_bounded", see entropy_bound.
    strategy: str = "low_confidence_dynamic"
    factor: float = 0.0  # not by threshold: the n likeliest, the n-th at least 1 - factor / (n + 1)
    credit: float = 0.0  # weight of what tokens earned that led in earlier steps; 0: none
    # Accept positions while the nats of entropy of those surer sum to at most it; None: the core's
    entropy_bound: float | None = None
    # With full attention. What a block's steps share: "none" (exact), keys and values of what is in
    # front of the block ("prefix") or of all but the block ("dual"), computed at its first step.
    cache: str = "none"
    eps: float = 0.0  # Dream's schedule: masks fall like t, from 1 to eps over the steps; 0: off
    confidence: str = "probability"  # what is accepted first; or "margin", "entropy", "random"
    confidence_temperature: float = 0.0  # of the draw of what is accepted first; 0: none is drawn
    stop_penalty: float = 0.0  # subtracted from the logits of stop tokens
    # Of models whose blocks start as random ids; None: the core's.
    t_min: float | None = None  # temperature of the last steps
    t_max: float | None = None  # of the first ones; it falls in equal parts
    stability_threshold: int | None = None  # steps without change that a block ends after, if
    confidence_threshold: float | None = None  # its mean entropy (nats) is also below this
    temperature: float = 0.0  # 0: greedy; of random ids: t_min and t_max in one
    top_k: int = 0  # sample among the k likeliest; 0: all
    top_p: float = 1.0  # sample among the likeliest that sum to p
    seed: int = 0
    stop: tuple[str, ...] = ()  # texts that end the generation and are not part of it
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    coreset_size: int | None = None  # experts a block may use; None: the model's; 0: all
    coreset_share: float = 0.0  # of the experts that steps behind a block's first choose; 0: all
    skip_rows: bool = False  # decided positions are left out of previews: faster, approximate
    refresh: int = 0  # with skip_rows: every so many previews of a block leave none out; 0: never
    # "ar": one token a forward, the only mode of autoregressive models; "speculative": the same
    # text, drafted by previews or by a drafter, and verified by blocks.
    mode: str = "diffusion"
    logprobs: bool = False  # each token's log-probability before penalties and temperature
    top_logprobs: int = 0  # with logprobs: most probable tokens beside each, up to 20
    # What the text must be: {"type": "json_schema", "json_schema": {...}} and the like; see
    # clover_edge.constrained.
    response_format: ResponseFormat | None = None
    stop_token_ids: tuple[int, ...] = ()

    @classmethod
    def resolve(
        cls,
        path: str,
        spec: Mapping[str, Any],
        defaults: Mapping[str, Any],
        *,
        drafts: int = 0,
        **options: Any,
    ) -> GenerationConfig:
        """`drafts`: tokens that a drafter beside an autoregressive model drafts at most; 0: none.

        Raises ArgumentError naming the option and value, or ModelFormatError where the model
        folder's own default is out of its domain."""
        known = {field.name for field in fields(cls)} - {"stop_token_ids"}
        unknown = sorted(set(options) - known)
        if unknown:
            raise ArgumentError(
                f"{unknown[0]}: is no generation option (there are: {', '.join(sorted(known))})"
            )
        asked = _checked(_present(options, known), spec, drafts)
        constrained = asked.get("response_format") is not None
        if constrained:
            _check_constrained(asked, spec)
            known = known - set(NOT_CONSTRAINED)
        try:
            values = {**_of_model(spec, drafts), **_checked(_present(defaults, known), spec)}
            eos = defaults.get("eos_token_id", [])
            values["stop_token_ids"] = _token_ids([eos] if isinstance(eos, int) else eos, spec)
        except ArgumentError as error:
            raise ModelFormatError(path, "generation", str(error)) from None
        if asked.get("top_logprobs") and not asked.get("logprobs"):
            raise ArgumentError(f"top_logprobs: {asked['top_logprobs']}: needs logprobs=True")
        if starts_random(spec) and "temperature" in asked:
            asked = dict.fromkeys(("t_min", "t_max"), asked["temperature"]) | asked
        return cls(**{**values, **asked})

    def core_options(self, max_new_tokens: int) -> dict[str, Any]:
        """The options dictionary of `_core.Model.generate`."""
        given = {
            "coreset": self.coreset_size,
            "edit_threshold": self.edit_threshold,
            "entropy_bound": self.entropy_bound,
        }
        given |= {name: getattr(self, name) for name in OF_RANDOM_IDS}
        return {
            "mode": self.mode,
            "max_new_tokens": max_new_tokens,
            "block_length": self.block_length,
            "threshold": self.threshold,
            "steps": self.steps,
            "fixed_schedule": self.fixed_schedule,
            "max_post_steps": self.max_post_steps,
            "sub_block": self.sub_block,
            "strategy": self.strategy,
            "factor": self.factor,
            "credit": self.credit,
            **{name: getattr(self, name) for name in (*FULL_NAMES, *FULL_NUMBERS)},
            "coreset_share": self.coreset_share,
            "skip_rows": self.skip_rows,
            "refresh": self.refresh,
            "temperature": self.temperature,
            "top_k": self.top_k,
            "top_p": self.top_p,
            "seed": self.seed,
            "stop_ids": list(self.stop_token_ids),
            "presence_penalty": self.presence_penalty,
            "frequency_penalty": self.frequency_penalty,
            "repetition_penalty": self.repetition_penalty,
            "logprobs": self.top_logprobs if self.logprobs else -1,
            "commit_last": False,
            **{name: value for name, value in given.items() if value is not None},
        }


_NOT_WITH_FULL_ATTENTION = (
    "edit_threshold",
    "max_post_steps",
    "sub_block",
    "coreset_size",
    "coreset_share",
    "skip_rows",
    "refresh",
    "credit",
)
DENOISING = (
    *FULL_NAMES,
    *FULL_NUMBERS,
    "block_length",
    "threshold",
    "steps",
    "edit_threshold",
    "max_post_steps",
    "fixed_schedule",
    "sub_block",
    "strategy",
    "factor",
    "credit",
    "entropy_bound",
    "t_min",
    "t_max",
    "stability_threshold",
    "confidence_threshold",
    "coreset_size",
    "coreset_share",
    "skip_rows",
    "refresh",
)


DENOISING_MODES = ("diffusion", "speculative")
# Blocks that start as masks take these, and blocks that start as random ids those.
OF_MASKS = (
    "threshold",
    "edit_threshold",
    "max_post_steps",
    "fixed_schedule",
    "sub_block",
    "strategy",
    "factor",
    "credit",
    "skip_rows",
    "refresh",
)
# Under a grammar positions are accepted from left to right, and texts end where it says.
NOT_CONSTRAINED = (
    "steps",
    "edit_threshold",
    "fixed_schedule",
    "strategy",
    "factor",
    "credit",
    "entropy_bound",
    "confidence",
    "confidence_temperature",
    "eps",
    "stop",
)
OF_RANDOM_IDS = ("t_min", "t_max", "stability_threshold", "confidence_threshold")


def starts_random(spec: Mapping[str, Any]) -> bool:
    """Whether blocks start as random ids rather than masks."""
    return bool(spec.get("noise", "mask") == "uniform")


def is_autoregressive(spec: Mapping[str, Any]) -> bool:
    """Whether the model has no denoising passes: without a drafter, mode "ar" is the only one."""
    return not spec.get("preview", True)


def has_full_attention(spec: Mapping[str, Any]) -> bool:
    """Whether text and masks all see each other: nothing is final before the end."""
    return bool(spec.get("mask") == "full")


def _of_model(spec: Mapping[str, Any], drafts: int) -> dict[str, Any]:
    """What the model itself decides, before anybody's wishes."""
    if drafts:
        return {"mode": "speculative", "block_length": drafts}
    if is_autoregressive(spec):
        return {"mode": "ar", "block_length": 1}
    return {"block_length": _check("block_length", spec["block_size"], spec)}


def _check_constrained(asked: Mapping[str, Any], spec: Mapping[str, Any]) -> None:
    if starts_random(spec):
        raise ArgumentError("response_format: is not for models whose blocks start as random ids")
    for name in NOT_CONSTRAINED:
        if asked.get(name):
            raise ArgumentError(f"{name}: {asked[name]!r}: is not for use with response_format")


def _present(options: Mapping[str, Any], known: set[str]) -> dict[str, Any]:
    return {name: options[name] for name in known if options.get(name) is not None}


def _checked(
    options: Mapping[str, Any], spec: Mapping[str, Any], drafts: int = 0
) -> dict[str, Any]:
    return {name: _check(name, value, spec, drafts) for name, value in options.items()}


_WORDS = {"mode": MODES, "strategy": STRATEGIES, **FULL_NAMES}
_FLAGS = ("fixed_schedule", "skip_rows", "logprobs")
_NUMBERS = {**NUMBERS, **{name: up_to(most) for name, most in FULL_NUMBERS.items()}}


def _check(name: str, value: Any, spec: Mapping[str, Any], drafts: int = 0) -> Any:
    drafted = drafts and (name == "block_length" or (name, value) == ("mode", "speculative"))
    if (is_autoregressive(spec) and not drafted) and (
        name in DENOISING or (name == "mode" and value in DENOISING_MODES)
    ):
        raise ArgumentError(
            f"{name}: {value!r}: the model is autoregressive, it cannot denoise blocks"
        )
    full = has_full_attention(spec)
    if full and (name in _NOT_WITH_FULL_ATTENTION or (name == "mode" and value != "diffusion")):
        raise ArgumentError(f"{name}: {value!r}: is not for models with full attention")
    if not full and (name in FULL_NAMES or name in FULL_NUMBERS):
        raise ArgumentError(f"{name}: {value!r}: is for models with full attention")
    if name in (OF_MASKS if starts_random(spec) else OF_RANDOM_IDS):
        start = "random ids" if starts_random(spec) else "masks"
        raise ArgumentError(f"{name}: {value!r}: the model's blocks start as {start}")
    if name == "stop":
        return stop_strings(value)
    if name == "response_format":
        return format_of(value)
    if name in _WORDS:
        if value not in _WORDS[name]:
            raise ArgumentError(
                f"{name}: {value!r} is none of {', '.join(map(repr, _WORDS[name]))}"
            )
        return value
    if name in _NUMBERS:
        accepts, wanted = _NUMBERS[name]
        number = number_of(value)
        if number is None or not accepts(number):
            raise ArgumentError(f"{name}: {value!r} is not {wanted}")
        return number
    if name in _FLAGS:
        if type(value) is not bool:
            raise ArgumentError(f"{name}: {value!r} is neither True nor False")
        return value
    if drafted:
        low, high = 1, drafts
    elif name == "block_length":
        blocks = spec.get("mask", "causal") == "block"  # which fixes their width
        low, high = spec["block_size"] if blocks else 1, spec["block_size"]
        if full:  # a canvas is cut into blocks at will
            high = spec["max_positions"]
    elif name == "sub_block":
        low, high = 0, spec["block_size"]
    elif name == "coreset_size":
        low, high = 0, spec.get("num_experts", 0)
    else:
        low, high = INTEGERS[name]
    integer = integer_of(value)
    if integer is None or not low <= integer <= high:
        raise ArgumentError(f"{name}: {value!r} is not an integer from {low} to {high}")
    return integer


def _token_ids(ids: Any, spec: Mapping[str, Any]) -> tuple[int, ...]:
    if not isinstance(ids, Sequence) or isinstance(ids, (str, bytes)):
        raise ArgumentError(f"eos_token_id: {ids!r} is not a list of ids")
    for token_id in ids:
        integer = integer_of(token_id)
        if integer is None or not 0 <= integer < spec["vocab_size"]:
            raise ArgumentError(
                f"eos_token_id: {token_id!r} is outside the vocabulary of {spec['vocab_size']}"
            )
    return tuple(int(token_id) for token_id in ids)
