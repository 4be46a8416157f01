"""Write the held-out tasks of the agent example: `python held_out_tasks.py`.

Ten a goal: five of known values in new combinations, five of values that training never sees.
They come from text seeds, and training drops any request that is among them.
"""

from __future__ import annotations

import json
import random
from typing import Any

from episodes import Episode, draw_values, office, play, word
from goals import GOALS
from held_out import TASKS, normalise

EACH = 5  # of a goal and of a kind of values
MADE_UP_SHARE = {"known": 0.0, "new": 0.5}


def row(episode: Episode, number: int, values: str) -> dict[str, Any]:
    """A task as the agent's world takes it; how to do it is left out."""
    return {
        "id": f"{episode.goal.name}-{number}",
        "steps": episode.goal.steps,
        "values": values,
        "request": episode.request,
        "data": episode.data,
        "changes": episode.changes,
        "facts": episode.facts,
    }


def held_out_tasks() -> list[dict[str, Any]]:
    """The tasks in order: goal by goal, known values first."""
    rows: list[dict[str, Any]] = []
    taken: set[str] = set()
    for goal in GOALS:
        rng = random.Random(f"held-out tasks: {goal.name}")
        for number in range(2 * EACH):
            kind = "known" if number < EACH else "new"
            request, new = "", kind == "new"
            while not request or normalise(request) in taken:
                drawn = draw_values(rng, goal, MADE_UP_SHARE[kind], new)
                request, values = word(rng, goal, drawn, wide=False)
            taken.add(normalise(request))
            done = play(goal, request, values, office(rng, goal, values))
            rows.append(row(done, number + 1, kind))
    return rows


def main() -> None:
    """Rewrite the file."""
    rows = held_out_tasks()
    TASKS.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    print(f"{TASKS}: {len(rows)} tasks")


if __name__ == "__main__":
    main()
