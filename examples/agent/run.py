"""Run a model through the held-out tasks: `python run.py [MODEL]`, or `--url` for a server.

Starts `clover-edge serve MODEL` (without one: the bundled demo model) and talks to it with the
`openai` client, as one would to any other server.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import openai
from agent import Ask, Message, Outcome, run_task, transcript
from world import tools

TASKS = Path(__file__).parent / "tasks.jsonl"


def read_tasks(limit: int | None) -> list[dict[str, Any]]:
    """The held-out tasks, or `limit` of them spread over all kinds."""
    tasks = [json.loads(line) for line in TASKS.read_text(encoding="utf-8").splitlines()]
    return tasks if limit is None else tasks[:: max(1, len(tasks) // limit)][:limit]


@contextmanager
def served(model: str | None) -> Iterator[str]:
    """A server of a packed model on a free port; yields its URL and ends it afterwards."""
    command = [sys.executable, "-m", "clover_edge.cli.main", "serve", "--port", "0", "--quiet"]
    process = subprocess.Popen(
        [*command, *filter(None, [model])], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    said: list[str] = []
    try:
        for line in process.stderr:
            said.append(line)
            if " at http" in line:
                yield line.split(" at ")[1].split()[0]
                break
        else:
            raise SystemExit("".join(said))
    finally:
        process.terminate()
        process.wait()
        process.stderr.close()


def client_of(url: str) -> Ask:
    """Asks the model behind a URL for the next message of a chat."""
    client = openai.OpenAI(base_url=f"{url.rstrip('/')}/v1", api_key="none")
    model = client.models.list().data[0].id

    def ask(messages: list[Message]) -> Message:
        answer = client.chat.completions.create(
            model=model, messages=messages, tools=tools(), temperature=0, max_tokens=200
        )
        return answer.choices[0].message.model_dump(exclude_none=True)

    return ask


def report(outcomes: list[Outcome]) -> str:
    """Success and time, of all tasks and by what they need."""
    lines = [f"{'tasks':<24}{'done':>14}{'median time':>14}"]
    groups = {"all": outcomes}
    for key in ("steps", "values"):
        for value in dict.fromkeys(o.task[key] for o in outcomes):
            name = f"{value} step" if key == "steps" else f"{value} values"
            groups[name] = [o for o in outcomes if o.task[key] == value]
    for name, group in groups.items():
        done = sum(o.done for o in group)
        share = f"{done}/{len(group)} {done / len(group):6.1%}"
        time = f"{statistics.median(o.seconds for o in group) * 1000:.0f} ms"
        lines.append(f"{name:<24}{share:>14}{time:>14}")
    return "\n".join(lines)


def run_tasks(url: str, limit: int | None = None) -> Iterator[Outcome]:
    """Each task in turn, against the server at a URL."""
    ask = client_of(url)
    for task in read_tasks(limit):
        yield run_task(task, ask)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", help="a packed folder (default: the bundled demo)")
    parser.add_argument("--url", help="a running server instead")
    parser.add_argument("--limit", type=int, metavar="N", help="only N tasks")
    parser.add_argument("--show", choices=["failed", "all"], help="print what was done")
    args = parser.parse_args()
    outcomes = []
    with served(args.model) if args.url is None else nullcontext(args.url) as url:
        for outcome in run_tasks(url, args.limit):
            outcomes.append(outcome)
            if args.show == "all" or (args.show and not outcome.done):
                print(transcript(outcome), end="\n\n")
    print(report(outcomes))


if __name__ == "__main__":
    main()
