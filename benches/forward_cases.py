"""Whole forwards on synthetic models, ours and llama.cpp's, as calls to be timed in turns."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from measure import Call
from peers import gguf_model
from peers.llama_cpp_model import Model as LlamaModel
from synthetic import COMMON, Shape, write

from clover_edge.loader import PackedFolder, open_core, read_folder

BLOCK = 32
WARM = 512  # random tokens that touch every expert of a layer, so that its pages are mapped
# How llama.cpp can hold the same weights: file type, and whether it repacks them when it loads.
VARIANTS = {
    "Q4_0": ("Q4_0", True),
    "Q4_K": ("Q4_K", True),
    "Q4_K, repacking off": ("Q4_K", False),
}


# How the rows of a block choose their tokens.
SAMPLING: dict[str, dict[str, float]] = {
    "greedy": {},
    "repetition penalty 1.1": {"repetition_penalty": 1.1},
    "temperature 0.7": {"temperature": 0.7},
    "temperature 0.7, top-k 20, top-p 0.95": {"temperature": 0.7, "top_k": 20, "top_p": 0.95},
    "temperature 0.7, top-p 0.95": {"temperature": 0.7, "top_p": 0.95},
}


class Ids:
    """Random ids, other ones for every call: rows of a block are independent."""

    def __init__(self, vocab: int, seed: int = 0) -> None:
        self._rng, self._limit = np.random.default_rng(seed), vocab - 64

    def __call__(self, count: int) -> list[int]:
        return self._rng.integers(0, self._limit, count).tolist()


class Ours:
    """A packed folder, opened."""

    def __init__(self, path: Path, threads: int, isa: str | None = None, **options: Any) -> None:
        """`options`: mmap and kv, as for `clover_edge.load`."""
        self.folder: PackedFolder = read_folder(path)
        self.core = open_core(self.folder, threads=threads, isa=isa, **options)
        self.ids = Ids(self.folder.spec["vocab_size"])
        self._run = self.core.new_state(1 << 16)
        self._states = {0: self.core.new_state(BLOCK)}  # by committed tokens

    def warm(self) -> None:
        """Maps every page that the calls will read."""
        self.prompt(WARM)()

    def prompt(self, count: int) -> Call:
        """Prefill, logits of the last row."""

        def run() -> None:
            self.core.commit(self.core.new_state(count), self.ids(count))

        return run

    def token(self) -> Call:
        """An autoregressive step behind a few tokens, with logits."""

        def run() -> None:
            self.core.commit(self._run, self.ids(1))

        return run

    def block(self, committed: int, *, every: bool) -> Call:
        """A denoising step of 32 rows behind `committed` tokens; logits of the last row, or of
        `every` row."""
        if committed not in self._states:
            state = self._states[committed] = self.core.new_state(committed + BLOCK)
            self.core.commit(state, self.ids(committed), logits="none")
        state = self._states[committed]

        def run() -> None:
            self.core.preview(state, self.ids(BLOCK), rows=None if every else [BLOCK - 1])

        return run

    def denoise(self, steps: int, **sampling: float) -> Call:
        """A block from nothing in `steps` forwards and its commit; rows choose by `sampling`."""
        never = {"threshold": 2.0, "steps": steps, "max_new_tokens": BLOCK}

        def run() -> None:
            self.core.generate(self.core.new_state(2 * BLOCK), self.ids(BLOCK), never | sampling)

        return run

    def touched(self, call: Call) -> tuple[float, float]:
        """Experts a layer and weight bytes of a call."""
        before = self.core.counters
        call()
        after = self.core.counters
        experts = after["experts_touched"] - before["experts_touched"]
        layers = self.folder.spec["num_layers"]
        return experts / layers, float(after["bytes_read"] - before["bytes_read"])

    def state_bytes(self, committed: int) -> float:
        """What a pass behind `committed` tokens (0, or a block's) reads beside weights."""
        return float(self._states[committed].nbytes)


class Llama:
    """The same shape in llama.cpp."""

    def __init__(self, model: LlamaModel, vocab: int, states: str) -> None:
        """`states`: where long prefixes are kept, as the start of file names."""
        self.model, self.ids, self._states = model, Ids(vocab, seed=1), states

    def warm(self) -> None:
        self.prompt(WARM)()

    def prompt(self, count: int) -> Call:
        def run() -> None:
            self.model.reset()
            self.model.decode(self.ids(count))

        return run

    def token(self) -> Call:
        self.model.reset()
        self.model.decode(self.ids(1))

        def run() -> None:
            if self.model.position > BLOCK:
                self.model.reset()
            self.model.decode(self.ids(1))

        return run

    def block(self, committed: int) -> Call:
        """As `Ours.block` with logits of every row. Moves the sequence there."""
        if self.model.position != committed:
            kept = Path(f"{self._states}-{committed}.state")
            if kept.exists():
                self.model.load(kept, committed)
            else:
                self.model.reset()
                self.model.decode(self.ids(committed))
                self.model.save(kept)
        return lambda: self.model.block_step(self.ids(BLOCK))


@dataclass
class Bench:
    """Models of one shape in a folder, made when they are first asked for."""

    folder: Path
    shape: Shape
    name: str
    threads: int
    isa: str | None = None
    context: int = 4096 + 2 * BLOCK
    options: dict[str, Any] = field(default_factory=dict)  # of Ours

    def path(self, recipe: str = "int4-all", group: int = 32, routing: str = "random") -> Path:
        path = self.folder / f"{self.name}-{recipe}-g{group}-{routing}"
        if not path.exists():
            partial = path.with_name(f".{path.name}.partial")
            write(partial, self.shape, recipe=recipe, group=group, routing=routing)
            partial.rename(path)
        return path

    def ours(
        self, routing: str = "random", isa: str | None = None, recipe: str = "int4-all"
    ) -> Ours:
        path = self.path(recipe, routing=routing)
        made = Ours(path, self.threads, isa or self.isa, **self.options)
        made.warm()
        return made

    @contextmanager
    def llama(
        self, routing: str = "random", only: tuple[str, ...] = ()
    ) -> Iterator[dict[str, Llama]]:
        """All variants, loaded. Raises Missing."""
        with ExitStack() as stack:
            sides = {}
            for label, (kind, repack) in VARIANTS.items():
                if only and label not in only:
                    continue
                path = self.gguf(kind, routing)
                model = stack.enter_context(
                    LlamaModel(path, self.threads, self.context, repack=repack)
                )
                states = f"{path.with_suffix('')}-{'repacked' if repack else 'plain'}"
                sides[label] = Llama(model, self.shape.vocab, states)
                sides[label].warm()
            yield sides

    def gguf(self, kind: str, routing: str) -> Path:
        path = self.folder / f"{self.name}-{kind}-{routing}.gguf"
        if not path.exists():
            partial = path.with_name(f".{path.name}.partial")
            gguf_model.write(partial, self.shape, kind, common=COMMON[routing])
            partial.rename(path)
        return path


@dataclass(frozen=True)
class Paging:
    """Pages this process read from disk, and pages the machine swapped, since some moment."""

    major: int
    swapped: int

    @classmethod
    def now(cls) -> Paging:
        major = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
        counters = dict(
            line.split(maxsplit=1) for line in Path("/proc/vmstat").read_text().splitlines()
        )
        return cls(major, int(counters.get("pswpin", 0)) + int(counters.get("pswpout", 0)))

    def since(self, earlier: Paging) -> Paging:
        return Paging(self.major - earlier.major, self.swapped - earlier.swapped)
