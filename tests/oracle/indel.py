"""LLaDA2.2's decoding, the plain way: a list of cells, and the whole text again every step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from oracle.blocks import BlockOptions, Judge
from oracle.equations import Array, softmax


@dataclass
class Cell:
    token: int
    original: bool  # a mask that the block started with, or what became of it


@dataclass
class IndelText:
    ids: list[int] = field(default_factory=list)
    written: list[list[int]] = field(default_factory=list)  # by step, in the block
    margin: float = np.inf  # of the closest decision
    events: set[str] = field(default_factory=set)  # which of the rules had their say


@dataclass(frozen=True)
class Commands:
    delete: int
    split: int
    max_post_steps: int = 16


def generate_indel(
    judge: Judge, prompt: Sequence[int], o: BlockOptions, commands: Commands
) -> IndelText:
    """Greedy, blocks from position 0; the prompt's cells in the first block never move."""
    out, text = IndelText(), list(prompt)
    while len(text) - len(prompt) < o.max_new_tokens:
        width = o.width - len(text) % o.width
        text += _Block(judge, text, width, o, commands, out).run()
    out.ids = text[len(prompt) :][: o.max_new_tokens]
    return out


class _Block:
    def __init__(
        self,
        judge: Judge,
        text: list[int],
        width: int,
        o: BlockOptions,
        commands: Commands,
        out: IndelText,
    ) -> None:
        self.judge, self.text, self.o, self.c, self.out = judge, text, o, commands, out
        self.cells = [Cell(o.mask, True) for _ in range(width)]
        self.history: list[list[int]] = []
        self.sampled: list[list[int]] = [[] for _ in range(width)]

    def run(self) -> list[int]:
        updates = post = 0
        while True:
            tokens = [cell.token for cell in self.cells]
            z = self.judge([*self.text, *tokens], 0)[len(self.text) :][:, : self.o.valid_vocab]
            masks = [i for i, token in enumerate(tokens) if token == self.o.mask]
            original = [i for i in masks if self.cells[i].original]
            x, p = self.predict(z, original)
            chosen = self.unmask(p, masks, original)
            updates, post = updates + 1, post + (not original)
            limit = self.c.max_post_steps
            finish = (not original and post >= limit) or updates > len(tokens) + limit
            finish = finish or (limit == 0 and not set(original) - set(chosen))
            if finish:
                self.out.events.add("cleanup" if masks else "limit")
                chosen = masks
                for i, token in enumerate(x):
                    if token in (self.o.mask, self.c.delete, self.c.split):
                        self.out.events.add("scrubbed")
                        x[i] = self.best(z[i], [self.o.mask, self.c.delete, self.c.split])
            edits = self.edits(x, p, tokens)
            written = sorted([*chosen, *edits])
            self.out.written.append(written)
            if not written:
                return tokens
            if tokens in self.history and not finish:
                self.break_loop(x, p, z, tokens, written)
            self.history.append(tokens)
            for i in written:
                self.sampled[i].append(x[i])
            self.rewrite({i: x[i] for i in written})
            if finish:
                return [cell.token for cell in self.cells]

    def predict(self, z: Array, original: list[int]) -> tuple[list[int], list[float]]:
        x, p = [], []
        for i, row in enumerate(z):
            probability = softmax(row)
            token = self.best(row, [self.o.mask] if i in original else [])
            if i in original and int(row.argmax()) == self.o.mask:
                self.out.events.add("fallback")
            x.append(token)
            p.append(float(probability[token]))
        return x, p

    def best(self, row: Array, banned: list[int]) -> int:
        allowed = row.copy()
        allowed[banned] = -np.inf
        second, first = np.sort(softmax(allowed))[-2:]
        self.note(float(first - second))
        return int(allowed.argmax())

    def unmask(self, p: list[float], masks: list[int], original: list[int]) -> list[int]:
        if not original:
            return masks
        needed = 1 + len(masks) - len(original)
        sure = [i for i in masks if p[i] > self.o.threshold]
        self.note(*(abs(p[i] - self.o.threshold) for i in masks))
        if len(sure) >= needed:
            return sure
        order = sorted(masks, key=lambda i: -p[i])
        if needed < len(order):
            self.note(p[order[needed - 1]] - p[order[needed]])
        return order[:needed]

    def edits(self, x: list[int], p: list[float], tokens: list[int]) -> list[int]:
        limit = self.o.edit_threshold
        if limit is None:
            return []
        cells = [i for i, t in enumerate(tokens) if t != self.o.mask and x[i] != t]
        self.note(*(abs(p[i] - limit) for i in cells))
        return [i for i in cells if p[i] > limit]

    def break_loop(
        self, x: list[int], p: list[float], z: Array, tokens: list[int], written: list[int]
    ) -> None:
        changing = [i for i in written if x[i] != tokens[i]]
        if not changing:
            return
        self.out.events.add("loop")
        at = min(changing, key=lambda i: p[i])
        self.note(*(p[i] - p[at] for i in changing if i != at))
        own = self.cells[at].original and tokens[at] == self.o.mask
        x[at] = self.best(z[at], [*self.sampled[at], *([self.o.mask] if own else [])])

    def rewrite(self, tokens: dict[int, int]) -> None:
        new: list[Cell] = []
        for i, cell in enumerate(self.cells):
            token = tokens.get(i, cell.token)
            if token == self.c.delete:
                self.out.events.add("delete")
            elif token == self.c.split:
                self.out.events.add("split")
                new += [Cell(self.o.mask, False), cell]
            else:
                new.append(Cell(token, cell.original))
        width = len(self.cells)
        new += [Cell(self.o.mask, False) for _ in range(width - len(new))]
        self.cells = new[:width]

    def note(self, *gaps: float) -> None:
        self.out.margin = min([self.out.margin, *gaps])
