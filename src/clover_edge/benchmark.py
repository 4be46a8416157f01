"""Speed of a packed model on synthetic tokens, in records with llama-bench's field names."""

from __future__ import annotations

import datetime
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from .driver import peak_memory
from .errors import ArgumentError
from .generation import (
    DEFAULT_MAX_NEW_TOKENS,
    GenerationConfig,
    has_full_attention,
    is_autoregressive,
    starts_random,
)
from .loader import PackedFolder, open_core
from .machine import cpu_name
from .summary import summarize
from .synthetic import synthetic_ids

if TYPE_CHECKING:
    from ._core import Model as CoreModel

STEPS = 8  # of a block in test "blk"
Sample = tuple[int, dict[str, Any]]  # nanoseconds, and what one repetition counted


class Benchmark:
    """Tests of one model. Every one is repeated, behind a repetition that does not count."""

    def __init__(
        self,
        folder: PackedFolder,
        *,
        threads: int | None = None,
        isa: str | None = None,
        kv: Literal["f32", "f16", "int8"] = "f32",
        repetitions: int = 5,
    ) -> None:
        """Raises ArgumentError for a number of repetitions below 1; other errors: `load`."""
        if repetitions < 1:
            raise ArgumentError(f"repetitions: {repetitions} is below 1")
        self._folder = folder
        self._kv = kv
        self._repetitions = repetitions
        self._core: CoreModel = open_core(folder, threads=threads or 0, isa=isa, kv=kv)
        stops = folder.generation.get("eos_token_id", [])
        self._stops = [stops] if isinstance(stops, int) else list(stops)
        self._fixed = self._facts()

    @property
    def has_prompts(self) -> bool:
        """Whether a prompt takes a pass of its own, which "pp" measures."""
        return not has_full_attention(self._folder.spec)

    @property
    def has_blocks(self) -> bool:
        """Whether the model denoises blocks, which "blk" measures."""
        return not is_autoregressive(self._folder.spec)

    def prompt(self, tokens: int) -> dict[str, Any]:
        """Test "pp": reading a prompt."""
        self._check("n_prompt", tokens, tokens)
        ids = self._ids(tokens)

        def once() -> Sample:
            state = self._core.new_state(tokens)
            started = time.perf_counter_ns()
            self._core.commit(state, ids, logits="none")
            return time.perf_counter_ns() - started, {}

        return self._record(f"pp{tokens}", once, tokens, n_prompt=tokens)

    def block(self, steps: int = STEPS, depth: int = 0) -> dict[str, Any]:
        """Test "blk": one block of the model's width in a stated number of steps (at most its
        width), behind `depth` tokens."""
        options: dict[str, Any] = {"steps": steps}
        if starts_random(self._folder.spec):
            options["confidence_threshold"] = 0  # never sure before the last step
        else:
            options["threshold"] = 1.0
        config = self._config({}, **options)
        return self._generated(f"blk{config.block_length}", config, config.block_length, depth)

    def text(self, tokens: int = DEFAULT_MAX_NEW_TOKENS, depth: int = 0) -> dict[str, Any]:
        """Test "tg": text, decoded greedily in the model's own way, past any stop token."""
        config = self._config(self._folder.generation, temperature=0.0)
        return self._generated(f"tg{tokens}", config, tokens, depth)

    def _generated(
        self, name: str, config: GenerationConfig, tokens: int, depth: int
    ) -> dict[str, Any]:
        ids = self._ids(max(depth, 1))
        width = 1 if config.mode == "ar" else config.block_length
        needed = len(ids) + -(-tokens // width) * width
        self._check("n_gen", tokens, needed)
        options = {**config.core_options(tokens), "stop_ids": []}

        def once() -> Sample:
            state = self._core.new_state(needed)
            counters = self._core.generate(state, ids, options)["counters"]
            return round(1e9 * counters["decode_seconds"]), counters

        fixed: dict[str, Any] = {
            "n_gen": tokens,
            "n_depth": depth,
            "block_length": config.block_length,
        }
        if config.mode != "ar":
            fixed |= {"steps": config.steps, "threshold": config.threshold}
        return self._record(name, once, tokens, **fixed)

    def _record(
        self, name: str, once: Callable[[], Sample], tokens: int, **fixed: Any
    ) -> dict[str, Any]:
        once()
        started = datetime.datetime.now(datetime.timezone.utc)
        samples = [once() for _ in range(self._repetitions)]
        nanoseconds = [max(taken, 1) for taken, _ in samples]
        rates = [tokens * 1e9 / taken for taken in nanoseconds]
        record = {
            **self._fixed,
            **{"n_prompt": 0, "n_gen": 0, "n_depth": 0},
            **fixed,
            "test": name,
            "test_time": started.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "avg_ns": round(statistics.fmean(nanoseconds)),
            "stddev_ns": round(_deviation(nanoseconds)),
            "avg_ts": statistics.fmean(rates),
            "stddev_ts": _deviation(rates),
            "samples_ns": nanoseconds,
            "samples_ts": rates,
            "peak_rss_bytes": peak_memory(),
        }
        counters = samples[-1][1]
        if counters:
            record |= _counted(counters, tokens, nanoseconds[-1])
        return record

    def _facts(self) -> dict[str, Any]:
        from . import __version__

        facts = summarize(self._folder)
        return {
            "build_version": __version__,
            "cpu_info": cpu_name(),
            "gpu_info": "",
            "backends": "CPU",
            "isa": self._core.isa,
            "model_filename": str(self._folder.path),
            "model_type": f"{facts['family']} {facts['recipe']}",
            "model_size": facts["bytes"],
            "model_n_params": facts["parameters"],
            "n_threads": self._core.threads,
            "type_k": self._kv,
            "type_v": self._kv,
            "device": "cpu",
            "quant": facts["recipe"],
            "group_size": facts["group_size"],
        }

    def _config(self, defaults: Mapping[str, Any], **options: Any) -> GenerationConfig:
        path = str(self._folder.path / "config.json")
        return GenerationConfig.resolve(path, self._folder.spec, defaults, **options)

    def _ids(self, count: int) -> list[int]:
        return synthetic_ids(self._folder.spec, count, self._stops)

    def _check(self, name: str, tokens: int, needed: int) -> None:
        limit = self._folder.spec["max_positions"]
        if tokens < 1 or needed > limit:
            raise ArgumentError(
                f"{name}: {tokens} takes {needed} positions; the model has 1 to {limit}"
            )


def _counted(counters: dict[str, Any], tokens: int, nanoseconds: int) -> dict[str, Any]:
    forwards = counters["forward_passes"]
    return {
        "forward_passes": forwards,
        "tokens_per_forward": tokens / forwards if forwards else 0.0,
        "ttfb_ns": round(1e9 * counters["first_block_seconds"]),
        "experts_touched": counters["experts_touched"],
        "bytes_read": counters["bytes_read"],
        "effective_gbps": counters["bytes_read"] / nanoseconds,  # bytes a ns are GB a second
    }


def _deviation(values: list[Any]) -> float:
    return float(statistics.stdev(values)) if len(values) > 1 else 0.0


def all_tests(
    bench: Benchmark, prompts: list[int], texts: list[int], steps: int, depth: int
) -> Iterator[dict[str, Any]]:
    """Records of every test that the model has, one after the other."""
    if bench.has_prompts:
        yield from (bench.prompt(tokens) for tokens in prompts if tokens)
    if bench.has_blocks:
        yield bench.block(steps, depth)
    yield from (bench.text(tokens, depth) for tokens in texts if tokens)
