"""Goals of the agent example: how people word them, and which solver meets them.

Templates are those of `tools.py`: choices in brackets, slots in braces, the mood in front.
"""

from __future__ import annotations

from dataclasses import dataclass

import solvers


@dataclass(frozen=True)
class Goal:
    """One kind of task: slots (name to kind, as in `vocabulary.py`), wordings and its solver."""

    name: str
    steps: str  # "single" or "multi"
    slots: dict[str, str]
    templates: tuple[str, ...]
    solve: solvers.Solver
    unpaid: tuple[int, ...] = (0, 1, 1, 2, 2)  # invoices of the customer


CUSTOMER, EVENT, COURSE = {"customer": "customer"}, {"event": "event"}, {"course": "course"}
LOOK = "[find|look up|get|tell me|give me|check|find out]"
THEM = "[them|that customer|this customer]"

GOALS: tuple[Goal, ...] = (
    Goal("customer_phone", "single", CUSTOMER, (
        f"{LOOK} the [phone number|phone] of [|customer |our customer ]{{customer}}",
        "?what is the [phone number|phone] of [|customer ]{customer}",
        "?[which|what] phone number [does {customer} have|do we have for {customer}]",
        "?[how|on which number] can I [call|reach|phone] [customer |our customer ]{customer}",
        ".[I need|I want|I'd like] the phone number [of|for] {customer}",
    ), solvers.customer_field("phone")),
    Goal("customer_city", "single", CUSTOMER, (
        f"{LOOK} the [city|town|home town] of [|customer |our customer ]{{customer}}",
        "?[which|what] [city|town] is [|customer |our customer ]{customer} [in|from]",
        "?[in which city|where] [is|does] [|customer |our customer ]{customer} [based|live]",
        "?where [are {customer} based|is customer {customer} from]",
        "[find out|check|tell me] [where|in which city] customer {customer} [lives|is based|is]",
    ), solvers.customer_field("city")),
    Goal("customer_id", "single", CUSTOMER, (
        f"{LOOK} the [id|customer id|customer number] of [|customer ]{{customer}}",
        "?[what is|what's] the [id|customer id|customer number] of {customer}",
        "?[which|what] [id|customer number] does {customer} have",
        ".[I need|I want|I'd like] the [id|customer number] [of|for] {customer}",
    ), solvers.customer_field("id")),
    Goal("customer", "single", CUSTOMER, (
        "[find|look up|search for|pull up|open] [the |]customer {customer}",
        "?[do we|do I] have a customer [called|named] {customer}",
        "[pull up|open|find] the customer [record|file|entry] [of|for] {customer}",
        "?is {customer} [a customer|one of our customers]",
    ), solvers.customer),
    Goal("order", "single", {"order": "order"}, (
        "?[where's|where is|how is] [my |]order [|number ]{order}",
        "[track|check|check on|look up] [my |the |]order [|number ]{order}",
        "?[what's|what is] the [status|state] of [my |]order [|number ]{order}",
        "?has [my |]order [|number ]{order} [shipped|arrived|been sent|left] [yet|already]",
        "[tell me|find out] [how|where] [my |]order [|number ]{order} is",
    ), solvers.order_status),
    Goal("event_status", "single", EVENT, (
        "?is the {event} [still on|going ahead|cancelled|happening|taking place]",
        "[check|find out|tell me] [whether|if] the {event} is [still on|cancelled|happening]",
        "?[what's|what is] the [status|state] of the {event}",
        f"{LOOK} the [status|state] of the {{event}}",
        "?has the {event} been [cancelled|moved|postponed]",
    ), solvers.event_field("status")),
    Goal("event_day", "single", EVENT, (
        "?[on which day|which day|what day] is the {event}", "?when is the {event}",
        f"{LOOK} the day of the {{event}}", "[check|find out|tell me] when the {event} is",
        "?[on which day|which day|what day] does the {event} take place",
    ), solvers.event_field("day")),
    Goal("event_time", "single", EVENT, (
        "?[at what time|what time|how late] [is|does] the {event}[| start| begin]",
        f"{LOOK} the [time|start time|hour] of the {{event}}",
        "[check|find out|tell me] [at what time|what time] the {event} [is|starts|begins]",
    ), solvers.event_field("time")),
    Goal("sum", "single", {"expression": "expression"}, (
        "?[what's|what is|how much is] {expression}",
        "[calculate|compute|work out|figure out|solve] {expression}",
        "[tell me|find|give me] the [result of|answer to] {expression}",
        "[add up|do the sum|do the calculation|work this out]: {expression}",
    ), solvers.add_up),
    Goal("course_seats", "single", COURSE, (
        "?how many [seats|places|spots] are [left|free|open] in [|the ]{course}[| course| class]",
        "[check|find out|tell me] how many [seats|places|spots] {course} has [left|free]",
        f"{LOOK} the [free seats|free places|number of free seats] [in|of] {{course}}",
        "?are there [any |]free [seats|places|spots] [left |]in [|the ]{course}[| course| class]",
    ), solvers.course_field("seats")),
    Goal("course_day", "single", COURSE, (
        "?[on which day|which day|what day|when] is the {course} course",
        f"{LOOK} the day of the {{course}} course",
        "[check|find out|tell me] [when|on which day|which day] the {course} course is",
    ), solvers.course_field("day")),
    Goal("price", "single", {"item": "countable"}, (
        "?[how much|what] do {item} cost", "?how much are [the |]{item}[| in the shop]",
        f"{LOOK} the [price|cost] of [|the ]{{item}}",
        "?[what's|what is] the price of {item}[| in the shop]",
        "[check|find out|tell me] [what|how much] {item} cost",
    ), solvers.price),
    Goal("enrol", "single", {**COURSE, "student": "person"}, (
        "[enroll|register] {student} [in|for] [the |]{course}[| course| class]",
        "sign {student} up for [the |]{course}[| course| class]",
        "[get|put] {student} in[|to] the {course} [course|class]",
        ".{student} [wants|would like] to [join|take] the {course} [course|class]",
    ), solvers.enrol),
    Goal("invoice", "single", {**CUSTOMER, "amount": "amount"}, (
        "[invoice|bill|charge] {customer} [|for ]{amount}",
        "[create|make|write|issue|draft] an invoice [for|to] {customer} [over|of|for] {amount}",
        "[send|write] {customer} [an invoice|a bill] [over|of|for] {amount}",
    ), solvers.invoice),
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
    ), solvers.find_and_invoice),
    Goal("remind", "multi", CUSTOMER, (
        "remind {customer} [of|about] [the|their|any|an] [unpaid|open] [invoice|bill]",
        "[check|see|find out] [if|whether] {customer} has [an unpaid|an open] [invoice|bill] and "
        "[remind|message|write to] [them|{customer}]",
        "[look up|find] {customer} and remind them [of|about] [the|their] unpaid [invoice|bill]",
        "?has {customer} paid, [if not|otherwise] [remind them|send them a reminder]",
        "[send|write] {customer} a [payment reminder|reminder to pay|reminder about the invoice]",
        "[ask|tell|message] {customer} to pay [the|their] [unpaid|open] [invoice|bill]",
    ), solvers.remind, (0, 1, 1, 1)),
    Goal("owed", "multi", CUSTOMER, (
        "?how much does {customer} [owe|still owe] [us|me]",
        "?how much [money |]does {customer} [have to|still have to|need to] pay",
        "[check|find out|tell me] how much {customer} [owes|still owes|has to pay]",
        "?[what's|what is] the [sum|total] of [the |]unpaid [invoices|bills] of {customer}",
        "[add up|sum up|total] the [unpaid|open] [invoices|bills] of {customer}",
        "[find|look up] {customer} and add up [the|their] [unpaid|open] [invoices|bills]",
    ), solvers.owed),
    Goal("note_phone", "multi", CUSTOMER, (
        "[note|write down|jot down|save] the [phone number|phone] of [|customer ]{customer}",
        "[find|look up] the [phone number|phone] of {customer} and "
        "[note it|note it down|write it down|make a note of it|take a note]",
        "[take|make|write] a note [of|with] the [phone number|phone] of [|customer ]{customer}",
        "[find|look up] [|customer ]{customer} and [note|write down] [the|their] phone number",
    ), solvers.note_phone),
    Goal("two_prices", "multi", {"item": "countable", "other": "countable"}, (
        "?[how much|what] do {item} and {other} cost [together|in total|in all|altogether]",
        "?how much are {item} and {other} [together|in total|in all|altogether]",
        "[add up|sum up|total] the prices of {item} and {other}",
        "?[what's|what is] the [total|total price|sum] of {item} [and|plus] {other}",
        "[find out|check|work out|tell me] [how much|what] {item} [and|plus] {other} cost "
        "[together|in total|in all|altogether]",
        "[look up|check|find] the prices of {item} and {other} and [add them up|sum them up|"
        "give me the sum|tell me the total]",
    ), solvers.two_prices),
    Goal("several", "multi", {"quantity": "count", "item": "countable"}, (
        "?[how much|what] do {quantity} {item} cost", "?how much are {quantity} {item}",
        "[find out|check|work out|tell me] [how much|what] {quantity} {item} cost",
        "?[what's|what is] the [price|total|cost] [of|for] {quantity} {item}",
        "[work out|calculate] the [price|total|cost] [of|for] {quantity} {item}",
    ), solvers.several),
    Goal("price_in", "multi", {"item": "countable", "currency": "rate"}, (
        "?[how much|what] do {item} cost in {currency}", "?how much are {item} in {currency}",
        "?[what's|what is] the price of {item} in {currency}",
        f"{LOOK} the [price|cost] of {{item}} in {{currency}}",
        "[look up|check|find] the price of {item} and [convert|change] it [to|into] {currency}",
        "[find out|check|tell me] [what|how much] {item} cost in {currency}",
    ), solvers.price_in),
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
    ), solvers.buy_if_in_stock),
    Goal("buy", "multi", {"quantity": "count", "item": "countable", "payment": "payment"}, (
        "[put|place] {quantity} {item} in[|to] the cart and [check out|pay] [with|using] "
        "{payment}",
        "[buy|order] [me |us |]{quantity} {item} [with|using] {payment}",
        "[buy|order|get] {quantity} {item} and pay [with|using] {payment}",
        "add {quantity} {item} to [my|the] [cart|basket] and [check out|pay] [with|using] "
        "{payment}",
    ), solvers.buy),
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
    ), solvers.enrol_if_free),
    Goal("refund_if", "multi", {"order": "order", "state": "order_state"}, (
        "[refund|return] order [|number ]{order} if it is {state}",
        ".[if|in case] order [|number ]{order} is {state}, refund it",
        "[check|look up|track] order [|number ]{order} and refund it if it is {state}",
        "[check|see|find out] [if|whether] order [|number ]{order} is {state} and [then |]"
        "[refund it|ask for a refund|get me a refund]",
        "?is order [|number ]{order} {state}, then [refund it|get me a refund]",
        "[get|ask for|request] a refund for order [|number ]{order} if it is {state}",
    ), solvers.refund_if),
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
    ), solvers.tell("status", "is")),
    Goal("tell_day", "multi", {**EVENT, "person": "person"}, (
        "[check|see|find out] [when|on which day] the {event} is and [tell|message|text] "
        "{person}",
        "[tell {person}|let {person} know] [when|on which day|which day] the {event} is",
        "[look up|check|find] the day of the {event} and [tell|message|text] {person}",
        "?when is the {event}, [tell|message|text] {person}",
        "[message|text|send] {person} [the day of the {event}|when the {event} is]",
    ), solvers.tell("day", "is on")),
    Goal("to_calendar", "multi", EVENT, (
        "[look up|check|find out] when the {event} is and [add|put] it [to|in|into] [my|the] "
        "calendar",
        "[find|look up] the {event} and [add|put] it [to|in|into] [my|the] calendar",
        "[put|add] the {event} [in|into|to] my calendar [on|at] the right [day|time|day and time]",
        "[check|look up] the day and time of the {event} and [add|put] it [to|in] [my|the] "
        "calendar",
        "?when is the {event}, [add|put] it [to|in|into] [my|the] calendar",
    ), solvers.event_to_calendar),
)
