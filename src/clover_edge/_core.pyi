"""The compiled core. Its docstrings are in the module itself: help(clover_edge._core.Model)."""

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, Literal, Protocol, final, overload

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

Floats = NDArray[np.float32]
Ids = Sequence[int] | NDArray[np.integer[Any]]

kernels: ModuleType  # every kernel for a named instruction set, for tests and benchmarks
timing: ModuleType  # ceilings and timers, for benchmarks
decoding: ModuleType  # how tokens are chosen, for tests

class quant:  # a submodule: floats to stored bytes
    @final
    class Factor:
        @property
        def columns(self) -> int: ...

    @final
    class Encoder:
        def __init__(self, threads: int = 0, isa: str | None = None) -> None: ...
        @property
        def threads(self) -> int: ...
        @property
        def isa(self) -> str: ...
        def encode(
            self,
            rows: NDArray[Any],
            out: NDArray[np.uint8],
            *,
            scheme: str,
            group: int,
            codebook: Sequence[int],
            method: str,
            weights: NDArray[np.float32] | None = None,
            factor: quant.Factor | None = None,
        ) -> tuple[float, float, float, float]: ...
        def factor(self, hessian: NDArray[np.floating[Any]], damping: float) -> quant.Factor: ...

def available_isas() -> list[str]: ...
def isas() -> dict[str, str]: ...
def cpu_features() -> dict[str, bool]: ...
def available_memory() -> int: ...
def default_threads(root: str = "") -> int: ...
def thread_limits(root: str = "") -> dict[str, Any]: ...

class Constraint(Protocol):
    @property
    def bits(self) -> NDArray[np.int32]: ...
    def force(self, most: int, room: int) -> Sequence[int]: ...
    def allowed(self) -> None: ...
    def advance(self, token: int, room: int) -> bool: ...

class External(Protocol):
    def forward(
        self,
        mode: Literal["commit", "preview"],
        ids: NDArray[np.int64],
        positions: NDArray[np.int64],
        sees_to: NDArray[np.int64],
        history_width: float,
        caches: Mapping[str, Floats],
        /,
    ) -> tuple[Floats, dict[str, Floats]]: ...
    def head(self, hidden: Floats, /) -> Floats: ...

@final
class Block:
    def __init__(self) -> None: ...

@final
class State:
    @property
    def position(self) -> int: ...
    @property
    def capacity(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def decided(self) -> bool: ...
    @property
    def cuttable(self) -> bool: ...
    @property
    def marks(self) -> list[int]: ...
    def snapshot(self) -> State: ...
    def restore(self, state: State) -> None: ...
    def truncate(self, position: int) -> None: ...
    def mark(self) -> None: ...
    def keep_marks(self, *, every: int, max_bytes: int) -> None: ...
    def rewind(self, position: int) -> int: ...
    def fork(self, position: int) -> State: ...
    def extend(self, max_tokens: int) -> None: ...
    def save(self, write: Callable[[memoryview], object]) -> None: ...
    def arrays(self) -> dict[str, Floats]: ...

@final
class Model:
    def __init__(
        self,
        spec: Mapping[str, Any],
        files: Sequence[str],
        tensors: Sequence[Mapping[str, Any]],
        *,
        threads: int = 0,
        isa: str | None = None,
        delta_form: Literal["sequential", "closed"] = "sequential",
        mmap: bool = True,
        kv: Literal["f32", "f16", "int8"] = "f32",
        read_ahead: bool | None = None,
        external: External | None = None,
    ) -> None: ...
    @property
    def isa(self) -> str: ...
    @property
    def read_ahead(self) -> bool: ...
    @property
    def threads(self) -> int: ...
    @property
    def chunk_rows(self) -> int: ...
    @property
    def weight_bytes(self) -> int: ...
    @property
    def dense_bytes(self) -> int: ...
    def needs(self, max_tokens: int) -> tuple[int, int]: ...
    @property
    def counters(self) -> dict[str, int]: ...
    def new_state(self, max_tokens: int) -> State: ...
    def load_state(self, data: Buffer, max_tokens: int) -> State: ...
    @overload
    def commit(
        self,
        state: State,
        ids: Ids,
        *,
        logits: Literal["last", "all"] = "last",
        rollback: bool = False,
    ) -> Floats: ...
    @overload
    def commit(
        self, state: State, ids: Ids, *, logits: Literal["none"], rollback: bool = False
    ) -> None: ...
    def preview(
        self,
        state: State,
        ids: Ids,
        rows: Sequence[int] | None = None,
        width: int | None = None,
        *,
        coreset: int | None = None,
        block: Block | None = None,
        compute: Sequence[int] | None = None,
        commit: Ids | None = None,
        soft: Floats | None = None,
        coreset_share: float = 0.0,
    ) -> Floats: ...
    def soft_embeddings(
        self,
        state: State,
        ids: Ids,
        *,
        temperature: float = 1.0,
        soft: Floats | None = None,
    ) -> tuple[Floats, list[float]]: ...
    def time_pass(
        self,
        state: State,
        commit: Ids,
        block: Ids,
        *,
        head: int = 0,
        coreset: int | None = None,
        kept: Block | None = None,
        coreset_share: float = 0.0,
        compute: Sequence[int] | None = None,
    ) -> float: ...
    def observe(
        self,
        callback: Callable[[int, Literal["mixer", "feed_forward"], dict[str, NDArray[Any]]], None]
        | None,
    ) -> None: ...
    def generate(
        self,
        state: State,
        ids: Ids,
        options: Mapping[str, Any] = ...,
        callback: Callable[[dict[str, Any]], bool | None] | None = None,
        draft_state: State | None = None,
        constraint: Constraint | None = None,
    ) -> dict[str, Any]: ...
    def check_drafter(self, drafter: Model) -> None: ...
    def draft(self, draft_state: State, ids: Ids) -> Floats: ...
