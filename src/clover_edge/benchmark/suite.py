"""The tests: pp, blk, tg and ar, each behind any number of tokens."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Literal

from .. import power
from ..backends import Provider, check_backend, open_onnxruntime
from ..driver import peak_memory
from ..errors import ArgumentError
from ..generation import (
    DEFAULT_MAX_NEW_TOKENS,
    GenerationConfig,
    has_full_attention,
    is_autoregressive,
    starts_random,
)
from ..loader import PackedFolder, open_core, read_folder
from ..synthetic import synthetic_ids
from .ceilings import ceilings_apart
from .records import counted, machine_facts, model_facts, spread, timed

if TYPE_CHECKING:
    from .._core import State

STEPS = 8  # of a block in test "blk"
Run = Callable[["State"], "tuple[int, dict[str, Any]]"]  # nanoseconds, and what it counted


class Benchmark:
    """Tests of one model. Every one is repeated, behind a repetition that does not count.

    Tokens that a test stands behind are read once, and each repetition goes on from a copy.
    """

    def __init__(
        self,
        folder: PackedFolder,
        *,
        threads: int | None = None,
        isa: str | None = None,
        kv: Literal["f32", "f16", "int8"] = "f32",
        backend: str = "core",
        providers: Sequence[Provider] | None = None,
        repetitions: int = 5,
        ceilings: bool = False,
    ) -> None:
        """`backend`, `providers`: as for `load`. `ceilings`: the machine's own are measured first,
        which takes seconds and 512 MiB of another process. Raises ArgumentError for a number of
        repetitions below 1; other errors: `load`."""
        if repetitions < 1:
            raise ArgumentError(f"repetitions: {repetitions} is below 1")
        check_backend(backend, providers, None, True)
        self._folder = folder
        self._repetitions = repetitions
        loads, used = [], "core"
        for _ in range(repetitions):
            started = time.perf_counter_ns()
            folder = read_folder(folder.path)
            if backend == "core":
                self._core = open_core(folder, threads=threads or 0, isa=isa, kv=kv)
            else:
                self._core, names = open_onnxruntime(
                    folder, providers=providers, threads=threads or 0, isa=isa, kv=kv
                )
                used = ", ".join(names)
            loads.append(time.perf_counter_ns() - started)
        stops = folder.generation.get("eos_token_id", [])
        self._stops = [stops] if isinstance(stops, int) else list(stops)
        self._meter, why = power.meter()
        source = None if self._meter is None else self._meter.source
        found = ceilings_apart(self._core.threads, self._core.isa) if ceilings else None
        self._fixed = {
            **model_facts(folder, self._core, kv),
            "backends": "CPU" if backend == "core" else f"onnxruntime: {used}",
            **spread("load_ns", loads),
            "power_mode": power.power_mode(),
            "nvpmodel": power.nvpmodel(),
            "machine": machine_facts(self._core, found, (source, why)),
        }
        self._read: State | None = None  # the last tokens that a test stood behind

    @property
    def has_prompts(self) -> bool:
        """Whether a prompt takes a pass of its own, which "pp" measures."""
        return not has_full_attention(self._folder.spec)

    @property
    def has_blocks(self) -> bool:
        """Whether the model denoises blocks, which "blk" measures."""
        return not is_autoregressive(self._folder.spec)

    @property
    def has_both(self) -> bool:
        """Whether a model that denoises blocks can write token by token, too ("ar")."""
        spec = self._folder.spec
        causal = spec.get("mask", "causal") == "causal"
        return self.has_blocks and causal and not starts_random(spec)

    def prompt(self, tokens: int, depth: int = 0) -> dict[str, Any]:
        """Test "pp": reading a prompt."""
        self._check("n_prompt", tokens, depth + tokens)
        ids = self._ids(tokens)

        def read(state: State) -> tuple[int, dict[str, Any]]:
            started = time.perf_counter_ns()
            self._core.commit(state, ids, logits="none")
            return time.perf_counter_ns() - started, {}

        return self._record("pp", tokens, depth, read, depth, depth + tokens, n_prompt=tokens)

    def block(self, steps: int = STEPS, depth: int = 0) -> dict[str, Any]:
        """Test "blk": one block of the model's width in a stated number of steps (at most its
        width), behind `depth` tokens."""
        options: dict[str, Any] = {"steps": steps}
        if starts_random(self._folder.spec):
            options["confidence_threshold"] = 0  # never sure before the last step
        else:
            options["threshold"] = 1.0
        config = self._config({}, **options)
        return self._generated("blk", config, config.block_length, depth)

    def text(self, tokens: int = DEFAULT_MAX_NEW_TOKENS, depth: int = 0) -> dict[str, Any]:
        """Test "tg": text, decoded greedily in the model's own way, past any stop token."""
        config = self._config(self._folder.generation, temperature=0.0)
        return self._generated("tg", config, tokens, depth)

    def autoregressive(
        self, tokens: int = DEFAULT_MAX_NEW_TOKENS, depth: int = 0
    ) -> dict[str, Any]:
        """Test "ar": text, one token a forward, where the model can do both."""
        return self._generated("ar", self._config({}, mode="ar", temperature=0.0), tokens, depth)

    def _generated(
        self, name: str, config: GenerationConfig, tokens: int, depth: int
    ) -> dict[str, Any]:
        width = 1 if config.mode == "ar" else config.block_length
        held = max(depth, 1)  # something decides the first token
        needed = held + -(-tokens // width) * width
        self._check("n_gen", tokens, needed)
        options = {**config.core_options(tokens), "stop_ids": []}

        def write(state: State) -> tuple[int, dict[str, Any]]:
            counters = self._core.generate(state, [], options)["counters"]
            return round(1e9 * counters["decode_seconds"]), counters

        fixed: dict[str, Any] = {"n_gen": tokens, "block_length": config.block_length}
        if config.mode != "ar":
            fixed |= {"steps": config.steps, "threshold": config.threshold}
        return self._record(name, tokens, depth, write, held, needed, **fixed)

    def _behind(self, held: int, needed: int) -> State:
        """A state that has read `held` tokens, with room for `needed`."""
        if self._read is None or self._read.position != held:
            self._read = None
            self._read = self._core.new_state(max(held, 1))
            if held:
                self._core.commit(self._read, self._ids(held), logits="none")
        state = self._core.new_state(needed)
        state.restore(self._read)
        return state

    def _record(
        self, name: str, tokens: int, depth: int, run: Run, held: int, needed: int, **fixed: Any
    ) -> dict[str, Any]:
        run(self._behind(held, needed))
        started = datetime.datetime.now(datetime.timezone.utc)
        throttled = power.throttle_count()
        nanoseconds, counters, joules = [], [], []
        for _ in range(self._repetitions):
            state = self._behind(held, needed)
            before = self._meter.joules if self._meter else 0.0
            with self._meter.running() if self._meter else nullcontext():
                taken, told = run(state)
            nanoseconds.append(max(taken, 1))
            counters.append(told)
            if self._meter:
                joules.append(self._meter.joules - before)
        again = power.throttle_count()
        return {
            **self._fixed,
            **{"n_prompt": 0, "n_gen": 0, "n_depth": depth},
            **fixed,
            "test": f"{name}{tokens}" + (f" @ d{depth}" if depth else ""),
            "test_time": started.strftime("%Y-%m-%dT%H:%M:%SZ"),
            **timed(tokens, nanoseconds),
            **(counted(tokens, nanoseconds, counters) if counters[0] else {}),
            **(spread("energy_j", joules) if joules else {}),
            "peak_rss_bytes": peak_memory(),
            "state_bytes": state.nbytes,
            "throttled": None if throttled is None or again is None else again > throttled,
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


def all_tests(
    bench: Benchmark,
    prompts: Iterable[int],
    texts: Iterable[int],
    steps: int,
    depths: Iterable[int],
    skipped: Callable[[str], object],
) -> Iterator[dict[str, Any]]:
    """Records of every test that the model has, one after the other.

    Behind a depth that leaves no room a test is skipped, and `skipped` told why; without depth that
    is an error.
    """
    tests: list[tuple[Callable[[int, int], dict[str, Any]], int]] = []
    if bench.has_prompts:
        tests += [(bench.prompt, tokens) for tokens in prompts if tokens]
    if bench.has_blocks:
        tests.append((bench.block, steps))
    wanted = [tokens for tokens in texts if tokens]
    tests += [(bench.text, tokens) for tokens in wanted]
    if bench.has_both:
        tests += [(bench.autoregressive, tokens) for tokens in wanted]
    for depth in depths:
        for test, amount in tests:
            try:
                yield test(amount, depth)
            except ArgumentError as error:
                if not depth:
                    raise
                skipped(f"{test.__name__} behind {depth} tokens: {error}")
