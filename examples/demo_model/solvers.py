"""What a careful agent does about each goal of `goals.py`.

A solver is a generator: it yields the calls of one turn, is sent their results, and returns the
final answer with the facts that any right answer states. Calls that do not depend on each other
share a turn; a call that needs a result waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from generate import Call

Values = dict[str, str]
Solver = Callable[[Values], Generator[list[Call], list[str], tuple[str, list[str]]]]


def call(tool: str, /, **arguments: str) -> Call:
    """A call in the form that `format_answer` writes."""
    return {"name": tool, "arguments": arguments}


def read(result: str) -> Values:
    """The `key: value` lines of a tool's result."""
    return dict(line.split(": ", 1) for line in result.split("\n"))


def last(value: str) -> tuple[str, list[str]]:
    """The final answer that states what was asked for."""
    return f"It is {value}.", [value]


def done(value: str) -> tuple[str, list[str]]:
    """The final answer that confirms what was done."""
    return f"Done: {value}.", [value]


# --- one step --------------------------------------------------------------------------------


def customer_field(key: str) -> Solver:
    """Look a customer up and state one field."""
    def solve(v):
        [result] = yield [call("find_customer", name=v["customer"], field=key)]
        return last(read(result)[key])
    return solve


def customer(v):
    [result] = yield [call("find_customer", name=v["customer"])]
    return last(read(result)["id"])


def event_field(key: str) -> Solver:
    """Look an event up and state one field."""
    def solve(v):
        [result] = yield [call("event_status", title=v["event"], field=key)]
        return last(read(result)[key])
    return solve


def course_field(key: str) -> Solver:
    """Look a course up and state one field."""
    def solve(v):
        [result] = yield [call("check_course", course=v["course"], field=key)]
        return last(read(result)[key])
    return solve


def order_status(v):
    [result] = yield [call("order_status", order=v["order"])]
    return last(read(result)["status"])


def add_up(v):
    [result] = yield [call("calculate", expression=v["expression"])]
    return last(result)


def price(v):
    [result] = yield [call("get_price", item=v["item"])]
    return last(read(result)["price"])


def enrol(v):
    [result] = yield [call("enroll_course", course=v["course"], student=v["student"])]
    return last("full") if result == "error: full" else done(read(result)["status"])


def invoice(v):
    [result] = yield [call("create_invoice", customer=v["customer"], amount=v["amount"])]
    return done(read(result)["invoice"])


# --- several steps ---------------------------------------------------------------------------


def find_and_invoice(v):
    [found] = yield [call("find_customer", name=v["customer"])]
    return (yield from invoice({**v, "customer": read(found)["id"]}))


def unpaid_invoices(v):
    """Yields two turns of looking up; returns (number, amount) of what is unpaid."""
    [found] = yield [call("find_customer", name=v["customer"])]
    [result] = yield [call("list_invoices", customer=read(found)["id"])]
    rows = [(number, text.split(", ")) for number, text in read(result).items()]
    return [(number, amount) for number, (amount, status) in rows if status == "unpaid"]


def remind(v):
    unpaid = yield from unpaid_invoices(v)
    if not unpaid:
        return last("paid")
    text = f"please pay invoice {unpaid[0][0]}"
    [sent] = yield [call("send_message", person=v["customer"], text=text)]
    return done(read(sent)["status"])


def owed(v):
    unpaid = yield from unpaid_invoices(v)
    if not unpaid:
        return last("nothing")
    total = unpaid[0][1].split()[0]
    if len(unpaid) > 1:
        expression = f"{total} + {unpaid[1][1].split()[0]}"
        [total] = yield [call("calculate", expression=expression)]
    return last(total)


def note_phone(v):
    [found] = yield [call("find_customer", name=v["customer"], field="phone")]
    text = f"{v['customer']} {read(found)['phone']}"
    [saved] = yield [call("take_note", text=text)]
    return done(read(saved)["status"])


def two_prices(v):
    results = yield [call("get_price", item=v["item"]), call("get_price", item=v["other"])]
    a, b = (read(result)["price"].split()[0] for result in results)
    [total] = yield [call("calculate", expression=f"{a} + {b}")]
    return last(total)


def several(v):
    [result] = yield [call("get_price", item=v["item"])]
    each = read(result)["price"].split()[0]
    [total] = yield [call("calculate", expression=f"{v['quantity']} * {each}")]
    return last(total)


def price_in(v):
    [result] = yield [call("get_price", item=v["item"])]
    each = read(result)["price"].split()[0]
    arguments = {"amount": each, "source": "euros", "target": v["currency"]}
    [converted] = yield [call("convert_currency", **arguments)]
    return last(read(converted)["amount"])


def buy_if_in_stock(v):
    [result] = yield [call("check_stock", item=v["item"])]
    if read(result)["stock"] == "sold out":
        return last("sold out")
    yield [call("add_to_cart", item=v["item"], quantity=v["quantity"])]
    [paid] = yield [call("checkout", payment=v["payment"])]
    return done(read(paid)["order"])


def buy(v):
    _, paid = yield [
        call("add_to_cart", item=v["item"], quantity=v["quantity"]),
        call("checkout", payment=v["payment"]),
    ]
    return done(read(paid)["order"])


def enrol_if_free(v):
    [result] = yield [call("check_course", course=v["course"], field="seats")]
    if read(result)["seats"] == "full":
        return last("full")
    return (yield from enrol(v))


def refund_if(v):
    [result] = yield [call("order_status", order=v["order"])]
    status = read(result)["status"]
    if status.casefold() != v["state"].casefold():
        return last(status)
    [refund] = yield [call("refund_order", order=v["order"])]
    return done(read(refund)["refund"])


def tell(key: str, words: str) -> Solver:
    """Look an event up and send a person what was found."""
    def solve(v):
        [result] = yield [call("event_status", title=v["event"], field=key)]
        text = f"the {v['event']} {words} {read(result)[key]}"
        [sent] = yield [call("send_message", person=v["person"], text=text)]
        return done(read(sent)["status"])
    return solve


def event_to_calendar(v):
    [result] = yield [call("event_status", title=v["event"])]
    found = read(result)
    arguments = {"title": v["event"], "day": found["day"], "time": found["time"]}
    [added] = yield [call("add_event", **arguments)]
    return done(read(added)["status"])
