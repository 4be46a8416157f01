"""Checkpoints that ask for what is not served, or do not say what is needed: typed errors that name
the key and say what would do. Every model type's tiny checkpoint is spoiled in turn."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from checks.row import Check, Context, Row

from clover_edge.errors import CheckpointError, CloverError, UnsupportedModelError
from clover_edge.export import Checkpoint, plan_export

UNKNOWN = "unheard_of"
ROUTER_KEYS = ("score_function", "scoring_func", "router_type")

Config = dict[str, Any]
# What to do to a folder with that configuration; the words that the error must have, none where
# the checkpoint has nothing to spoil.
Spoil = Callable[[Path, Config], tuple[str, ...]]


def _unknown_type(folder: Path, config: Config) -> tuple[str, ...]:
    from families import REGISTERED

    _save(folder, {**config, "model_type": UNKNOWN, "architectures": [UNKNOWN]})
    return ("model_type", UNKNOWN, *REGISTERED)


def _unknown_router(folder: Path, config: Config) -> tuple[str, ...]:
    keys = [key for key in ROUTER_KEYS if key in config]
    if not keys:
        return ()
    _save(folder, {**config, keys[0]: UNKNOWN})
    return (keys[0], UNKNOWN, config[keys[0]])


def _unknown_rope(folder: Path, config: Config) -> tuple[str, ...]:
    unknown = {"rope_type": UNKNOWN, "factor": 2.0}
    text = config.get("text_config", config)
    if "full_attention" in text.get("rope_parameters", ()):  # a rotation for each kind of layer
        kinds = {**text["rope_parameters"], "full_attention": unknown}
        scaling: Config = {"rope_parameters": kinds}
    else:
        scaling = {"rope_scaling": unknown}
    if "text_config" in config:
        scaling = {"text_config": {**text, **scaling}}
    _save(folder, {**config, **scaling})
    return ("rope_type", UNKNOWN, "default", "linear", "yarn")


def _no_mask(folder: Path, config: Config) -> tuple[str, ...]:
    """Nor a tokenizer that could name it."""
    if "mask_token_id" not in config:
        return ()
    _save(folder, {key: value for key, value in config.items() if key != "mask_token_id"})
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    return ("mask_token_id", "generation_config.json", "tokenizer")


def _save(folder: Path, config: Config) -> None:
    (folder / "config.json").write_text(json.dumps(config))


def _check(label: str, kind: type[CloverError], spoil: Spoil) -> Check:
    def check(context: Context) -> Iterator[Row]:
        from families import BY_TYPE, REGISTERED, write

        asked, wrong = 0, list[str]()
        for model_type in (name for name in REGISTERED if name in BY_TYPE):
            folder = context.scratch / "spoiled"
            write(folder, model_type)
            words = spoil(folder, json.loads((folder / "config.json").read_text()))
            if words:
                asked, wrong = asked + 1, [*wrong, *_complaints(folder, model_type, kind, words)]
            shutil.rmtree(folder)
        note = "; ".join(wrong) or kind.__name__
        figure, bound = f"{asked - len(wrong)} of {asked}", "all"
        yield Row(f"{label}: typed error, key and choices named", figure, bound, not wrong, note)

    check.__name__ = label.replace(" ", "_")
    return check


def _complaints(
    folder: Path, model_type: str, kind: type[CloverError], words: tuple[str, ...]
) -> Iterator[str]:
    """What is wrong with the error, if anything."""
    try:
        with Checkpoint(folder) as checkpoint:
            plan_export(checkpoint)
        yield f"{model_type}: is read"
    except CloverError as error:
        missing = [word for word in words if word not in str(error)]
        if type(error) is not kind or missing:
            yield f"{model_type}: {type(error).__name__} without {', '.join(missing)}"


CHECKS: list[Check] = [
    _check("unknown model_type", UnsupportedModelError, _unknown_type),
    _check("unknown router type", UnsupportedModelError, _unknown_router),
    _check("unknown rope type", UnsupportedModelError, _unknown_rope),
    _check("missing mask id", CheckpointError, _no_mask),
]
