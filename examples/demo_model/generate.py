"""Generate spoken requests with the tool calls that answer them.

Everything is drawn from the caller's ``random.Random``, so a seed fixes the stream.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from itertools import accumulate

from phrasings import MORE, MORE_CLOSERS, MORE_OFF_TOPIC, MORE_OPENERS
from tools import MACROS, OFF_TOPIC, TOOLS, Tool
from vocabulary import fill, made_up_word, pick
from word_lists import words

NO_TOOL = "No tool fits this request."
OFF_TOPIC_SHARE = 0.06
TWO_CALL_SHARE = 0.20
MORE_SHARE = 0.2  # of the wider wordings begin or end as `phrasings.py` has it

Call = dict[str, object]
# A piece of a request: its text and, for a slot, the call index and parameter it fills.
Segment = list


@dataclass
class Example:
    """A request, the calls it asks for, and the model's whole answer."""

    request: str
    calls: list[Call]
    answer: str


# --- answers ---------------------------------------------------------------------------------

def format_answer(calls: list[Call]) -> str:
    """Write calls in the chat template's form; no calls give the fixed refusal."""
    if not calls:
        return NO_TOOL
    blocks = []
    for call in calls:
        lines = ["<tool_call>", f"<function={call['name']}>"]
        for key, value in call["arguments"].items():
            lines += [f"<parameter={key}>", value, "</parameter>"]
        blocks.append("\n".join([*lines, "</function>", "</tool_call>"]))
    return "\n".join(blocks)


# --- templates -------------------------------------------------------------------------------


def _parse(text: str, position: int, kinds: dict[str, str]) -> tuple[list, int]:
    """Parse one sequence up to ``|``, ``]`` or the end; return its nodes and the position."""
    nodes = []
    while position < len(text) and text[position] not in "|]":
        if text[position] == "[":
            branches = []
            while text[position] != "]":
                branch, position = _parse(text, position + 1, kinds)
                branches.append(branch)
            nodes.append(branches)
            position += 1
        elif text[position] == "{":
            end = text.index("}", position)
            key, _, kind = text[position + 1 : end].partition(":")
            nodes.append((key, kind or kinds[key]))
            position = end + 1
        else:
            end = position
            while end < len(text) and text[end] not in "[]{|":
                end += 1
            nodes.append(text[position:end])
            position = end
    return nodes, position


def compile_template(template: str, kinds: dict[str, str]) -> tuple[str, list]:
    """Return a template's mood (``?``, ``.`` or ``!`` for a command) and its node tree."""
    mood = template[0] if template[0] in "?." else "!"
    text = template if mood == "!" else template[1:]
    for name, body in MACROS.items():
        text = text.replace(name, body)
    nodes, end = _parse(text, 0, kinds)
    if end != len(text):
        raise ValueError(f"unbalanced template: {template}")
    return mood, nodes


def _compile(tool: Tool, more: tuple[str, ...] = ()) -> list[tuple[str, list]]:
    return [compile_template(template, tool.parameters) for template in tool.templates + more]


COMPILED: list[tuple[Tool, list]] = [(tool, _compile(tool)) for tool in TOOLS]
COMPILED_WIDE = [(tool, _compile(tool, MORE[tool.name])) for tool in TOOLS]
WEIGHTS = list(accumulate(tool.weight for tool in TOOLS))
BY_NAME = {tool.name: (tool, compiled) for tool, compiled in COMPILED}
OFF_TOPIC_COMPILED = [compile_template(template, {}) for template in OFF_TOPIC]
OFF_TOPIC_WIDE = [compile_template(template, {}) for template in OFF_TOPIC + MORE_OFF_TOPIC]


@dataclass
class Clause:
    """One rendered clause and how it may be embedded in a request."""

    tool: Tool | None
    mood: str
    segments: list[Segment]
    ends_free: bool


# Kinds of several open words: only an unmistakable joiner may follow such a slot.
FREE_KINDS = frozenset(words(
    "message words note task item countable song artist phrase event reason dish topic customer "
    "course restaurant destination greeting expression"
))


class _Renderer:
    """Expands one template; redraws a value that the clause already holds."""

    def __init__(self, rng: random.Random, share: float, new_values: bool) -> None:
        self.rng, self.share, self.new_values = rng, share, new_values
        self.segments: list[Segment] = []
        self.used: set[str] = set()
        self.last_kind = ""

    def render(self, nodes: list, index: int) -> None:
        for node in nodes:
            if isinstance(node, str):
                self.segments.append([node, None])
                self.last_kind = ""
            elif isinstance(node, list):
                self.render(node[int(self.rng.random() * len(node))], index)
            else:
                key, kind = node
                value = fill(self.rng, kind, self.share, self.new_values)
                while value in self.used:
                    value = fill(self.rng, kind, self.share, self.new_values)
                self.used.add(value)
                self.segments.append([value, (index, key) if key != "x" else None])
                self.last_kind = kind


def _clause(
    rng: random.Random, tool: Tool | None, compiled: list, options: tuple[float, bool], index: int
) -> Clause:
    mood, nodes = compiled[int(rng.random() * len(compiled))]
    renderer = _Renderer(rng, *options)
    renderer.render(nodes, index)
    return Clause(tool, mood, renderer.segments, renderer.last_kind in FREE_KINDS)


def _random_clause(
    rng: random.Random, options: tuple[float, bool], index: int, wide: bool
) -> Clause:
    target = rng.random() * WEIGHTS[-1]
    position = 0
    while WEIGHTS[position] <= target:
        position += 1
    tool, compiled = (COMPILED_WIDE if wide else COMPILED)[position]
    return _clause(rng, tool, compiled, options, index)


# --- wrappers --------------------------------------------------------------------------------

COMMAND_OPENERS = [""] * 12 + [
    "please ", "please ", "could you ", "could you ", "can you ", "can you ", "could you please ",
    "can you please ", "would you ", "will you ", "I need you to ", "I want you to ",
    "I'd like you to ", "hey, ", "hey, can you ", "hi, could you ", "ok, ", "okay, please ",
    "Clover, ", "Clover, please ", "hey Clover, ", "hello, please ", "now ", "quickly ", "just ",
    "would you mind ", "would you mind ", "do you mind ",
]
GERUND_OPENERS = frozenset({"would you mind ", "do you mind "})
OTHER_OPENERS = [""] * 14 + [
    "hey, ", "hi, ", "ok, ", "so, ", "Clover, ", "hey Clover, ", "well, ", "listen, ", "now, ",
]
CLOSERS = [""] * 14 + [", please", ", please", ", thanks", ", thank you"]
WEAK_JOINERS = [
    " and ", " and ", ", and ", ", then ", " and then ", " and also ", ", also ", ", and also ",
    ". Then ", ". Also, ", ". After that, ", "; then ", ", plus ",
]
STRONG_JOINERS = [", and also ", ", and then ", ". Then ", ". Also, ", ". After that, ", "; then "]
DOUBLED = {"set": "setting", "put": "putting", "get": "getting", "let": "letting", "run": "running"}
DOUBLED |= {"drop": "dropping", "dim": "dimming", "plan": "planning", "jot": "jotting"}
DOUBLED |= {"begin": "beginning"}


def gerund(verb: str) -> str:
    """Return the -ing form of a command's first word."""
    if verb in DOUBLED:
        return DOUBLED[verb]
    if verb.endswith("e") and not verb.endswith("ee"):
        verb = verb[:-1]
    return verb + "ing"


def _to_gerund(segments: list[Segment]) -> None:
    head, space, rest = segments[0][0].partition(" ")
    segments[0][0] = gerund(head) + space + rest


def wrap(rng: random.Random, clauses: list[Clause], wide: bool = False) -> list[Segment]:
    """Join clauses, add an opener, a closer and the final punctuation."""
    first, last = clauses[0], clauses[-1]
    joiner = ""
    if len(clauses) == 2:
        # "call Leo and Maya wants ..." would read as two people, hence the second condition.
        strong = first.ends_free or last.segments[0][1] is not None
        joiner = pick(rng, STRONG_JOINERS if strong else WEAK_JOINERS)
    opener = pick(rng, COMMAND_OPENERS if first.mood == "!" else OTHER_OPENERS)
    if wide and first.mood == "!" and rng.random() < MORE_SHARE:
        opener = pick(rng, MORE_OPENERS)
    sentence_break = joiner[:1] in (".", ";")
    if opener in GERUND_OPENERS:
        if sentence_break or any(clause.mood != "!" for clause in clauses):
            opener = "could you "
        else:
            for clause in clauses:
                _to_gerund(clause.segments)
    asks = first.mood == "?" or (" you " in f" {opener}" and not opener.startswith("I"))
    if joiner.startswith(".") and asks:
        joiner = "?" + joiner[1:]
    segments = [[opener, None], *first.segments]
    if len(clauses) == 2:
        segments += [[joiner, None], *last.segments]
        asks = last.mood == "?" or (asks and not sentence_break)
    if wide and not last.ends_free and rng.random() < MORE_SHARE:
        segments.append([pick(rng, MORE_CLOSERS), None])
    elif "please" not in opener:
        segments.append([pick(rng, CLOSERS), None])
    segments.append([_punctuation(rng, asks), None])
    return [segment for segment in segments if segment[0]]


def _punctuation(rng: random.Random, asks: bool) -> str:
    shape = rng.random()
    if shape < 0.45:
        return ""
    if shape < 0.92:
        return "?" if asks else "."
    return pick(rng, ["?", "??", "?!"] if asks else ["!", "..", "!!", " .", "..."])


# --- noise -----------------------------------------------------------------------------------

WORD_RE = re.compile(r"[A-Za-z]{4,}")
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def _typo(rng: random.Random, word: str) -> str:
    """Swap, drop, double or replace one letter after the first."""
    place = 1 + int(rng.random() * (len(word) - 2))
    shape = int(rng.random() * 4)
    if shape == 0:
        return word[:place] + word[place + 1] + word[place] + word[place + 2 :]
    if shape == 1:
        return word[:place] + word[place + 1 :]
    if shape == 2:
        return word[:place] + word[place] + word[place:]
    return word[:place] + pick(rng, LETTERS) + word[place + 1 :]


def _add_typo(rng: random.Random, segments: list[Segment]) -> None:
    """Misspell one word outside the slots, so that the answer stays determined."""
    spots = [
        (segment, match)
        for segment in segments if segment[1] is None
        for match in WORD_RE.finditer(segment[0])
    ]
    if spots:
        segment, match = spots[int(rng.random() * len(spots))]
        text = segment[0]
        segment[0] = text[: match.start()] + _typo(rng, match[0]) + text[match.end() :]


def add_noise(rng: random.Random, segments: list[Segment]) -> None:
    """Change case and spelling the way people do, slots included where case is concerned."""
    if rng.random() < 0.08:
        _add_typo(rng, segments)
    shape = rng.random()
    if shape < 0.15:
        for segment in segments:
            segment[0] = segment[0].lower()
    elif shape < 0.17:
        for segment in segments:
            segment[0] = re.sub(r"(?<![\w'])[a-z]", lambda match: match[0].upper(), segment[0])
    elif shape < 0.18:
        for segment in segments:
            segment[0] = segment[0].upper()
    elif shape < 0.60:
        text = segments[0][0]
        segments[0][0] = text[0].upper() + text[1:]


# --- examples --------------------------------------------------------------------------------


def _finish(segments: list[Segment], tools: list[Tool]) -> Example:
    """Read the calls off the segments, after noise, so values stay verbatim."""
    found: list[dict[str, str]] = [{} for _ in tools]
    for text, slot in segments:
        if slot is not None:
            found[slot[0]][slot[1]] = text
    calls = [
        {"name": tool.name, "arguments": {key: got[key] for key in tool.parameters if key in got}}
        for tool, got in zip(tools, found, strict=True)
    ]
    return Example("".join([text for text, _ in segments]), calls, format_answer(calls))


def sample(
    rng: random.Random, made_up_share: float, new_values: bool = False, wide: bool = False
) -> Example:
    """Draw one example; each open slot is made up with probability ``made_up_share``.

    ``new_values`` draws list values from the slice that training never sees, ``wide`` wordings
    from `phrasings.py`, too, which no held-out set does.
    """
    options = (made_up_share, new_values)
    shape = rng.random()
    if shape < OFF_TOPIC_SHARE:
        off_topic = OFF_TOPIC_WIDE if wide else OFF_TOPIC_COMPILED
        clauses = [_clause(rng, None, off_topic, options, 0)]
    else:
        count = 2 if shape < OFF_TOPIC_SHARE + TWO_CALL_SHARE else 1
        clauses = [_random_clause(rng, options, index, wide) for index in range(count)]
    segments = wrap(rng, clauses, wide)
    add_noise(rng, segments)
    return _finish(segments, [clause.tool for clause in clauses if clause.tool])


# Short requests whose only content is a span to copy: (tool, parameter, template, words).
COPY_TASKS = [
    ("say", "text", "repeat: {}", 4), ("say", "text", "say {}", 4), ("say", "text", 'say "{}"', 4),
    ("say", "text", "repeat after me: {}", 4), ("call_contact", "person", "call {}", 1),
    ("call_contact", "person", "phone {}", 1), ("get_weather", "city", "weather in {}", 2),
    ("define_word", "word", "define {}", 1), ("find_customer", "name", "find customer {}", 2),
    ("navigate", "destination", "directions to {}", 2), ("play_music", "title", "play {}", 3),
    ("take_note", "text", "note: {}", 4), ("add_todo", "task", "to-do: {}", 3),
    ("find_recipe", "dish", "recipe for {}", 2), ("get_news", "topic", "news about {}", 2),
]


def copy_task(rng: random.Random) -> Example:
    """Draw a warm-up example: the answer is one call with a copied, made-up span."""
    name, key, template, most = COPY_TASKS[int(rng.random() * len(COPY_TASKS))]
    capital = rng.random() < 0.4
    span = [made_up_word(rng, capital) for _ in range(1 + int(rng.random() * most))]
    before, after = template.split("{}")
    if rng.random() < 0.3:
        before = before[0].upper() + before[1:]
    end = pick(rng, ["", "", "."])
    segments = [[before, None], [" ".join(span), (0, key)], [after + end, None]]
    return _finish(segments, [BY_NAME[name][0]])
