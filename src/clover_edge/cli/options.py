"""Options that commands share. Their names are the Python ones with dashes."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..backends import BACKENDS
from ..errors import ArgumentError
from ..generation import FULL_NAMES, MODES, QUALITIES, STRATEGIES

if TYPE_CHECKING:
    from ..model import Model

_OPTIONS: tuple[tuple[str, type, str], ...] = (
    ("max-new-tokens", int, "tokens to generate at most (default: 256, or what the context holds)"),
    ("block-length", int, "positions denoised together"),
    ("threshold", float, "accept a position above this probability; 1.0: one token a forward"),
    ("steps", int, "denoising steps a block may take; 0: as many as it needs"),
    ("edit-threshold", float, "replace accepted tokens where another is above this probability"),
    ("max-post-steps", int, "steps of a block that is edited behind its last mask"),
    ("sub-block", int, "positions of a block finished before those behind them; 0: all at once"),
    ("factor", float, "accept the n likeliest, the n-th being at least 1 - F / (n + 1); 0: off"),
    ("credit", float, "believe tokens more that led in earlier steps, by this weight; 0: do not"),
    (
        "entropy-bound",
        float,
        "accept positions while the entropies of those surer sum to at most it",
    ),
    ("eps", float, "full attention: Dream's schedule, from 1 to EPS over --steps"),
    ("confidence-temperature", float, "full attention: draw what is accepted first; 0: do not"),
    ("stop-penalty", float, "full attention: subtracted from the logits of stop tokens"),
    ("t-min", float, "temperature of a block's last steps, where blocks start as random ids"),
    ("t-max", float, "and of its first ones"),
    ("stability-threshold", int, "steps without change that end a block, if it is sure"),
    ("confidence-threshold", float, "mean nats of a position below which a block is sure"),
    ("temperature", float, "0: greedy"),
    ("top-k", int, "sample among the K likeliest tokens; 0: all"),
    ("top-p", float, "sample among the likeliest tokens that sum to P"),
    ("seed", int, "of the sampling"),
    ("presence-penalty", float, "subtracted from tokens that the answer holds already"),
    ("frequency-penalty", float, "subtracted once per occurrence in the answer"),
    ("repetition-penalty", float, "divides the logits of tokens that the answer holds already"),
    ("coreset-size", int, "experts that a block may use; 0: all"),
    (
        "coreset-share",
        float,
        "of the experts that later steps would choose, the share they use; 0: all",
    ),
    ("refresh", int, "with --skip-rows: every REFRESH steps none is left out; 0: never"),
)


def add_generation_options(parser: argparse.ArgumentParser) -> None:
    """The options of generate(); what is left out comes from the model's own defaults."""
    group = parser.add_argument_group("generation (defaults: the model's own)")
    for name, kind, text in _OPTIONS:
        group.add_argument(f"--{name}", type=kind, help=text, metavar=name.split("-")[-1].upper())
    group.add_argument(
        "--skip-rows",
        action="store_true",
        default=None,
        help="leave decided positions out of the steps: faster, approximate",
    )
    group.add_argument(
        "--quality",
        choices=QUALITIES,
        help="choose mode, width and approximations for this machine (see: tune)",
    )
    group.add_argument("--stop", action="append", metavar="TEXT", help="end in front of TEXT")
    group.add_argument(
        "--strategy", choices=STRATEGIES, help="which masked positions a step accepts"
    )
    group.add_argument(
        "--mode",
        choices=MODES,
        help="ar: one token a forward, same weights; speculative: its text, drafted by blocks",
    )
    for name, text in (("cache", "what steps share"), ("confidence", "what is accepted first")):
        group.add_argument(f"--{name}", choices=FULL_NAMES[name], help=f"full attention: {text}")


def generation_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Those that were given, as keyword arguments."""
    names = [name.replace("-", "_") for name, _, _ in _OPTIONS] + [
        "stop",
        "mode",
        "skip_rows",
        "quality",
        *FULL_NAMES,
        "strategy",
    ]
    given = {name: getattr(arguments, name) for name in names}
    return {name: value for name, value in given.items() if value is not None}


def add_runtime_options(parser: argparse.ArgumentParser) -> None:
    """Threads, instruction set and caches."""
    group = parser.add_argument_group("runtime")
    group.add_argument("--threads", type=int, metavar="N", help="default: all this process may use")
    group.add_argument("--isa", metavar="NAME", help="force an instruction set (see: devices)")
    group.add_argument(
        "--kv", choices=("f32", "f16", "int8"), default="f32", help="how keys and values are kept"
    )


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """What a model of the user's own is opened with; `open_model` takes it."""
    parser.add_argument(
        "--drafter", metavar="FOLDER", help="a packed drafter for MODEL: the same text, sooner"
    )
    add_backend_options(parser)


def add_backend_options(parser: argparse.ArgumentParser) -> None:
    """Who computes the passes."""
    parser.add_argument(
        "--backend", choices=BACKENDS, help="onnxruntime: MODEL is an ONNX folder (default: core)"
    )
    parser.add_argument(
        "--provider",
        action="append",
        metavar="NAME",
        help="of onnxruntime, the first choice first (default: CPUExecutionProvider)",
    )


def open_model(arguments: argparse.Namespace, path: str | Path) -> Model:
    """The model of a command with runtime and model options. Errors: `load`."""
    from ..model import load

    names = ("threads", "isa", "kv", "drafter", "backend")
    given = {name: value for name in names if (value := getattr(arguments, name)) is not None}
    return load(path, providers=arguments.provider, **given)


def add_chat_options(parser: argparse.ArgumentParser) -> None:
    """What the chat template is given beside the messages."""
    parser.add_argument("--system", metavar="TEXT", help="a system message")
    parser.add_argument(
        "--tools", type=Path, metavar="FILE", help="JSON: a list of tools, in OpenAI's form"
    )
    parser.add_argument(
        "--thinking",
        action=argparse.BooleanOptionalAction,
        help="whether the model is to think first (default: the chat template's choice)",
    )


def read_tools(path: Path | None) -> list[dict[str, Any]]:
    """The tools of a file; ArgumentError naming the file and what is wrong."""
    from ..chat import checked_tools

    if path is None:
        return []
    try:
        return checked_tools(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ArgumentError(f"tools: {path}: {error.strerror or error}") from None
    except ArgumentError as error:
        raise ArgumentError(f"tools: {path}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise ArgumentError(f"tools: {path}: is no JSON: {error}") from None
