"""What tells right from wrong for a family, computed on the spot: `transformers`' own class on the
same tiny weights, and a plain greedy loop over it that caches nothing.

The makers of golden files hold the code; with the `judge` extra it runs here. A judge knows the
core's words for what it computes: ids to commit, options to generate with.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from golden_files import maker_of
from tiny_blocks import make_blocks
from tiny_canvas import make_canvas
from tiny_clover import make_checkpoint
from tiny_full_attention import make_full_attention
from tiny_hybrid import make_hybrid
from tiny_nemotron import make_nemotron
from tiny_transformer import make_transformer
from torch_models import logits_of

Array = np.ndarray
_WITH_VISION = ("qwen3_5", "qwen3_5_moe", "gemma3")  # whose text model has a type of its own


class Text(NamedTuple):
    """A greedy generation: what the core is asked for, and the ids that are right."""

    prompt: list[int]
    options: dict[str, Any]
    ids: list[int]
    margin: float  # of the closest decision


class Judge(ABC):
    """Of one tiny checkpoint. What runs `transformers` raises ImportError without it."""

    @abstractmethod
    def write(self, folder: Path, model_type: str) -> None:
        """The checkpoint, in float32 and in the layout of that model type."""

    @abstractmethod
    def logits(self) -> tuple[Sequence[int], Array]:
        """Ids to commit to an empty state, and the logits [n, V] of `transformers` for them."""

    @abstractmethod
    def text(self, mode: str) -> Text:
        """A whole greedy generation in that mode."""


class Autoregressive(Judge):
    """Causal models: cases of make_autoregressive.py or make_transformers.py.

    ``start``: where in the common ids the prompt begins; some make a model repeat itself.
    """

    def __init__(self, maker: str, case: str, start: int = 0) -> None:
        self._maker, self._case, self._loop = maker_of(maker), case, maker_of("autoregressive")
        self._start = start

    def write(self, folder: Path, model_type: str) -> None:
        family, options = self._maker.options(self._case)
        if self._maker.__name__ == "make_transformers":
            make_transformer(folder, family, **options)
        else:  # a release with a vision tower, or its text model alone
            nested = model_type in _WITH_VISION
            self._maker.make(folder, family, **{**options, "nested": nested})
        _name(folder, model_type)

    def logits(self) -> tuple[Sequence[int], Array]:
        ids = self._loop.token_ids()
        return ids.tolist(), logits_of(self._maker.official(self._case), ids)

    def text(self, mode: str) -> Text:
        loop = self._loop
        prompt = loop.token_ids()[self._start :][: loop.PROMPT]
        ids, margin = loop.greedy(self._maker.official(self._case), prompt)
        return Text(prompt.tolist(), {"max_new_tokens": loop.NEW}, ids.tolist(), margin)


class Blocks(Judge):
    """Families under a block mask, three blocks, as make_blocks.py has them."""

    def __init__(self, family: str, seed: int, options: dict[str, Any]) -> None:
        self._family, self._options, self._maker = family, options, maker_of("blocks")
        self._seed = seed

    def write(self, folder: Path, model_type: str) -> None:
        self._tensors = make_blocks(folder, self._family, seed=self._seed, dtype="f32")
        self._config = json.loads((folder / "config.json").read_text())
        _name(folder, model_type)

    def logits(self) -> tuple[Sequence[int], Array]:
        ids = self._maker.token_ids()
        return ids, self._maker.transformers_judge(self._tensors, self._config)(ids, 0)

    def text(self, mode: str) -> Text:
        from oracle.blocks import generate_blocks

        judge = self._maker.transformers_judge(self._tensors, self._config)
        prompt = self._maker.token_ids()[: self._maker.PROMPT]
        asked = self._maker.block_options(self._config, self._options)
        found = generate_blocks(judge, prompt, asked)
        names = ("max_new_tokens", "threshold", "sub_block")
        options = {name: getattr(asked, name) for name in names}
        return Text(prompt, options, found.ids, found.margin)


class Hybrid(Judge):
    """Conversions of the hybrid trunk to block diffusion, as make_hybrid_blocks.py has them."""

    def __init__(self, case: str) -> None:
        self._maker, self._case = maker_of("hybrid_blocks"), case

    def write(self, folder: Path, model_type: str) -> None:
        make_hybrid(folder, self._maker.CASES[self._case][0], **self._maker.arguments(self._case))
        _name(folder, model_type)

    def _judge(self) -> Any:
        self._tensors, self._config = self._maker.tensors_of(self._case)
        return self._maker.transformers_judge(self._tensors, self._config, False)

    def logits(self) -> tuple[Sequence[int], Array]:
        ids = self._maker.token_ids()  # whole blocks, so that they count from either end
        return ids, self._judge()(ids, 0)

    def text(self, mode: str) -> Text:
        from oracle.blocks import generate_blocks

        judge, prompt = self._judge(), self._maker.token_ids()[: self._maker.PROMPT]
        asked = self._maker.options_of(self._case, self._config)
        found = generate_blocks(judge, prompt, asked)
        options = {"max_new_tokens": asked.max_new_tokens, "threshold": asked.threshold}
        return Text(prompt, options, found.ids, found.margin)


class Nemotron(Judge):
    """Ministral 3's layers, as make_nemotron.py has them; what is drafted and verified is the
    autoregressive text."""

    def __init__(self, case: str) -> None:
        self._maker, self._case = maker_of("nemotron"), case

    def write(self, folder: Path, model_type: str) -> None:
        make_nemotron(folder, **self._maker.arguments(self._case))

    def _judge(self) -> Any:
        tensors, self._config = self._maker.tensors_of(self._case)
        return self._maker.transformers_judge(tensors, self._config)

    def logits(self) -> tuple[Sequence[int], Array]:
        ids = self._maker.token_ids()
        return ids, self._judge()(ids, len(ids))

    def text(self, mode: str) -> Text:
        from oracle.blocks import generate_blocks

        judge, prompt = self._judge(), self._maker.token_ids()[: self._maker.PROMPT]
        width = {} if mode == "diffusion" else {"width": 1}
        asked = self._maker.options_of(self._case, self._config, **width)
        found = generate_blocks(judge, prompt, asked)
        options = {"max_new_tokens": asked.max_new_tokens}
        if mode == "diffusion":
            options["threshold"] = asked.threshold
        return Text(prompt, options, found.ids, found.margin)


class Canvases(Judge):
    """DiffusionGemma, three canvases, as make_canvases.py has them."""

    def __init__(self, case: str) -> None:
        self._maker, self._case = maker_of("canvases"), case

    def write(self, folder: Path, model_type: str) -> None:
        make_canvas(folder, **self._maker.arguments(self._case))

    def logits(self) -> tuple[Sequence[int], Array]:
        ids = self._maker.token_ids()
        return ids.tolist(), self._maker.Official(self._case).commit(ids)[0]

    def text(self, mode: str) -> Text:
        from oracle.canvas import generate_canvases

        _, config = self._maker.weights(self._case)
        asked = self._maker.options_of(self._case, config)
        prompt = self._maker.token_ids()[: self._maker.PROMPT].tolist()
        found = generate_canvases(self._maker.Official(self._case), prompt, asked)
        names = ("seed", "steps", "t_min", "t_max", "entropy_bound")
        names += ("stability_threshold", "confidence_threshold")
        options = {name: getattr(asked, name) for name in names}
        options["max_new_tokens"] = asked.canvases * asked.width
        return Text(prompt, options, found.ids, found.margin)


class FullAttention(Judge):
    """Cases of make_full_attention.py, decoded without a cache."""

    def __init__(self, case: str) -> None:
        self._case, self._maker = case, maker_of("full_attention")

    def write(self, folder: Path, model_type: str) -> None:
        family = self._maker.CASES[self._case][0]
        made = make_full_attention(folder, family, **self._maker.arguments(self._case))
        self._tensors, self._config = made

    def _judge(self) -> Any:
        return self._maker.TransformersJudge(self._tensors, self._config)

    def logits(self) -> tuple[Sequence[int], Array]:
        ids = self._maker.token_ids()
        return ids, self._judge().logits(ids)

    def text(self, mode: str) -> Text:
        from oracle.full_attention import generate_canvas

        prompt = self._maker.token_ids()[: self._maker.PROMPT]
        asked = self._maker.options_of(self._case, self._config)
        found = generate_canvas(self._judge().part, prompt, asked)
        options = {
            "max_new_tokens": asked.max_new_tokens,
            "block_length": asked.width,
            "threshold": asked.threshold,
            "cache": "none",
        }
        return Text(prompt, options, found.ids, found.margin)


class Clover(Judge):
    """Commits are Qwen3.5-MoE's, as make_qwen35_moe.py has them; previews have no official
    implementation, so the float64 oracle decodes."""

    def __init__(self) -> None:
        self._maker = maker_of("qwen35_moe")

    def write(self, folder: Path, model_type: str) -> None:
        make_checkpoint(folder, **self._maker.MAKER)
        _name(folder, model_type)

    def logits(self) -> tuple[Sequence[int], Array]:
        ids = self._maker.token_ids()
        return ids.tolist(), self._maker.transformers_logits(*self._maker.weights(), ids)[0]

    def text(self, mode: str) -> Text:
        from oracle.clover import Clover as Oracle
        from oracle.decode import Options, generate

        model = Oracle(*self._maker.weights())
        prompt = self._maker.token_ids()[:19].tolist()
        options = {"max_new_tokens": 24, "block_length": 8, "threshold": 0.5}
        options["mode"] = "ar" if mode == "speculative" else mode  # of one text
        asked = Options(valid_vocab=model.config.mask_token_id + 1, **options)
        found, _ = generate(model, model.start(), prompt, asked)
        return Text(prompt, options, found.ids, found.margin)


def _name(folder: Path, model_type: str) -> None:
    """The text model's own type, where the maker writes that of the release."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    if model_type not in config["architectures"]:  # else a class that decides alone
        path.write_text(json.dumps({**config, "model_type": model_type}))
