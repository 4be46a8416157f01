"""What the tokenizer and generation files say: real ids, the mask id, decode defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ..errors import CheckpointError
from ..generation import FULL_NAMES, FULL_NUMBERS, STRATEGIES
from .checkpoint import Checkpoint
from .fields import Fields

_MASK_TOKENS = ("<|mask|>", "<|MASK|>", "<mask>", "[MASK]", "<|mdm_mask|>")


class Defaults(Protocol):
    """A family's word on decoding, where the checkpoint has none."""

    @property
    def decode(self) -> Mapping[str, Any]: ...
    @property
    def stop_tokens(self) -> tuple[str, ...]: ...
    @property
    def also_stop(self) -> tuple[str, ...]: ...


def valid_vocab(
    checkpoint: Checkpoint,
    vocab_size: int,
    warnings: list[str],
    *,
    without_row: Sequence[str] = (),
) -> int:
    """One more than the tokenizer's last id: rows behind it are padding and never emitted.

    ``without_row``: tokens that the model need not have a row for.
    """
    ids = _tokenizer_ids(checkpoint)
    if ids is None:
        warnings.append("tokenizer.json is absent: the packed folder can decode ids, not text")
        return vocab_size
    path = checkpoint.path / "tokenizer.json"
    rows = (i for token, i in ids.items() if i < vocab_size or token not in without_row)
    last = max(rows, default=-1)
    if not 0 <= last < vocab_size:
        raise CheckpointError(
            str(path), "vocab", f"last id {last}; the model has {vocab_size} rows"
        )
    return last + 1


def mask_token_id(
    checkpoint: Checkpoint, config: Fields, vocab_size: int, *, names: tuple[str, ...] = ()
) -> int:
    """From the configuration, else the generation configuration, else the tokenizer: the token
    that it calls the mask, or the first of ``names`` or of the usual names."""
    generation = generation_fields(checkpoint)
    for fields in (config, generation):
        if fields.get("mask_token_id") is not None:
            return fields.integer("mask_token_id", low=0, high=vocab_size - 1)
    named = checkpoint.optional_json("tokenizer_config.json").get("mask_token")
    named = named.get("content") if isinstance(named, dict) else named
    ids = _tokenizer_ids(checkpoint) or {}
    for token in (named, *names, *_MASK_TOKENS):
        if isinstance(token, str) and 0 <= ids.get(token, -1) < vocab_size:
            return ids[token]
    raise config.refuse(
        "mask_token_id",
        "is missing, and neither generation_config.json nor the tokenizer names a mask token",
    )


def generation_defaults(
    checkpoint: Checkpoint,
    config: Fields,
    spec: Mapping[str, Any],
    warnings: list[str],
    family: Defaults | None = None,
) -> dict[str, Any]:
    """Decode defaults of the release; where its generation configuration is silent the family's,
    else neutral ones."""
    vocab_size = spec["vocab_size"]
    fields = generation_fields(checkpoint)
    sampled = fields.get("do_sample")
    eos = fields.get("eos_token_id", config.get("eos_token_id", []))
    stops = [eos] if isinstance(eos, int) else eos
    if not isinstance(stops, list):
        raise fields.refuse("eos_token_id", f"{eos!r} is neither an id nor a list of ids")
    for stop in stops:
        if type(stop) is not int or not 0 <= stop < vocab_size:
            raise fields.refuse("eos_token_id", f"{stop!r} is not an id below {vocab_size}")
    if family:
        ids = _tokenizer_ids(checkpoint) or {}
        more = family.also_stop if stops else (*family.stop_tokens, *family.also_stop)
        named = [ids[token] for token in more if token in ids]
        stops = [*stops, *(stop for stop in named if stop not in stops)]
    # who asks for sampling and names no temperature means 1
    temperature = fields.number("temperature", 1.0 if sampled else 0.0)
    if not stops:
        warnings.append("no eos_token_id: generation ends at its budget only")
    canvases = spec.get("noise") == "uniform"
    return {
        **(_canvas_defaults if canvases else _denoising_defaults)(
            fields, spec, family.decode if family else {}
        ),
        "eos_token_id": stops,
        **({} if canvases else {"temperature": temperature if sampled is not False else 0.0}),
        "top_k": fields.integer("top_k", 0, low=0),
        "top_p": fields.number("top_p", 1.0, high=1.0),
        "presence_penalty": fields.number("presence_penalty", 0.0, low=-100.0, high=100.0),
        "frequency_penalty": fields.number("frequency_penalty", 0.0, low=-100.0, high=100.0),
        "repetition_penalty": fields.number("repetition_penalty", 1.0, high=100.0),
    }


def _denoising_defaults(
    fields: Fields, spec: Mapping[str, Any], family: Mapping[str, Any]
) -> dict[str, Any]:
    if not spec.get("preview", True):
        return {}
    width = most = spec["block_size"]
    low = width if spec["mask"] == "block" else 1
    if spec["mask"] == "full":
        most = spec["max_positions"]
    found: dict[str, Any] = {
        "threshold": fields.number("threshold", family.get("threshold", 0.9), high=1.0),
        "block_length": fields.integer("block_length", width, low=low, high=most),
    }
    if spec["mask"] == "full":
        found |= _full_attention_defaults(fields, family)
        return found | _strategy_defaults(fields, family)
    for name, most in (("steps", 2**31 - 1), ("max_post_steps", 1000), ("sub_block", width)):
        if fields.get(name, family.get(name)) is not None:
            found[name] = fields.integer(name, family.get(name), low=0, high=most)
    if fields.get("edit_threshold", family.get("edit_threshold")) is not None:
        found["edit_threshold"] = fields.number(
            "edit_threshold", family.get("edit_threshold"), high=1.0
        )
    found |= _strategy_defaults(fields, family)
    if family.get("fixed_schedule"):
        found["fixed_schedule"] = True
    return found


def _strategy_defaults(fields: Fields, family: Mapping[str, Any]) -> dict[str, Any]:
    """Which masked positions are accepted, beside the threshold."""
    found: dict[str, Any] = {}
    strategy = fields.get("strategy", family.get("strategy"))
    if strategy is not None:
        if strategy not in STRATEGIES:
            reason = f"{strategy!r} is none of {', '.join(STRATEGIES)}"
            raise fields.refuse("strategy", reason)
        found["strategy"] = strategy
    for name in ("factor", "entropy_bound"):
        if fields.get(name, family.get(name)) is not None:
            found[name] = fields.number(name, family.get(name), high=1e6)
    return found


def _full_attention_defaults(fields: Fields, family: Mapping[str, Any]) -> dict[str, Any]:
    """Options of decoding with full attention, as far as anybody has a word on them."""
    found: dict[str, Any] = {}
    for name, known in FULL_NAMES.items():
        value = fields.get(name, family.get(name))
        if value is not None and value not in known:
            raise fields.refuse(name, f"{value!r} is none of {', '.join(known)}")
        if value is not None:
            found[name] = value
    for name, high in FULL_NUMBERS.items():
        if fields.get(name) is not None:
            found[name] = fields.number(name, high=high)
    if fields.get("steps") is not None:
        found["steps"] = fields.integer("steps", low=0)
    if family.get("fixed_schedule"):
        found["fixed_schedule"] = True
    return found


def _canvas_defaults(
    fields: Fields, spec: Mapping[str, Any], family: Mapping[str, Any]
) -> dict[str, Any]:
    """Of blocks that start as random ids; their temperature falls from ``t_max`` to ``t_min``."""
    sampler = fields.section("sampler_config")
    sampler.only("_cls_name", "EntropyBoundSamplerConfig")
    width = spec["block_size"]
    found = {
        "block_length": fields.integer("block_length", width, high=width),
        "steps": fields.integer("max_denoising_steps", family["steps"]),
        "t_min": fields.number("t_min", family["t_min"], high=1e6),
        "t_max": fields.number("t_max", family["t_max"], high=1e6),
        "entropy_bound": sampler.number("entropy_bound", family["entropy_bound"], high=1e6),
        "stability_threshold": fields.integer(
            "stability_threshold", family["stability_threshold"], low=0
        ),
        "confidence_threshold": fields.number(
            "confidence_threshold", family["confidence_threshold"], high=1e6
        ),
    }
    if found["t_max"] < found["t_min"]:
        raise fields.refuse("t_max", f"{found['t_max']:g} is below t_min {found['t_min']:g}")
    return found


def generation_fields(checkpoint: Checkpoint) -> Fields:
    """The release's generation configuration; empty without one."""
    name = "generation_config.json"
    return Fields(checkpoint.path / name, checkpoint.optional_json(name))


def _tokenizer_ids(checkpoint: Checkpoint) -> dict[str, int] | None:
    """Token to id of ``tokenizer.json``, added tokens included; None without the file."""
    path = checkpoint.path / "tokenizer.json"
    data = checkpoint.optional_json("tokenizer.json")
    if not data:
        return None
    model = Fields(path, data).section("model")
    vocab = model.get("vocab", {})
    added = data.get("added_tokens") or []
    if not isinstance(vocab, (dict, list)) or not isinstance(added, list):
        raise CheckpointError(str(path), "model.vocab", "is not a table of tokens")
    pairs: list[tuple[Any, Any]]
    if isinstance(vocab, dict):
        pairs = list(vocab.items())
    else:  # Unigram: [[token, score], ...] in id order
        pairs = [(e[0], i) for i, e in enumerate(vocab) if isinstance(e, list) and e]
    pairs = [*pairs, *((t.get("content"), t.get("id")) for t in added if isinstance(t, dict))]
    for token, number in pairs:
        if not isinstance(token, str) or type(number) is not int:
            raise CheckpointError(
                str(path), "model.vocab", f"token {token!r} has the id {number!r}"
            )
    return dict(pairs)
