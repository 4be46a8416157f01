"""A small office and shop that an agent works in: data, tools over it, and a judge of the result.

Everything happens in memory and nothing is random: the same calls give the same results.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Arguments = dict[str, str]

# name -> (what it does, its parameters; "?" marks those that may be left out)
SIGNATURES: dict[str, tuple[str, tuple[str, ...]]] = {
    "find_customer": ("Look up a customer: id, city and phone number.", ("name",)),
    "list_invoices": ("List a customer's invoices.", ("customer",)),
    "create_invoice": ("Write an invoice to a customer.", ("customer", "amount")),
    "check_course": ("Day and free seats of a course.", ("course",)),
    "enroll_course": ("Sign a student up for a course.", ("course", "student?")),
    "event_status": ("Status, day and time of an event.", ("title",)),
    "add_event": ("Put an event in the calendar.", ("title", "day", "time?")),
    "send_message": ("Send a person a message.", ("person", "text")),
    "take_note": ("Write a note.", ("text",)),
    "get_price": ("Price and stock of an item of the shop.", ("item",)),
    "add_to_cart": ("Put an item in the cart.", ("item", "quantity?")),
    "checkout": ("Pay for the cart.", ("payment?",)),
    "order_status": ("Status of an order.", ("order",)),
    "refund_order": ("Refund an order.", ("order", "reason?")),
    "calculate": ("Work out an expression of two numbers.", ("expression",)),
    "convert_currency": ("Convert an amount.", ("amount", "source", "target")),
}
OPERATIONS: dict[str, Callable[[int, int], float]] = {
    "+": lambda a, b: a + b,
    "plus": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "minus": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "times": lambda a, b: a * b,
    "divided by": lambda a, b: a / b,
    "percent of": lambda a, b: a * b / 100,
}
EXPRESSION = re.compile(
    r"(\d+) (\+|plus|-|minus|\*|times|divided by|percent of) (\d+)", re.IGNORECASE
)
RATES = {"dollars": 1.1, "pounds": 0.9, "yen": 160, "francs": 0.95, "kronor": 11, "zloty": 4.3}


def tools() -> list[dict[str, Any]]:
    """The tools as an OpenAI request declares them; every parameter is text."""
    declared = []
    for name, (description, parameters) in SIGNATURES.items():
        names = [p.rstrip("?") for p in parameters]
        schema = {
            "type": "object",
            "properties": {p: {"type": "string"} for p in names},
            "required": [p for p in parameters if not p.endswith("?")],
        }
        function = {"name": name, "description": description, "parameters": schema}
        declared.append({"type": "function", "function": function})
    return declared


def same(a: str, b: str) -> bool:
    """Whether two values differ in case at most."""
    return a.casefold() == b.casefold()


@dataclass
class World:
    """The data of one task and what has been done in it.

    `data`: lists of customers, invoices, courses, events, products and orders, and `next`, the
    number that the next invoice or order gets. `done`: one entry for each change, in order.
    """

    data: dict[str, Any]
    done: list[dict[str, str]] = field(default_factory=list)
    cart: list[tuple[str, str]] = field(default_factory=list)

    def call(self, name: str, arguments: Arguments) -> str:
        """Runs a tool; what goes wrong comes back as text, since an agent has to read it."""
        if name not in SIGNATURES:
            return f"error: no tool {name}"
        parameters = SIGNATURES[name][1]
        for key in arguments:
            if key not in [p.rstrip("?") for p in parameters]:
                return f"error: {name} has no parameter {key}"
        for key in parameters:
            if not key.endswith("?") and key not in arguments:
                return f"error: {name} needs {key}"
        return str(getattr(self, f"_{name}")(**arguments))

    def _find(self, table: str, key: str, value: str) -> dict[str, str] | None:
        return next((row for row in self.data.get(table, []) if same(row[key], value)), None)

    def _change(self, what: str, **values: str) -> None:
        self.done.append({"what": what, **{key: v.casefold() for key, v in values.items()}})

    def _customer(self, customer: str) -> dict[str, str] | None:
        return self._find("customers", "id", customer) or self._find("customers", "name", customer)

    def _find_customer(self, name: str) -> str:
        row = self._find("customers", "name", name)
        if row is None:
            return "error: no such customer"
        return f"id: {row['id']}\ncity: {row['city']}\nphone: {row['phone']}"

    def _list_invoices(self, customer: str) -> str:
        row = self._customer(customer)
        if row is None:
            return "error: no such customer"
        rows = [i for i in self.data["invoices"] if i["customer"] == row["id"]]
        return "\n".join(f"{i['number']}: {i['amount']} euros, {i['status']}" for i in rows)

    def _create_invoice(self, customer: str, amount: str) -> str:
        row = self._customer(customer)
        if row is None:
            return "error: no such customer"
        self._change("invoice", customer=row["id"], amount=amount)
        return f"invoice: I{self.data['next']}"

    def _check_course(self, course: str) -> str:
        row = self._find("courses", "title", course)
        return f"day: {row['day']}\nseats: {row['seats']}" if row else "error: no such course"

    def _enroll_course(self, course: str, student: str = "me") -> str:
        row = self._find("courses", "title", course)
        if row is None:
            return "error: no such course"
        if row["seats"] == "0":
            return "error: full"
        self._change("enrolment", course=course, student=student)
        return "status: enrolled"

    def _event_status(self, title: str) -> str:
        row = self._find("events", "title", title)
        if row is None:
            return "error: no such event"
        return f"status: {row['status']}\nday: {row['day']}\ntime: {row['time']}"

    def _add_event(self, title: str, day: str, time: str = "") -> str:
        self._change("calendar", title=title, day=day, time=time)
        return "status: added"

    def _send_message(self, person: str, text: str) -> str:
        self._change("message", person=person, text=text)
        return "status: sent"

    def _take_note(self, text: str) -> str:
        self._change("note", text=text)
        return "status: saved"

    def _get_price(self, item: str) -> str:
        row = self._find("products", "name", item)
        if row is None:
            return "error: no such item"
        return f"price: {row['price']} euros\nstock: {row['stock']}"

    def _add_to_cart(self, item: str, quantity: str = "1") -> str:
        if self._find("products", "name", item) is None:
            return "error: no such item"
        self.cart.append((item, quantity))
        return "status: in the cart"

    def _checkout(self, payment: str = "") -> str:
        if not self.cart:
            return "error: the cart is empty"
        for item, quantity in self.cart:
            self._change("purchase", item=item, quantity=quantity, payment=payment)
        self.cart.clear()
        return f"order: K{self.data['next']}"

    def _order_status(self, order: str) -> str:
        row = self._find("orders", "number", order)
        return f"status: {row['status']}" if row else "error: no such order"

    def _refund_order(self, order: str, reason: str = "") -> str:
        row = self._find("orders", "number", order)
        if row is None:
            return "error: no such order"
        self._change("refund", order=order)
        return f"refund: {row['total']} euros"

    def _calculate(self, expression: str) -> str:
        match = EXPRESSION.fullmatch(expression)
        if match is None:
            return "error: not two numbers and an operation"
        operation = OPERATIONS[match[2].lower()]
        if match[2].lower() == "divided by" and int(match[3]) == 0:
            return "error: division by zero"
        return f"{round(operation(int(match[1]), int(match[3])), 2):.12g}"

    def _convert_currency(self, amount: str, source: str, target: str) -> str:
        if not amount.isdigit() or not same(source, "euros") or target.lower() not in RATES:
            return "error: only whole euros can be converted"
        return f"amount: {int(amount) * RATES[target.lower()]:.0f} {target}"


@dataclass(frozen=True)
class Verdict:
    """Whether a task was done, and what was wrong if not."""

    done: bool
    reason: str = ""


def judge(task: dict[str, Any], world: World, answer: str) -> Verdict:
    """Right are exactly the changes that the task asks for, in any order, and an answer that
    states every fact it asks for."""

    def sort(changes: list[dict[str, str]]) -> list[list[tuple[str, str]]]:
        return sorted(sorted(change.items()) for change in changes)

    if sort(world.done) != sort(task["changes"]):
        return Verdict(False, f"did {world.done}, not {task['changes']}")
    for fact in task["facts"]:
        if not re.search(rf"(?<!\w){re.escape(fact)}(?!\w)", answer, re.IGNORECASE):
            return Verdict(False, f"the answer {answer!r} does not say {fact!r}")
    return Verdict(True)
