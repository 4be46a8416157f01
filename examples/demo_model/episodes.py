"""Episodes of the agent example: a goal, the office it plays in, and every turn of a right answer.

Each assistant turn is an example of its own for training: everything before it is the prompt.
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from generate import Call, Clause, Segment, add_noise, compile_template, format_answer, wrap
from goals import GOALS, Goal
from solvers import Values
from vocabulary import fill, pick

sys.path.insert(0, str(Path(__file__).parents[1] / "agent"))
from world import RATES, World

Message = dict[str, Any]

ORDER_STATES = ["shipped", "delivered", "lost", "delayed", "packed", "damaged", "returned"]
EVENT_STATES = ["confirmed", "cancelled", "postponed", "fully booked", "moved online", "delayed"]
LOCAL_KINDS = {"order_state": ORDER_STATES, "rate": list(RATES)}
MISSING_SHARE = 0.05  # of the episodes ask for something that the office does not have
MULTI_SHARE = 0.75
SOLD_OUT_SHARE = 0.3  # of courses and items


@dataclass
class Episode:
    """A task and how it is done: `turns` are the assistant's, `messages` all of them in order."""

    goal: Goal
    request: str
    values: Values
    data: dict[str, Any]
    messages: list[Message]
    turns: list[tuple[int, str]]  # (messages before it, its text)
    changes: list[dict[str, str]]
    facts: list[str]


# --- the request -----------------------------------------------------------------------------

COMPILED = {
    goal.name: [compile_template(template, goal.slots) for template in goal.templates]
    for goal in GOALS
}


def draw_values(rng: random.Random, goal: Goal, share: float, new_values: bool) -> Values:
    """A different value for each slot."""
    values: Values = {}
    for key, kind in goal.slots.items():
        value = ""
        while not value or value in values.values():
            local = LOCAL_KINDS.get(kind)
            value = pick(rng, local) if local else fill(rng, kind, share, new_values)
        values[key] = value
    return values


def render(rng: random.Random, nodes: list, values: Values) -> list[Segment]:
    """One expansion of a template; a slot's segment carries its key."""
    segments: list[Segment] = []
    for node in nodes:
        if isinstance(node, str):
            segments.append([node, None])
        elif isinstance(node, list):
            segments += render(rng, pick(rng, node), values)
        else:
            segments.append([values[node[0]], (0, node[0])])
    return segments


def word(rng: random.Random, goal: Goal, values: Values, wide: bool) -> tuple[str, Values]:
    """A request for a goal, and its values as they are spelt in it."""
    mood, nodes = pick(rng, COMPILED[goal.name])
    segments = wrap(rng, [Clause(None, mood, render(rng, nodes, values), True)], wide)
    add_noise(rng, segments)
    spelt = {slot[1]: text for text, slot in segments if slot is not None}
    return "".join(text for text, _ in segments), spelt


# --- the office ------------------------------------------------------------------------------


def digits(rng: random.Random, count: int) -> str:
    """A number of so many digits, the first of which is not 0."""
    return str(rng.randrange(10 ** (count - 1), 10**count))


def customer(rng: random.Random, data: dict, name: str, unpaid: int) -> None:
    """A customer with so many unpaid invoices and at most one that is paid."""
    row = {"id": f"C{digits(rng, 4)}", "name": name, "phone": digits(rng, 7)}
    data["customers"].append({**row, "city": fill(rng, "city", 0.2)})
    states = ["unpaid"] * unpaid + ["paid"] * (1 if unpaid == 0 else rng.random() < 0.5)
    rng.shuffle(states)
    for status in states:
        invoice = {"number": f"I{digits(rng, 4)}", "customer": row["id"], "status": status}
        data["invoices"].append({**invoice, "amount": digits(rng, rng.choice((2, 3)))})


def add_row(rng: random.Random, data: dict, goal: Goal, key: str, values: Values) -> None:
    """What the office knows about the value of one slot."""
    value, gone = values[key], rng.random() < SOLD_OUT_SHARE
    if key == "customer":
        customer(rng, data, value, rng.choice(goal.unpaid))
    elif key == "course":
        seats = "0" if gone else str(rng.randint(1, 30))
        data["courses"].append({"title": value, "day": fill(rng, "weekday", 0), "seats": seats})
    elif key == "event":
        day, time = fill(rng, "weekday", 0), fill(rng, "time", 0)
        status = pick(rng, EVENT_STATES)
        data["events"].append({"title": value, "status": status, "day": day, "time": time})
    elif key in ("item", "other"):
        stock = "0" if gone and goal.name != "buy" else str(rng.randint(1, 40))
        row = {"name": value, "price": str(rng.randint(1, 60)), "stock": stock}
        data["products"].append(row)
    elif key == "order":
        same = "state" in values and rng.random() < 0.5
        status = values["state"].lower() if same else pick(rng, ORDER_STATES)
        data["orders"].append({"number": value, "status": status, "total": digits(rng, 2)})


def office(rng: random.Random, goal: Goal, values: Values) -> dict[str, Any]:
    """The data of a task: what it is about and, of the same kinds, something it is not about."""
    tables = ("customers", "invoices", "courses", "events", "products", "orders")
    data: dict[str, Any] = {table: [] for table in tables}
    other = draw_values(rng, goal, 0.3, False)
    missing = rng.random() < MISSING_SHARE
    for key in goal.slots:
        if not missing:
            add_row(rng, data, goal, key, values)
        if all(other[key].casefold() != value.casefold() for value in values.values()):
            add_row(rng, data, goal, key, other)
    return {**data, "next": digits(rng, 4)}


# --- the turns -------------------------------------------------------------------------------


def calls_message(calls: list[Call]) -> Message:
    """An assistant's message of calls, as the OpenAI API has it (arguments as a mapping)."""
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"type": "function", "function": dict(c)} for c in calls],
    }


def play(goal: Goal, request: str, values: Values, data: dict[str, Any]) -> Episode:
    """The episode in which the goal's solver does everything right."""
    world = World(data)
    messages: list[Message] = [{"role": "user", "content": request}]
    turns: list[tuple[int, str]] = []
    solver = goal.solve(values)
    calls = next(solver)
    while True:
        turns.append((len(messages), format_answer(calls)))
        messages.append(calls_message(calls))
        results = [world.call(c["name"], c["arguments"]) for c in calls]
        messages += [{"role": "tool", "content": result} for result in results]
        missing = [r for r in results if r.startswith("error: no such")]
        try:
            if missing:
                solver.close()
                answer, facts = f"Sorry: {missing[0][7:]}.", [missing[0][7:]]
                break
            calls = solver.send(results)
        except StopIteration as done:
            answer, facts = done.value
            break
    turns.append((len(messages), answer))
    messages.append({"role": "assistant", "content": answer})
    return Episode(goal, request, values, data, messages, turns, world.done, facts)


def episode(rng: random.Random, made_up_share: float) -> Episode:
    """Draw a task, put it in wider words than a held-out one, and play it."""
    steps = "multi" if rng.random() < MULTI_SHARE else "single"
    goal = pick(rng, [g for g in GOALS if g.steps == steps])
    request, values = word(rng, goal, draw_values(rng, goal, made_up_share, False), wide=True)
    return play(goal, request, values, office(rng, goal, values))
