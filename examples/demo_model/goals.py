"""Goals of the agent example: how people word them, and what a careful agent does about each.

Templates are those of `tools.py`: choices in brackets, slots in braces, the mood in front. Each
solver is a generator: it yields the calls of one turn, is sent their results, and returns the
final answer with the facts that any right answer states. Calls that do not depend on each other
share a turn; a call that needs a result waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field

from generate import Call

Values = dict[str, str]
Solver = Callable[[Values], Generator[list[Call], list[str], tuple[str, list[str]]]]


@dataclass(frozen=True)
class Goal:
    """One kind of task: slots (name to kind, as in `vocabulary.py`), wordings and its solver."""

    name: str
    steps: str  # "single" or "multi"
    slots: dict[str, str]
    templates: tuple[str, ...]
    solve: Solver
    unpaid: tuple[int, ...] = field(default=(0, 1, 1, 2, 2))  # invoices of the customer


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


CUSTOMER, EVENT, COURSE = {"customer": "customer"}, {"event": "event"}, {"course": "course"}
LOOK = "[find|look up|get|tell me|give me|check|find out]"
THEM = "[them|that customer|this customer]"

GOALS: tuple[Goal, ...] = (
    Goal("customer_phone", "single", CUSTOMER, (
        f"{LOOK} the [phone number|number|phone] of [|customer |our customer ]{{customer}}",
        "?what is the [phone number|phone] of [|customer ]{customer}",
        "?[which|what] [phone number|number] [does {customer} have|do we have for {customer}]",
        "?[how|on which number] can I [call|reach|phone] [customer |our customer ]{customer}",
        ".[I need|I want|I'd like] the phone number [of|for] {customer}",
    ), customer_field("phone", "The phone number of {customer} is {value}.")),
    Goal("customer_city", "single", CUSTOMER, (
        f"{LOOK} the [city|town|home town] of [|customer |our customer ]{{customer}}",
        "?[which|what] [city|town] is [|customer |our customer ]{customer} [in|from]",
        "?[in which city|where] [is|does] [|customer |our customer ]{customer} [based|live]",
        "?where [are {customer} based|is {customer} from]",
        "[find out|check|tell me] [where|in which city] {customer} [lives|is based|is]",
    ), customer_field("city", "{customer} is in {value}.")),
    Goal("customer_id", "single", CUSTOMER, (
        f"{LOOK} the [id|customer id|customer number] of [|customer ]{{customer}}",
        "[find|look up|search for|pull up|open] [the |]customer {customer}",
        "?[what is|what's] the [id|customer id|customer number] of {customer}",
        "?[do we|do I] have a customer [called|named] {customer}",
        "[pull up|open|find] the customer [record|file|entry] [of|for] {customer}",
        "?[which|what] [id|customer number] does {customer} have",
    ), customer_field("id", "{customer} is customer {value}.")),
    Goal("order", "single", {"order": "order"}, (
        "?[where's|where is|how is] [my |]order [|number ]{order}",
        "[track|check|check on|look up] [my |the |]order [|number ]{order}",
        "?[what's|what is] the [status|state] of [my |]order [|number ]{order}",
        "?has [my |]order [|number ]{order} [shipped|arrived|been sent|left] [yet|already]",
        "[tell me|find out] [how|where] [my |]order [|number ]{order} is",
    ), order_status),
    Goal("event_status", "single", EVENT, (
        "?is the {event} [still on|going ahead|cancelled|happening|taking place]",
        "[check|find out|tell me] [whether|if] the {event} is [still on|cancelled|happening]",
        "?[what's|what is] the [status|state] of the {event}",
        f"{LOOK} the [status|state] of the {{event}}",
        "?has the {event} been [cancelled|moved|postponed]",
    ), event_field("status", "The {event} is {value}.")),
    Goal("event_day", "single", EVENT, (
        "?[on which day|which day|what day] is the {event}", "?when is the {event}",
        f"{LOOK} the day of the {{event}}", "[check|find out|tell me] when the {event} is",
        "?[on which day|which day|what day] does the {event} take place",
    ), event_field("day", "The {event} is on {value}.")),
    Goal("event_time", "single", EVENT, (
        "?[at what time|what time|how late] [is|does] the {event}[| start| begin]",
        f"{LOOK} the [time|start time|hour] of the {{event}}",
        "[check|find out|tell me] [at what time|what time] the {event} [is|starts|begins]",
    ), event_field("time", "The {event} is at {value}.")),
    Goal("sum", "single", {"expression": "expression"}, (
        "?[what's|what is|how much is] {expression}",
        "[calculate|compute|work out|figure out|solve] {expression}",
        "[tell me|find|give me] the [result of|answer to] {expression}",
        "[add up|do the sum|do the calculation|work this out]: {expression}",
    ), add_up),
    Goal("course_seats", "single", COURSE, (
        "?how many [seats|places|spots] are [left|free|open] in [|the ]{course}[| course| class]",
        "[check|find out|tell me] how many [seats|places|spots] {course} has [left|free]",
        f"{LOOK} the [free seats|free places|number of free seats] [in|of] {{course}}",
        "?are there [any |]free [seats|places|spots] [left |]in [|the ]{course}[| course| class]",
    ), course_seats),
    Goal("course_day", "single", COURSE, (
        "?[on which day|which day|what day|when] is [|the ]{course}[| course| class]",
        f"{LOOK} the day of [|the ]{{course}}[| course| class]",
        "[check|find out|tell me] [when|on which day|which day] [|the ]{course}[| course] is",
    ), course_day),
    Goal("price", "single", {"item": "countable"}, (
        "?[how much|what] do {item} cost", "?how much are [the |]{item}[| in the shop]",
        f"{LOOK} the [price|cost] of [|the ]{{item}}",
        "?[what's|what is] the price of {item}[| in the shop]",
        "[check|find out|tell me] [what|how much] {item} cost",
    ), price),
    Goal("enrol", "single", {**COURSE, "student": "person"}, (
        "[enroll|register] {student} [in|for] [the |]{course}[| course| class]",
        "sign {student} up for [the |]{course}[| course| class]",
        "[get|put] {student} in[|to] the {course} [course|class]",
        ".{student} [wants|would like] to [join|take] the {course} [course|class]",
    ), enrol),
    Goal("invoice", "single", {**CUSTOMER, "amount": "amount"}, (
        "[invoice|bill|charge] {customer} [|for ]{amount}",
        "[create|make|write|issue|draft] an invoice [for|to] {customer} [over|of|for] {amount}",
        "[send|write] {customer} [an invoice|a bill] [over|of|for] {amount}",
    ), invoice),
    Goal("find_and_invoice", "multi", {**CUSTOMER, "amount": "amount"}, (
        f"[find|look up|search for|pull up] [the |]customer {{customer}} and "
        f"[invoice|bill|charge] {THEM} [|for ]{{amount}}",
        f"[find|look up] [|customer ]{{customer}}[,| and] then "
        f"[write|send] {THEM} [an invoice|a bill] [over|of|for] {{amount}}",
        "[look up|find] the [id|customer id|customer number] of {customer} and "
        "[invoice|bill|charge] it [|for ]{amount}",
        "[look up|find] {customer} and [create|make|write] an invoice [of|over|for] {amount} "
        "[for|to] [that|the|their] [id|customer id|customer number]",
        "[invoice|bill|charge] {customer} [|for ]{amount} [by|using|with] "
        "[their|the] [id|customer id|customer number]",
        ".{amount} are due from {customer}: [find|look up] the customer and [write|send] the "
        "[invoice|bill]",
    ), find_and_invoice),
    Goal("remind", "multi", CUSTOMER, (
        "remind {customer} [of|about] [the|their|any|an] [unpaid|open] [invoice|bill]",
        "[check|see|find out] [if|whether] {customer} has [an unpaid|an open] [invoice|bill] and "
        "[remind|message|write to] [them|{customer}]",
        "[look up|find] {customer} and remind them [of|about] [the|their] unpaid [invoice|bill]",
        "?has {customer} paid, [if not|otherwise] [remind them|send them a reminder]",
        "[send|write] {customer} a [payment reminder|reminder to pay|reminder about the invoice]",
        "[ask|tell|message] {customer} to pay [the|their] [unpaid|open] [invoice|bill]",
    ), remind, (0, 1, 1, 1)),
    Goal("owed", "multi", CUSTOMER, (
        "?how much does {customer} [owe|still owe] [us|me]",
        "?how much [money |]does {customer} [have to|still have to|need to] pay",
        "[check|find out|tell me] how much {customer} [owes|still owes|has to pay]",
        "?[what's|what is] the [sum|total] of [the |]unpaid [invoices|bills] of {customer}",
        "[add up|sum up|total] the [unpaid|open] [invoices|bills] of {customer}",
        "[find|look up] {customer} and add up [the|their] [unpaid|open] [invoices|bills]",
    ), owed),
    Goal("note_phone", "multi", CUSTOMER, (
        "[note|write down|jot down|save] the [phone number|phone] of [|customer ]{customer}",
        "[find|look up] the [phone number|phone] of {customer} and "
        "[note it|note it down|write it down|make a note of it|take a note]",
        "[take|make|write] a note [of|with] the [phone number|phone] of [|customer ]{customer}",
        "[find|look up] [|customer ]{customer} and [note|write down] [the|their] phone number",
    ), note_phone),
    Goal("two_prices", "multi", {"item": "countable", "other": "countable"}, (
        "?[how much|what] do {item} and {other} cost [together|in total|in all|altogether]",
        "?how much are {item} and {other} [together|in total|in all|altogether]",
        "[add up|sum up|total] the prices of {item} and {other}",
        "?[what's|what is] the [total|total price|sum] of {item} [and|plus] {other}",
        "[find out|check|work out|tell me] [how much|what] {item} [and|plus] {other} cost "
        "[together|in total|in all|altogether]",
        "[look up|check|find] the prices of {item} and {other} and [add them up|sum them up|"
        "give me the sum|tell me the total]",
    ), two_prices),
    Goal("several", "multi", {"quantity": "count", "item": "countable"}, (
        "?[how much|what] do {quantity} {item} cost", "?how much are {quantity} {item}",
        "[find out|check|work out|tell me] [how much|what] {quantity} {item} cost",
        "?[what's|what is] the [price|total|cost] [of|for] {quantity} {item}",
        "[work out|calculate] the [price|total|cost] [of|for] {quantity} {item}",
    ), several),
    Goal("price_in", "multi", {"item": "countable", "currency": "rate"}, (
        "?[how much|what] do {item} cost in {currency}", "?how much are {item} in {currency}",
        "?[what's|what is] the price of {item} in {currency}",
        f"{LOOK} the [price|cost] of {{item}} in {{currency}}",
        "[look up|check|find] the price of {item} and [convert|change] it [to|into] {currency}",
        "[find out|check|tell me] [what|how much] {item} cost in {currency}",
    ), price_in),
    Goal("buy_if", "multi", {"quantity": "count", "item": "countable", "payment": "payment"}, (
        ".[if|when] {item} are [in stock|available], [buy|order|get] {quantity} [with|using] "
        "{payment}",
        "[buy|order|get] {quantity} {item} [with|using] {payment} [if|as long as] they are "
        "[in stock|available|not sold out]",
        "[check|see|find out] [if|whether] {item} are [in stock|available] and [buy|order|get] "
        "{quantity} [with|using] {payment}",
        "[check|look up] the stock of {item}[,| and] then [buy|order|get] {quantity} "
        "[with|using] {payment}",
        "[buy|order] {quantity} {item}, [but only if|only if|provided] they are [in stock|"
        "available], [and pay|paying] [with|using] {payment}",
    ), buy_if_in_stock),
    Goal("buy", "multi", {"quantity": "count", "item": "countable", "payment": "payment"}, (
        "[put|place] {quantity} {item} in[|to] the cart and [check out|pay] [with|using] "
        "{payment}",
        "[buy|order] [me |us |]{quantity} {item} [with|using] {payment}",
        "[buy|order|get] {quantity} {item} and pay [with|using] {payment}",
        "add {quantity} {item} to [my|the] [cart|basket] and [check out|pay] [with|using] "
        "{payment}",
    ), buy),
    Goal("enrol_if", "multi", {**COURSE, "student": "person"}, (
        ".[if|when] {course} has [free seats|seats left|a free seat], [enroll|register] {student}",
        ".[if|when] there is [a free seat|a free place|room] in [|the ]{course}[| course], "
        "[enroll|register] {student}",
        "[enroll|register] {student} [in|for] {course} [if|as long as] [there are seats left|"
        "there is room|it is not full|it has free seats]",
        "sign {student} up for {course} [if|as long as] [there are seats left|there is room|"
        "it is not full|it has free seats]",
        "[check|see|find out] [if|whether] {course} [has seats left|has free seats|is full] and "
        "[enroll|register] {student} if [possible|there is room|not]",
        "[check|look up] the seats [in|of] {course}[,| and] then [enroll|register] {student}",
    ), enrol_if_free),
    Goal("refund_if", "multi", {"order": "order", "state": "order_state"}, (
        "[refund|return] order [|number ]{order} if it is {state}",
        ".[if|in case] order [|number ]{order} is {state}, refund it",
        "[check|look up|track] order [|number ]{order} and refund it if it is {state}",
        "[check|see|find out] [if|whether] order [|number ]{order} is {state} and [then |]"
        "[refund it|ask for a refund|get me a refund]",
        "?is order [|number ]{order} {state}, then [refund it|get me a refund]",
        "[get|ask for|request] a refund for order [|number ]{order} if it is {state}",
    ), refund_if),
    Goal("tell_status", "multi", {**EVENT, "person": "person"}, (
        "[check|see|find out] [if|whether] the {event} is [still on|cancelled|happening|"
        "going ahead] and [tell {person}|message {person}|text {person}|let {person} know]",
        "[tell {person}|let {person} know] [if|whether] the {event} is [still on|cancelled|"
        "happening]",
        "[look up|check] the [status|state] of the {event} and [tell|message|text] {person}",
        "?is the {event} [still on|cancelled|happening], [tell|message|text] {person}",
        "[message|text] {person} [whether|if] the {event} [is still on|is cancelled|"
        "takes place|goes ahead]",
        "[tell|message|text|send] {person} the [status|state] of the {event}",
    ), tell_status),
    Goal("tell_day", "multi", {**EVENT, "person": "person"}, (
        "[check|see|find out] [when|on which day] the {event} is and [tell|message|text] "
        "{person}",
        "[tell {person}|let {person} know] [when|on which day|which day] the {event} is",
        "[look up|check|find] the day of the {event} and [tell|message|text] {person}",
        "?when is the {event}, [tell|message|text] {person}",
        "[message|text|send] {person} [the day of the {event}|when the {event} is]",
    ), tell_day),
    Goal("to_calendar", "multi", EVENT, (
        "[look up|check|find out] when the {event} is and [add|put] it [to|in|into] [my|the] "
        "calendar",
        "[find|look up] the {event} and [add|put] it [to|in|into] [my|the] calendar",
        "[put|add] the {event} [in|into|to] my calendar [on|at] the right [day|time|day and time]",
        "[check|look up] the day and time of the {event} and [add|put] it [to|in] [my|the] "
        "calendar",
        "?when is the {event}, [add|put] it [to|in|into] [my|the] calendar",
    ), event_to_calendar),
)
