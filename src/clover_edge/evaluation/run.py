"""One evaluation: a model, what it is compared with, and the text."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import demo
from ..corpus import (
    PLAIN_TEXT,
    TASK_SETS,
    Sequence,
    demo_documents,
    read_documents,
    sequences,
    task_rows,
)
from ..default_model import opened
from ..errors import ArgumentError
from ..generation import (
    GenerationConfig,
    has_full_attention,
    is_autoregressive,
    starts_random,
)
from ..model import Model
from .passes import Passes
from .reference import Progress, opened_reference, same_layers
from .report import Evaluation
from .tasks import Score, score


@dataclass(frozen=True)
class Measure:
    """How much is measured and how (see `evaluate`)."""

    limit: int
    sequence_length: int
    masks: int
    seed: int
    block_length: int | None
    coreset_size: int | None

    def __post_init__(self) -> None:
        """ArgumentError naming a value that is not valid."""
        for name, least in (("limit", 1), ("sequence_length", 2), ("masks", 1), ("seed", 0)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise ArgumentError(f"{name}: {value!r} is not an integer of at least {least}")

    def width(self, model: Model) -> int | None:
        """Positions of a preview; None for a model that has none, or whose blocks have no masks."""
        if is_autoregressive(model.spec) or starts_random(model.spec):
            return None
        width: int = model.spec["block_size"]
        most = width
        if has_full_attention(model.spec):  # all that is predicted is one canvas
            width, most = self.sequence_length, model.spec["max_positions"]
        width = width if self.block_length is None else self.block_length
        if type(width) is not int or not 1 <= width <= most:
            raise ArgumentError(f"block_length: {width!r} is not an integer from 1 to {most}")
        return width

    def decoding(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Options of the tasks' answers."""
        given = {"block_length": self.block_length, "coreset_size": self.coreset_size}
        given = {name: value for name, value in given.items() if value is not None}
        return {"seed": self.seed, **given, **options}


def evaluate(
    model: Model | str | Path | None = None,
    *,
    against: Model | str | Path | None = None,
    text: str | Path | None = None,
    tasks: bool | None = None,
    limit: int = 128,
    sequence_length: int = 512,
    masks: int = 1,
    seed: int = 0,
    block_length: int | None = None,
    coreset_size: int | None = None,
    progress: Progress | None = None,
    **decoding: Any,
) -> Evaluation:
    """Measures a packed model on real text, and against another one (docs/evaluate.md).

    `model`: as for generate(). `against`: a packed folder, or a checkpoint, packed for the while
    to float. `text`: a file (.txt or .jsonl); left out, the demo model gets its held-out requests,
    another one a short text of the package's. `tasks`: exact match on the demo model's requests;
    None: where the model has its tokenizer. At most `limit` sequences of `sequence_length` tokens,
    and requests of each task set. `masks`: previews of each block, each with other positions
    masked, drawn with `seed`. `block_length`, `coreset_size`: of the previews, and of the tasks'
    answers, which take further options of generate(). `progress(what, done, total)`.

    Raises ArgumentError for text, options and unlike vocabularies, and what load() and
    export_checkpoint() raise.
    """
    measure = Measure(limit, sequence_length, masks, seed, block_length, coreset_size)
    progress = progress or _silent
    with ExitStack() as stack:
        ready = stack.enter_context(opened(model))
        width, is_demo = measure.width(ready), demo.is_demo(ready.codec)
        options = measure.decoding(decoding)
        GenerationConfig.resolve(
            str(ready.path / "config.json"), ready.spec, ready.generation, **options
        )
        source, walked = _text(ready, text, is_demo, measure)
        reference = None
        if against is not None:
            reference = stack.enter_context(opened_reference(against, ready, progress))
        passes = _walk(ready, reference, walked, width, measure, progress)
        models = [ready] if reference is None else [ready, reference]
        scores: dict[str, list[Score]] = {}
        if is_demo if tasks is None else tasks:
            scores = _tasks(models, limit, options, progress)
        facts = {"source": source, "sequences": len(walked), "seed": seed, "masks": masks}
        return Evaluation.of(models, facts, walked, passes, scores)


def _walk(
    model: Model,
    reference: Model | None,
    walked: list[Sequence],
    width: int | None,
    measure: Measure,
    progress: Progress,
) -> Passes:
    both = [model] if reference is None else [model, reference]
    passes = Passes(
        *both,
        width=None if any(is_autoregressive(one.spec) for one in both) else width,
        layers=reference is not None and same_layers(model, reference),
        commits=not has_full_attention(model.spec),
        coreset=measure.coreset_size,
        masks=measure.masks,
        seed=measure.seed,
    )
    with ExitStack() as stack:
        for one in dict.fromkeys(both):
            stack.enter_context(one.exclusive())
        for number, sequence in enumerate(walked):
            progress("text", number, len(walked))
            passes.add(sequence)
    progress("text", len(walked), len(walked))
    return passes


def _text(
    model: Model, text: str | Path | None, is_demo: bool, measure: Measure
) -> tuple[str, list[Sequence]]:
    """What the text is called, and its sequences."""
    if text is not None:
        name, documents = Path(text).name, read_documents(text)
    elif is_demo:
        name, documents = "the demo model's held-out requests", demo_documents()
    else:
        name, documents = f"the package's {PLAIN_TEXT.name}", read_documents(PLAIN_TEXT)
    length = min(measure.sequence_length, model.spec["max_positions"])
    return name, sequences(model, documents, length=length, limit=measure.limit)


def _tasks(
    models: list[Model], limit: int, decoding: Mapping[str, Any], progress: Progress
) -> dict[str, list[Score]]:
    """By held-out set, a score for each model."""
    sets = {name: task_rows(name)[:limit] for name in TASK_SETS}
    total = len(models) * sum(len(rows) for rows in sets.values())
    done = 0

    def tell(count: int) -> None:
        nonlocal done
        done += count
        progress("tasks", done, total)

    return {
        name: [score([one], rows, progress=tell, **decoding) for one in models]
        for name, rows in sets.items()
    }


def _silent(what: str, done: int, total: int) -> None:
    """Tells nobody."""
