"""What a grammar costs in forwards, on the demo model, beside decoding without one.

    python benches/constrained.py [--schemas N]      # needs the extra `grammar`

Prints a table: tokens a forward and forwards an answer, by mode. The requests are held-out ones
that end in tool calls; the schemas are random (benches/schemas.py) and nothing that the model has
been trained on.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from schemas import random_schema, response_format

import clover_edge
from clover_edge import demo
from clover_edge.constrained.calls import json_calls, xml_calls
from clover_edge.corpus import task_rows

MODES = ("diffusion", "ar", "speculative")
BUDGET = 256
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "set_temperature",
            "parameters": {
                "type": "object",
                "properties": {
                    "room": {"type": "string"},
                    "degrees": {"type": "integer", "minimum": 5, "maximum": 35},
                },
                "required": ["room", "degrees"],
            },
        },
    }
]


def cases(requests: list[str], schemas: int) -> Iterator[tuple[str, list[tuple[str, Any]]]]:
    """Names of rows, and their requests with response formats."""
    rng = random.Random("costs")
    formats = [response_format(random_schema(rng)) for _ in range(schemas)]
    xml, hermes = xml_calls(TOOLS), json_calls(TOOLS)
    yield "no grammar, tool calls as trained", [(text, None) for text in requests]
    yield "forced calls, the trained form (XML)", [(text, xml) for text in requests]
    yield "forced calls, another form (JSON)", [(text, hermes) for text in requests]
    yield (
        "random JSON schemas",
        [(requests[i % len(requests)], each) for i, each in enumerate(formats)],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--schemas", type=int, default=40, metavar="N", help="random schemas")
    arguments = parser.parse_args()
    rows = task_rows("combinations")
    requests = [row["request"] for row in rows if "set_temperature" in str(row)][:20]
    print("| | mode | tokens a forward | forwards an answer |\n| --- | --- | --- | --- |")
    with demo.pack() as folder, clover_edge.load(f"{folder}/model") as model:
        for name, asked in cases(requests, arguments.schemas):
            for mode in MODES:
                tokens = forwards = 0
                for text, form in asked:
                    messages = [{"role": "user", "content": text}]
                    result = model.generate(
                        messages, mode=mode, response_format=form, max_new_tokens=BUDGET
                    )
                    tokens += result.counters.tokens
                    forwards += result.counters.forward_passes
                share, each = tokens / forwards, forwards / len(asked)
                print(f"| {name} | `{mode}` | {share:.2f} | {each:.1f} |", flush=True)


if __name__ == "__main__":
    main()
