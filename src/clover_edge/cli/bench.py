"""`clover-edge bench`: how fast a model is here, on synthetic tokens.

Tests: ppN reads a prompt of N tokens, blkN denoises one block of N tokens in a stated number of
steps, tgN writes N tokens. Fields are named as llama-bench names them.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterable
from typing import Any

from ..benchmark import STEPS
from ..errors import ArgumentError

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
        type=int,
        default=0,
        metavar="N",
        help="tokens in front of blocks and texts (default 0, which takes one)",
    )
    parser.add_argument(
        "--steps", type=int, default=STEPS, metavar="N", help=f"of a block (default {STEPS})"
    )
    parser.add_argument(
        *("-r", "--repetitions"), type=int, default=5, metavar="N", help="of a test (default 5)"
    )
    parser.add_argument(
        *("-o", "--output"), choices=FORMS, default="md", help="the form (default md)"
    )
    parser.add_argument(
        "--threads", type=int, metavar="N", help="default: all this process may use"
    )
    parser.add_argument("--isa", metavar="NAME", help="force an instruction set (see: devices)")
    parser.add_argument(
        "--kv", choices=("f32", "f16", "int8"), default="f32", help="how keys and values are kept"
    )
    parser.set_defaults(handler=_handle)


def _handle(arguments: argparse.Namespace) -> int:
    from ..benchmark import Benchmark, all_tests
    from ..loader import read_folder

    prompts, texts = (_numbers(name, getattr(arguments, name)) for name in ("n_prompt", "n_gen"))
    if arguments.n_depth < 0:
        raise ArgumentError(f"n_depth: {arguments.n_depth} is below 0")
    if arguments.threads is not None and not 1 <= arguments.threads <= 1024:
        raise ArgumentError(f"threads: {arguments.threads} is not an integer from 1 to 1024")
    bench = Benchmark(
        read_folder(arguments.model),
        threads=arguments.threads,
        isa=arguments.isa,
        kv=arguments.kv,
        repetitions=arguments.repetitions,
    )
    records = all_tests(bench, prompts, texts, arguments.steps, arguments.n_depth)
    _WRITERS[arguments.output](records)
    return 0


def _numbers(name: str, text: str) -> list[int]:
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        raise ArgumentError(f"{name}: {text!r} is no list of numbers") from None
    if min(numbers) < 0:
        raise ArgumentError(f"{name}: {min(numbers)} is below 0")
    return numbers


Records = Iterable[dict[str, Any]]


def _markdown(records: Records) -> None:
    """Rows as they are measured; mean and standard deviation of tokens a second."""
    print("| model | size | params | isa | threads | test | t/s | tokens/forward |")
    print("| --- | ---: | ---: | --- | ---: | --- | ---: | ---: |", flush=True)
    for record in records:
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
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def _csv(records: Records) -> None:
    """A line a test, under the names of all fields that any has but the single samples."""
    rows = [
        {name: value for name, value in record.items() if not isinstance(value, list)}
        for record in records
    ]
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(sys.stdout, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def _json(records: Records) -> None:
    print(json.dumps(list(records), indent=2))


def _jsonl(records: Records) -> None:
    for record in records:
        print(json.dumps(record), flush=True)


_WRITERS = {"md": _markdown, "csv": _csv, "json": _json, "jsonl": _jsonl}
