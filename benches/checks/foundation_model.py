"""The demo model on the held-out files: in float, packed, fast, and one token at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from checks.row import Context, Row, at_least, at_most

from clover_edge.evaluation.tasks import Score

FLOAT = "f32"
THRESHOLD = 0.9
EXACT = {"combinations": (95, 1000), "wordings": (75, 300), "made_up": (60, 300)}
POINTS = {"int8": 1.0, "int4": 2.0}
KL = {"int8": 0.002, "int4": 0.05}


def quality_in_float(context: Context) -> Iterator[Row]:
    """Exact match of the parsed calls at threshold 0.9, on each held-out set."""
    for name, (bound, fewest) in EXACT.items():
        score = context.score(FLOAT, name, threshold=THRESHOLD)
        row = at_least(
            f"demo model, float, {name}: exact match (n = {score.n})",
            100 * score.exact,
            bound,
            "{:.1f}",
            " %",
        )
        enough = score.n >= fewest or context.limit is not None
        yield row if enough else Row(row.name, row.figure, f"n >= {fewest}", False)


def quality_when_packed(context: Context) -> Iterator[Row]:
    """int8 and int4 against float on the same prompts: KL of masked positions, exact match."""
    for recipe in ("int8", "int4"):
        found = context.evaluation(recipe).preview
        assert found is not None
        name = f"{recipe} against float: KL of {found['positions']} masked positions"
        yield at_most(name, found["kl"], KL[recipe], "{:.5f}")
        packed = [context.score(recipe, name, threshold=THRESHOLD) for name in EXACT]
        plain = [context.score(FLOAT, name, threshold=THRESHOLD) for name in EXACT]
        row = at_most(
            f"{recipe} against float: exact match lost (n = {sum(s.n for s in plain)})",
            100 * (_pooled(plain) - _pooled(packed)),
            POINTS[recipe],
            "{:.2f}",
            " points",
        )
        each = zip(EXACT, plain, packed, strict=True)
        note = ", ".join(f"{name} {a.exact:.1%} -> {b.exact:.1%}" for name, a, b in each)
        yield replace(row, note=note)


def _pooled(scores: list[Score]) -> float:
    return sum(score.exact * score.n for score in scores) / sum(score.n for score in scores)


def tokens_per_forward(context: Context) -> Iterator[Row]:
    """Tokens up to and including the stop token, by previews and commits, at threshold 0.9."""
    for recipe in (FLOAT, "int4"):
        score = context.score(recipe, "combinations", threshold=THRESHOLD)
        yield at_least(
            f"demo model, {recipe}: tokens per forward at {100 * score.exact:.1f} % exact",
            score.tokens_per_forward,
            3,
        )


def one_token_per_forward(context: Context) -> Iterator[Row]:
    """The two slow ways to the same text: one token a preview, and autoregressive."""
    for label, options in (
        ("one token accepted a forward", {"threshold": 1.0}),
        ("autoregressive", {"mode": "ar"}),
    ):
        score = context.score(FLOAT, "combinations", **options)
        yield at_least(
            f"demo model, {label}: exact match (n = {score.n})",
            100 * score.exact,
            95,
            "{:.1f}",
            " %",
        )
