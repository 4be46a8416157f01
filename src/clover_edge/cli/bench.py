"""`clover-edge bench`: how fast a model is here, on synthetic tokens.

Tests: ppN reads a prompt of N tokens, blkN denoises one block of N tokens in a stated number of
steps, tgN writes N tokens in the model's own way, arN writes them one by one. Behind -d tokens a
test's name ends in "@ dN". Fields are named as llama-bench names them.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TextIO

from ..benchmark import STEPS
from ..errors import ArgumentError
from .options import add_backend_options

FORMS = ("md", "csv", "json", "jsonl")


def add_parser(commands: Any) -> None:
    """Adds the command to the command line."""
    parser = commands.add_parser(
        "bench",
        help="how fast a model is here",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", metavar="MODEL", help="a packed folder")
    parser.add_argument(
        *("-p", "--n-prompt"), default="512", metavar="N[,N]", help="prompts (default 512; 0: none)"
    )
    parser.add_argument(
        *("-n", "--n-gen"), default="128", metavar="N[,N]", help="texts (default 128; 0: none)"
    )
    parser.add_argument(
        *("-d", "--n-depth"),
        default="0",
        metavar="N[,N]",
        help="tokens in front of every test, such as 0,4096,32768 (default 0)",
    )
    parser.add_argument(
        "--steps", type=int, default=STEPS, metavar="N", help=f"of a block (default {STEPS})"
    )
    parser.add_argument(
        *("-r", "--repetitions"), type=int, default=5, metavar="N", help="of a test (default 5)"
    )
    parser.add_argument(
        "--delay", type=float, default=0, metavar="SECONDS", help="between tests, to cool down"
    )
    parser.add_argument(
        "--no-ceilings",
        action="store_true",
        help="do not measure what the machine does at most (which takes some seconds)",
    )
    parser.add_argument(
        *("-o", "--output"), choices=FORMS, default="md", help="the form on stdout (default md)"
    )
    parser.add_argument(
        *("-oe", "--output-err"), choices=FORMS, help="the form on stderr (default: none)"
    )
    parser.add_argument(
        "--threads", type=int, metavar="N", help="default: all this process may use"
    )
    parser.add_argument("--isa", metavar="NAME", help="force an instruction set (see: devices)")
    parser.add_argument(
        "--kv", choices=("f32", "f16", "int8"), default="f32", help="how keys and values are kept"
    )
    add_backend_options(parser)
    parser.set_defaults(handler=_handle)


def _handle(arguments: argparse.Namespace) -> int:
    from ..benchmark import Benchmark, all_tests
    from ..loader import read_folder

    prompts, texts, depths = (
        _numbers(name, getattr(arguments, name)) for name in ("n_prompt", "n_gen", "n_depth")
    )
    if arguments.threads is not None and not 1 <= arguments.threads <= 1024:
        raise ArgumentError(f"threads: {arguments.threads} is not an integer from 1 to 1024")
    if not 0 <= arguments.delay <= 3600:
        raise ArgumentError(f"delay: {arguments.delay:g} is outside [0, 3600]")
    bench = Benchmark(
        read_folder(arguments.model),
        threads=arguments.threads,
        isa=arguments.isa,
        kv=arguments.kv,
        backend=arguments.backend or "core",
        providers=arguments.provider,
        repetitions=arguments.repetitions,
        ceilings=not arguments.no_ceilings,
    )
    writers = [_WRITERS[arguments.output](sys.stdout)]
    if arguments.output_err:
        writers.append(_WRITERS[arguments.output_err](sys.stderr))
    records = all_tests(bench, prompts, texts, arguments.steps, depths, _skipped)
    try:
        for record in _delayed(records, arguments.delay):
            for writer in writers:
                writer.take(record)
    finally:  # a test that fails takes none of those before it away
        for writer in writers:
            writer.close()
    return 0


def _skipped(reason: str) -> None:
    print(f"skipped: {reason}", file=sys.stderr)


def _delayed(records: Iterable[dict[str, Any]], seconds: float) -> Iterator[dict[str, Any]]:
    for record in records:
        yield record
        time.sleep(seconds)


def _numbers(name: str, text: str) -> list[int]:
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        raise ArgumentError(f"{name}: {text!r} is no list of numbers") from None
    if min(numbers) < 0:
        raise ArgumentError(f"{name}: {min(numbers)} is below 0")
    return numbers


class _Markdown:
    """Rows as they are measured; mean and standard deviation of tokens a second."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        print("| model | size | params | isa | threads | test | t/s | tokens/forward |", file=out)
        print("| --- | ---: | ---: | --- | ---: | --- | ---: | ---: |", file=out, flush=True)

    def take(self, record: dict[str, Any]) -> None:
        forwards = record.get("tokens_per_forward")
        cells = (
            record["model_type"],
            f"{record['model_size'] / 2**20:.2f} MiB",
            f"{record['model_n_params'] / 1e6:.2f} M",
            record["isa"],
            record["n_threads"],
            record["test"],
            f"{record['avg_ts']:.2f} ± {record['stddev_ts']:.2f}",
            "" if forwards is None else f"{forwards:.2f}",
        )
        print("| " + " | ".join(map(str, cells)) + " |", file=self._out, flush=True)

    def close(self) -> None:
        """Nothing is left to say."""


class _Whole:
    """Forms that are written once all records are there."""

    def __init__(self, out: TextIO, write: Callable[[list[dict[str, Any]], TextIO], None]) -> None:
        self._out, self._write = out, write
        self._records: list[dict[str, Any]] = []

    def take(self, record: dict[str, Any]) -> None:
        self._records.append(record)

    def close(self) -> None:
        self._write(self._records, self._out)


class _Lines:
    """An object a line, as they are measured."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def take(self, record: dict[str, Any]) -> None:
        print(json.dumps(record), file=self._out, flush=True)

    def close(self) -> None:
        """Nothing is left to say."""


def _csv(records: list[dict[str, Any]], out: TextIO) -> None:
    """A line a test, under the names of all fields that any has but samples and the machine."""
    rows = [
        {name: value for name, value in record.items() if not isinstance(value, (list, dict))}
        for record in records
    ]
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(out, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def _json(records: list[dict[str, Any]], out: TextIO) -> None:
    print(json.dumps(records, indent=2), file=out)


_Writer = _Markdown | _Whole | _Lines
_WRITERS: dict[str, Callable[[TextIO], _Writer]] = {
    "md": _Markdown,
    "csv": lambda out: _Whole(out, _csv),
    "json": lambda out: _Whole(out, _json),
    "jsonl": _Lines,
}
