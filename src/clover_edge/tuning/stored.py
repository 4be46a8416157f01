"""Plans of models on this machine: made once, kept in the user's cache folder."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..corpus import TASK_SETS, task_rows
from ..demo import is_demo
from ..errors import ArgumentError
from ..generation import QUALITIES, GenerationConfig
from .planner import Plan, tune

if TYPE_CHECKING:
    from ..model import Model

NEW_TOKENS = 48  # of a generation that is measured
_PROMPTS = (
    "Write a Python function that parses an ISO 8601 date and returns year, month and day.",
    "Explain in a few sentences how a heat pump works.",
    "Plan a three-day trip to a city by the sea. Answer as a list.",
)


def plan_for(
    model: Model,
    quality: str,
    *,
    prompts: Sequence[str] | None = None,
    new: bool = False,
    new_tokens: int = NEW_TOKENS,
    progress: Callable[[str], None] = lambda _: None,
) -> Plan:
    """The plan kept for this model on this machine, else (or if `new`) one that is made now.

    `prompts`: to measure acceptance on; left out, some of the package's. Raises ArgumentError for
    an unknown quality.
    """
    if quality not in QUALITIES:
        raise ArgumentError(f"quality: {quality!r} is none of {', '.join(map(repr, QUALITIES))}")
    path = _folder() / f"{_key(model, quality)}.json"
    kept = None if new else _read(path)
    if kept is not None:
        return kept

    ids = prompt_ids(model, prompts)
    with model.exclusive():
        plan = tune(
            model.core,
            model.spec,
            model.generation,
            ids,
            quality=quality,
            core_options=core_options(model, new_tokens),
            progress=progress,
        )
    _write(path, plan)
    return plan


def core_options(
    model: Model, new_tokens: int = NEW_TOKENS
) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Turns generation options into the core's, for answers of so many tokens."""

    def resolve(options: Mapping[str, Any]) -> dict[str, Any]:
        config = GenerationConfig.resolve(
            str(model.path / "config.json"), model.spec, model.generation, **options
        )
        return config.core_options(new_tokens)

    return resolve


def prompt_ids(model: Model, prompts: Sequence[str] | None = None) -> list[list[int]]:
    """Token ids of `prompts`; left out, of some of the package's that suit the model."""
    return [_prompt_ids(model, text) for text in prompts or _texts(model)]


def _texts(model: Model) -> Sequence[str]:
    if not is_demo(model.codec):
        return _PROMPTS
    return [row["request"] for name in TASK_SETS for row in task_rows(name)[:4]]


def _prompt_ids(model: Model, text: str) -> list[int]:
    if model.has_chat_template:
        return model.chat_prompt([{"role": "user", "content": text}])
    return model.tokenize(text)


def _folder() -> Path:
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "clover-edge" / "plans"


def _key(model: Model, quality: str) -> str:
    """Differs by machine, threads, instruction set, model and version."""
    files = [(file.name, file.stat().st_size) for file in model.files]
    core = model.core
    machine = (platform.machine(), _processor(), os.cpu_count(), core.threads, core.isa)
    told = [__version__, machine, model.spec, model.generation, files, quality]
    text = json.dumps(told, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            return next((line for line in file if line.startswith("model name")), "")
    except OSError:
        return platform.processor()


def _read(path: Path) -> Plan | None:
    """None for a file that is not there or is none of ours: a plan can be made again."""
    try:
        return Plan.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError):
        return None


def _write(path: Path, plan: Plan) -> None:
    """A cache that cannot be written is no reason to fail."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", dir=path.parent, suffix=".partial", delete=False, encoding="utf-8"
        ) as file:
            json.dump(plan.to_dict(), file)
        os.replace(file.name, path)
    except OSError:
        return
