"""clover-edge: run quantised block-diffusion language models on this machine.

stdout is data, stderr is progress. Exit codes: 0 done, 1 failed, 2 wrong usage or argument,
130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from .. import __version__
from ..errors import ArgumentError, CloverError, ContextLengthError
from . import bench, chat, demo, devices, doctor, evaluate, inspect, run, serve, tune

_COMMANDS = (demo, run, chat, serve, bench, tune, evaluate, inspect, devices, doctor)


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser(
        prog="clover-edge",
        description="Run quantised block-diffusion language models on this machine.",
        epilog="clover-export makes the packed folder that MODEL names.",
    )
    top.add_argument("--version", action="version", version=f"clover-edge {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in _COMMANDS:
        command.add_parser(commands)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    arguments = _parsed(argv)
    try:
        code: int = arguments.handler(arguments)
        sys.stdout.flush()  # a full disk or a closed pipe shows here, not at exit
        return code
    except (ArgumentError, ContextLengthError) as error:
        return _fail(error, 2)
    except CloverError as error:
        return _fail(error, 1)
    except KeyboardInterrupt:
        print("\nclover-edge: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader has what it wanted (`| head`). Nothing may be written to the pipe at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return _fail(error, 1)


def _parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments. Older versions of argparse give up an optional PROMPT as soon as an option
    follows MODEL, and then know nothing of it behind the option."""
    top = parser()
    arguments, rest = top.parse_known_args(argv)
    if arguments.command == "run" and arguments.prompt is None and len(rest) == 1:
        late = rest[0] == "-" or not rest[0].startswith("-")
        arguments.prompt = rest.pop() if late else None
    if rest:
        top.error(f"unrecognized arguments: {' '.join(rest)}")
    return arguments


def _fail(error: Exception, code: int) -> int:
    line = " ".join(str(error).split())
    print(f"clover-edge: error: {line}".encode(errors="replace").decode(), file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
