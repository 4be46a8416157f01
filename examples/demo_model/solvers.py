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


# --- one step --------------------------------------------------------------------------------


def customer_field(key: str, sentence: str) -> Solver:
    """Look a customer up and state one field."""
    def solve(v):
        [result] = yield [call("find_customer", name=v["customer"])]
        value = read(result)[key]
        return sentence.format(customer=v["customer"], value=value), [value]
    return solve


def event_field(key: str, sentence: str) -> Solver:
    """Look an event up and state one field."""
    def solve(v):
        [result] = yield [call("event_status", title=v["event"])]
        value = read(result)[key]
        return sentence.format(event=v["event"], value=value), [value]
    return solve


def order_status(v):
    [result] = yield [call("order_status", order=v["order"])]
    status = read(result)["status"]
    return f"Order {v['order']} is {status}.", [status]


def add_up(v):
    [result] = yield [call("calculate", expression=v["expression"])]
    return f"The result is {result}.", [result]


def course_seats(v):
    [result] = yield [call("check_course", course=v["course"])]
    seats = read(result)["seats"]
    return f"{v['course']} has {seats} seats left.", [seats]


def course_day(v):
    [result] = yield [call("check_course", course=v["course"])]
    day = read(result)["day"]
    return f"{v['course']} is on {day}.", [day]


def price(v):
    [result] = yield [call("get_price", item=v["item"])]
    value = read(result)["price"]
    return f"The price of {v['item']} is {value}.", [value]


def enrol(v):
    [result] = yield [call("enroll_course", course=v["course"], student=v["student"])]
    if result == "error: full":
        return f"{v['course']} is full.", ["full"]
    return f"{v['student']} is enrolled in {v['course']}.", ["enrolled"]


def invoice(v):
    [result] = yield [call("create_invoice", customer=v["customer"], amount=v["amount"])]
    number = read(result)["invoice"]
    return f"Invoice {number} is written.", [number]


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
        return f"{v['customer']} has no unpaid invoice.", ["no"]
    number = unpaid[0][0]
    yield [call("send_message", person=v["customer"], text=f"please pay invoice {number}")]
    return f"{v['customer']} is reminded of invoice {number}.", [number]


def owed(v):
    unpaid = yield from unpaid_invoices(v)
    if not unpaid:
        return f"{v['customer']} owes nothing.", ["nothing"]
    total = unpaid[0][1].split()[0]
    if len(unpaid) > 1:
        expression = f"{total} + {unpaid[1][1].split()[0]}"
        [total] = yield [call("calculate", expression=expression)]
    return f"{v['customer']} owes {total} euros.", [total]


def note_phone(v):
    [found] = yield [call("find_customer", name=v["customer"])]
    phone = read(found)["phone"]
    yield [call("take_note", text=f"{v['customer']} {phone}")]
    return f"The note says {phone}.", [phone]


def two_prices(v):
    results = yield [call("get_price", item=v["item"]), call("get_price", item=v["other"])]
    a, b = (read(result)["price"].split()[0] for result in results)
    [total] = yield [call("calculate", expression=f"{a} + {b}")]
    return f"Together that is {total} euros.", [total]


def several(v):
    [result] = yield [call("get_price", item=v["item"])]
    each = read(result)["price"].split()[0]
    [total] = yield [call("calculate", expression=f"{v['quantity']} * {each}")]
    return f"{v['quantity']} {v['item']} cost {total} euros.", [total]


def price_in(v):
    [result] = yield [call("get_price", item=v["item"])]
    each = read(result)["price"].split()[0]
    [sum_] = yield [
        call("convert_currency", amount=each, source="euros", target=v["currency"])
    ]
    value = read(sum_)["amount"]
    return f"The price of {v['item']} is {value}.", [value]


def buy_if_in_stock(v):
    [result] = yield [call("get_price", item=v["item"])]
    if read(result)["stock"] == "0":
        return f"{v['item']} are sold out.", ["sold out"]
    yield [call("add_to_cart", item=v["item"], quantity=v["quantity"])]
    [paid] = yield [call("checkout", payment=v["payment"])]
    order = read(paid)["order"]
    return f"Order {order} is placed.", [order]


def buy(v):
    _, paid = yield [
        call("add_to_cart", item=v["item"], quantity=v["quantity"]),
        call("checkout", payment=v["payment"]),
    ]
    order = read(paid)["order"]
    return f"Order {order} is placed.", [order]


def enrol_if_free(v):
    [result] = yield [call("check_course", course=v["course"])]
    if read(result)["seats"] == "0":
        return f"{v['course']} is full.", ["full"]
    return (yield from enrol(v))


def refund_if(v):
    [result] = yield [call("order_status", order=v["order"])]
    status = read(result)["status"]
    if status.casefold() != v["state"].casefold():
        return f"Order {v['order']} is {status}.", [status]
    [refund] = yield [call("refund_order", order=v["order"])]
    value = read(refund)["refund"]
    return f"{value} are refunded.", [value]


def tell_status(v):
    [result] = yield [call("event_status", title=v["event"])]
    status = read(result)["status"]
    yield [call("send_message", person=v["person"], text=f"the {v['event']} is {status}")]
    return f"{v['person']} knows that it is {status}.", [status]


def tell_day(v):
    [result] = yield [call("event_status", title=v["event"])]
    day = read(result)["day"]
    yield [call("send_message", person=v["person"], text=f"the {v['event']} is on {day}")]
    return f"{v['person']} knows that it is on {day}.", [day]


def event_to_calendar(v):
    [result] = yield [call("event_status", title=v["event"])]
    found = read(result)
    yield [call("add_event", title=v["event"], day=found["day"], time=found["time"])]
    return f"The {v['event']} is in the calendar on {found['day']}.", [found["day"]]
