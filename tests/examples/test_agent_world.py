"""The agent example's world: what tools do, what they refuse, what counts as done."""

from __future__ import annotations

import json
from typing import Any

import pytest
from agent import TURNS, run_call, run_task, transcript
from held_out import TASKS
from world import SIGNATURES, World, judge, tools

DATA = {
    "customers": [{"id": "C1", "name": "Ada Bell", "city": "Oslo", "phone": "5550101"}],
    "invoices": [{"number": "I1", "customer": "C1", "amount": "90", "status": "unpaid"}],
    "courses": [
        {"title": "Logic", "day": "Monday", "seats": "3"},
        {"title": "Welding", "day": "Friday", "seats": "0"},
    ],
    "events": [{"title": "book club", "status": "moved", "day": "Friday", "time": "7 pm"}],
    "products": [{"name": "mugs", "price": "4", "stock": "9"}],
    "orders": [{"number": "K7", "status": "lost", "total": "31"}],
    "next": "8",
}
EUROS = {"source": "euros", "target": "yen"}


@pytest.mark.parametrize(
    ("name", "arguments", "result", "changes"),
    [
        ("find_customer", {"name": "ada bell"}, "id: C1\ncity: Oslo\nphone: 5550101", 0),
        ("list_invoices", {"customer": "C1"}, "I1: 90 euros, unpaid", 0),
        ("create_invoice", {"customer": "Ada Bell", "amount": "$5"}, "invoice: I8", 1),
        ("check_course", {"course": "Logic"}, "day: Monday\nseats: 3", 0),
        ("enroll_course", {"course": "Logic", "student": "Bo"}, "status: enrolled", 1),
        ("enroll_course", {"course": "Welding"}, "error: full", 0),
        ("event_status", {"title": "Book Club"}, "status: moved\nday: Friday\ntime: 7 pm", 0),
        ("add_event", {"title": "x", "day": "Friday"}, "status: added", 1),
        ("send_message", {"person": "Bo", "text": "hi"}, "status: sent", 1),
        ("take_note", {"text": "x"}, "status: saved", 1),
        ("get_price", {"item": "mugs"}, "price: 4 euros\nstock: 9", 0),
        ("order_status", {"order": "k7"}, "status: lost", 0),
        ("refund_order", {"order": "K7"}, "refund: 31 euros", 1),
        ("calculate", {"expression": "12 + 30"}, "42", 0),
        ("calculate", {"expression": "7 divided by 3"}, "2.33", 0),
        ("calculate", {"expression": "5 Percent Of 80"}, "4", 0),
        (
            "convert_currency",
            {"amount": "10", "source": "euros", "target": "yen"},
            "amount: 1600 yen",
            0,
        ),
    ],
)
def test_tools(name: str, arguments: dict[str, str], result: str, changes: int) -> None:
    world = World(DATA)
    assert world.call(name, arguments) == result
    assert len(world.done) == changes


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("fly", {}, "no tool fly"),
        ("take_note", {}, "take_note needs text"),
        ("take_note", {"text": "x", "colour": "red"}, "take_note has no parameter colour"),
        ("find_customer", {"name": "Bo"}, "no such customer"),
        ("list_invoices", {"customer": "C2"}, "no such customer"),
        ("create_invoice", {"customer": "C2", "amount": "$5"}, "no such customer"),
        ("check_course", {"course": "Latin"}, "no such course"),
        ("event_status", {"title": "gala"}, "no such event"),
        ("get_price", {"item": "cups"}, "no such item"),
        ("add_to_cart", {"item": "cups"}, "no such item"),
        ("checkout", {}, "the cart is empty"),
        ("order_status", {"order": "K8"}, "no such order"),
        ("refund_order", {"order": "K8"}, "no such order"),
        ("calculate", {"expression": "1 + 2 + 3"}, "not two numbers and an operation"),
        ("calculate", {"expression": "1 divided by 0"}, "division by zero"),
        (
            "convert_currency",
            {"amount": "x", "source": "euros", "target": "yen"},
            "only whole euros",
        ),
    ],
)
def test_what_goes_wrong_is_told_and_changes_nothing(
    name: str, arguments: dict[str, str], reason: str
) -> None:
    world = World(DATA)
    assert world.call(name, arguments).startswith(f"error: {reason}")
    assert world.done == []


def test_a_cart_is_paid_once() -> None:
    world = World(DATA)
    world.call("add_to_cart", {"item": "mugs", "quantity": "2"})
    assert world.call("checkout", {"payment": "cash"}) == "order: K8"
    assert world.call("checkout", {"payment": "cash"}) == "error: the cart is empty"
    wanted = {"what": "purchase", "item": "mugs", "quantity": "2", "payment": "cash"}
    assert world.done == [wanted]


def test_declared_tools_are_the_worlds() -> None:
    declared = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools()}
    assert list(declared) == list(SIGNATURES)
    assert declared["checkout"] == {
        "type": "object",
        "properties": {"payment": {"type": "string"}},
        "required": [],
    }
    for name in declared:
        assert callable(getattr(World(DATA), f"_{name}"))


def test_judge() -> None:
    task = {"changes": [{"what": "note", "text": "x"}], "facts": ["42", "moved online"]}
    world = World(DATA)
    assert "did []" in judge(task, world, "42, moved online").reason
    world.call("take_note", {"text": "X"})
    assert judge(task, world, "it is Moved online, 42.").done
    assert "does not say '42'" in judge(task, world, "moved online, 420 or 142").reason
    world.call("take_note", {"text": "x"})
    assert not judge(task, world, "42, moved online").done


def held_out() -> list[dict[str, Any]]:
    return [json.loads(line) for line in TASKS.read_text(encoding="utf-8").splitlines()]


def message(calls: list[dict[str, Any]]) -> dict[str, Any]:
    """An assistant's message as a server sends it."""
    sent = [
        {"id": f"call_{i}", "function": {**call, "arguments": json.dumps(call["arguments"])}}
        for i, call in enumerate(calls)
    ]
    return {"role": "assistant", "content": None, "tool_calls": sent}


def test_the_loop_feeds_results_back() -> None:
    task = next(task for task in held_out() if task["id"] == "tell_day-1")
    event, change = task["data"]["events"][0], task["changes"][0]
    arguments = {"person": change["person"], "text": change["text"]}
    replies = [
        message([{"name": "event_status", "arguments": {"title": event["title"]}}]),
        message([{"name": "send_message", "arguments": arguments}]),
        {"role": "assistant", "content": "Done: sent."},
    ]
    seen = []

    def ask(messages: list[dict[str, Any]]) -> dict[str, Any]:
        seen.append([m["role"] for m in messages])
        return replies[len(seen) - 1]

    outcome = run_task(task, ask)
    assert outcome.done, outcome.reason
    assert seen[-1] == ["user", "assistant", "tool", "assistant", "tool"]
    assert f"day: {event['day']}" in outcome.messages[2]["content"]
    assert transcript(outcome).endswith("  done")


def test_a_model_that_never_answers_is_stopped() -> None:
    task = held_out()[0]
    call = message([{"name": "take_note", "arguments": {"text": "x"}}])
    outcome = run_task(task, lambda messages: call)
    assert not outcome.done
    assert sum(m["role"] == "assistant" for m in outcome.messages) == TURNS
    assert "NOT DONE" in transcript(outcome)


def test_arguments_that_are_no_text() -> None:
    world = World(DATA)
    call = {"name": "add_to_cart", "arguments": '{"item": "mugs", "quantity": 2}'}
    assert run_call(world, call) == "status: in the cart"
    assert world.cart == [("mugs", "2")]
