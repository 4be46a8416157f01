"""`clover-edge serve`: one model behind an OpenAI-compatible HTTP server."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from ..default_model import located
from ..errors import ArgumentError
from .options import (
    add_generation_options,
    add_model_options,
    add_runtime_options,
    generation_options,
    open_model,
)

if TYPE_CHECKING:
    from ..server.settings import Settings

DEMO_NAME = "clover-edge-demo"
_VARIABLE = "CLOVER_"  # in front of a flag's name: --api-key is CLOVER_API_KEY, too
_SWITCHES = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


_OPTIONS: tuple[tuple[str, type, str, str], ...] = (
    ("host", str, "HOST", "address to bind to (default: 127.0.0.1)"),
    ("port", int, "PORT", "default: 8080; 0: a free one"),
    ("name", str, "NAME", "the model's id (default: its folder's name)"),
    ("api-key", str, "KEY", "requests must bring it"),
    (
        "allow-hosts",
        str,
        "NAME,…",
        "other host names that requests may use when bound to this machine alone",
    ),
    ("queue", int, "N", "requests that may wait (default: 32)"),
    ("request-bytes", int, "N", "size of a request at most (default: 4 MiB)"),
    ("time-limit", float, "S", "seconds for one request (default: 600)"),
    ("max-tokens", int, "N", "tokens that a request may ask for"),
    (
        "prefix-bytes",
        int,
        "N",
        "memory for what earlier requests have computed (default: 1 GiB); 0: none",
    ),
    ("keep-alive", float, "S", "a comment in silent streams (default: 10)"),
    (
        "shutdown-limit",
        float,
        "S",
        "seconds for what is running when the server is told to end (default: 10)",
    ),
)


def add_parser(commands: Any) -> None:
    """Adds the command to the command line."""
    parser = commands.add_parser(
        "serve",
        help="an OpenAI-compatible HTTP server",
        description=__doc__,
        epilog="Every flag is also an environment variable: --api-key is CLOVER_API_KEY. "
        "Generation options are the defaults of requests that do not say otherwise.",
    )
    parser.add_argument(
        "model",
        metavar="MODEL",
        nargs="?",
        help="a packed folder (default: CLOVER_MODEL, else the demo)",
    )
    _add_server_options(parser)
    add_model_options(parser)
    add_runtime_options(parser)
    add_generation_options(parser)
    flags = [
        action for action in parser._actions if action.option_strings and action.dest != "help"
    ]
    for action in flags:
        action.default = None  # what is not given may come from the environment
    parser.set_defaults(handler=_handle, flags=flags)


def _add_server_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("server")
    for name, kind, metavar, text in _OPTIONS:
        group.add_argument(f"--{name}", type=kind, metavar=metavar, help=text)
    group.add_argument(
        "-q", "--quiet", action="store_true", default=None, help="no log of requests"
    )


def _handle(arguments: argparse.Namespace) -> int:
    _take_from(os.environ, arguments)
    try:
        from ..server.live import serve
    except ModuleNotFoundError as error:
        raise ArgumentError(
            f"serve: needs the package {error.name}: pip install 'clover-edge[server]'"
        ) from None
    settings = _settings(arguments)
    if not settings.is_local and settings.api_key is None:
        _say(f"warning: bound to {settings.host} without --api-key: whoever reaches it may use it")
    with ExitStack() as stack:
        stack.enter_context(_log_to_stderr(quiet=bool(arguments.quiet)))
        path, bundled = stack.enter_context(located(arguments.model))
        if bundled:
            settings = replace(settings, name=settings.name or DEMO_NAME)
            _say(f"no model named, serving the bundled demo model (packed to {path})")
        model = stack.enter_context(open_model(arguments, path))
        serve(model, settings, lambda url: _say(f"{path} at {url} (API below /v1, chat at /)"))
    return 0


def _take_from(environment: Mapping[str, str], arguments: argparse.Namespace) -> None:
    """Flags that were not given, from their variables; ArgumentError naming one that is wrong."""
    for action in arguments.flags:
        name = _VARIABLE + action.dest.upper()
        text = environment.get(name)
        if text is None or getattr(arguments, action.dest) is not None:
            continue
        try:
            value: Any = (
                _SWITCHES[text.lower()] if action.nargs == 0 else (action.type or str)(text)
            )
        except (KeyError, ValueError):
            raise ArgumentError(
                f"{name}: {text!r} is no value for {action.option_strings[-1]}"
            ) from None
        if action.choices is not None and value not in action.choices:
            raise ArgumentError(f"{name}: {text!r} is none of {', '.join(action.choices)}")
        if action.dest in ("stop", "provider"):
            value = [value]
        setattr(arguments, action.dest, value or None if action.nargs == 0 else value)


def _given(arguments: argparse.Namespace, names: Iterable[str]) -> dict[str, Any]:
    return {name: value for name in names if (value := getattr(arguments, name)) is not None}


def _settings(arguments: argparse.Namespace) -> Settings:
    from ..server.settings import Settings

    names = (field.name for field in fields(Settings) if field.name != "options")
    given = _given(arguments, names)
    if "allow_hosts" in given:
        given["allow_hosts"] = tuple(filter(None, given["allow_hosts"].split(",")))
    return Settings(**given, options=generation_options(arguments))


def _say(line: str) -> None:
    print(f"clover-edge: {line}", file=sys.stderr, flush=True)


@contextmanager
def _log_to_stderr(*, quiet: bool) -> Iterator[None]:
    logger = logging.getLogger("clover_edge.server")
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%dT%H:%M:%S"))
    logger.addHandler(handler)
    before = logger.level
    logger.setLevel(logging.WARNING if quiet else logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
