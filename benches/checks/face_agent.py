"""The demo model at work: the agent example's held-out tasks, over the server."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator

from checks.row import ROOT, Context, Row, Skipped, at_least

RECIPE = "int4"
DONE_PERCENT = 90


def demo_model_in_the_agent_example(context: Context) -> Iterator[Row]:
    """Runs every task (or `--limit` of them) through `clover-edge serve` and the openai client."""
    try:
        import fastapi  # noqa: F401 - the server's
        import openai  # noqa: F401 - the client's
    except ModuleNotFoundError as error:
        raise Skipped(f"needs {error.name}: pip install 'clover-edge[server,test]'") from None
    sys.path.insert(0, str(ROOT / "examples" / "agent"))
    from run import run_tasks, served

    with served(str(context.demo_model(RECIPE))) as url:
        outcomes = list(run_tasks(url, context.limit))
    done = sum(outcome.done for outcome in outcomes)
    median = statistics.median(outcome.seconds for outcome in outcomes)
    yield at_least(
        f"demo model, {RECIPE}, in the agent example: held-out tasks done",
        100 * done / len(outcomes),
        DONE_PERCENT,
        "{:.1f}",
        " %",
        f"n = {len(outcomes)}, median {1000 * median:.0f} ms a task",
    )


CHECKS = [demo_model_in_the_agent_example]
