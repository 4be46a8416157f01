"""The graphs of an ONNX folder in onnxruntime sessions, as the core asks for passes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError, CloverError, ModelFormatError
from ..loader import PackedFolder

if TYPE_CHECKING:
    from . import Provider

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]

DEFAULT_PROVIDERS = ("CPUExecutionProvider",)
_NO_ROWS = np.zeros(0, np.int64)  # logits are asked of the head's graph, when a row is decided


class Graphs:
    """Sessions of the graphs `preview`, `commit` and `head`; the core's `external`.

    Keys, values and recurrent states stay with the core, in the machine's memory: a session reads
    them where they are, and a provider for another device copies them there for every pass.
    """

    def __init__(
        self, folder: PackedFolder, providers: Sequence[Provider] | None, threads: int
    ) -> None:
        """Raises what `open_onnxruntime` says."""
        try:
            import onnxruntime
        except ModuleNotFoundError as error:
            raise ArgumentError(
                f"backend: 'onnxruntime' needs the package {error.name}: "
                "pip install 'clover-edge[onnx]'"
            ) from None
        chosen = _checked(providers, onnxruntime.get_available_providers())
        self._path = folder.path
        self._options = _session_options(onnxruntime, threads)
        opened: dict[str, Any] = {}  # by file, which may be that of two kinds
        for name in dict.fromkeys(folder.graphs.values()):
            path = str(folder.path / name)
            try:
                opened[name] = onnxruntime.InferenceSession(path, self._options, providers=chosen)
            except Exception as error:  # a class for each of its status codes, without a root
                raise ModelFormatError(path, "graph", f"onnxruntime: {error}") from error
        self._sessions = {kind: opened[name] for kind, name in folder.graphs.items()}
        self.providers: tuple[str, ...] = tuple(self._sessions["commit"].get_providers())
        self._inputs = {kind: _names(each.get_inputs()) for kind, each in self._sessions.items()}
        self._outputs = {kind: list(_wanted(kind, folder.spec)) for kind in self._sessions}
        for kind, session in self._sessions.items():
            lacks = set(self._outputs[kind]) - _names(session.get_outputs())
            if lacks:
                path = str(folder.path / folder.graphs[kind])
                raise ModelFormatError(path, min(lacks), "is no output of the graph")

    def forward(
        self,
        mode: Literal["commit", "preview"],
        ids: Ids,
        positions: Ids,
        sees_to: Ids,
        history_width: float,
        caches: Mapping[str, Floats],
        /,
    ) -> tuple[Floats, dict[str, Floats]]:
        """The core's question for a pass of n rows: (hidden [n, H], what they leave by the caches'
        names). Raises CloverError with onnxruntime's own message."""
        feed: dict[str, NDArray[Any]] = {
            "ids": ids,
            "positions": positions,
            "sees_to": sees_to,
            "rows": _NO_ROWS,
            "history_width": np.array(history_width, np.float32),
            **caches,
        }
        hidden, *new = self._run(mode, feed)
        names = (name.removesuffix("_new") for name in self._outputs[mode][1:])
        return hidden, dict(zip(names, new, strict=True))

    def head(self, hidden: Floats, /) -> Floats:
        """Logits [m, V] of hidden [m, H]."""
        return self._run("head", {"hidden": hidden})[0]

    def _run(self, kind: str, feed: Mapping[str, NDArray[Any]]) -> list[Floats]:
        inputs = self._inputs[kind]
        try:
            found: list[Floats] = self._sessions[kind].run(
                self._outputs[kind], {name: feed[name] for name in feed.keys() & inputs}
            )
        except Exception as error:
            raise CloverError(f"{self._path}: onnxruntime: {kind}: {error}") from error
        return found


def _checked(providers: Sequence[Provider] | None, available: Sequence[str]) -> list[Provider]:
    chosen = list(DEFAULT_PROVIDERS if providers is None else providers)
    if not chosen or isinstance(providers, str):
        raise ArgumentError(f"providers: {providers!r} is no list of names")
    for provider in chosen:
        name = provider if isinstance(provider, str) else provider[0]
        if name not in available:
            raise ArgumentError(
                f"providers: {name!r} is not in this build of onnxruntime "
                f"(there are: {', '.join(available)})"
            )
    return chosen


def _session_options(onnxruntime: Any, threads: int) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.enable_mem_pattern = False  # which serves passes that are all of one shape
    options.log_severity_level = 3  # errors
    return options


def _names(places: Sequence[Any]) -> set[str]:
    return {place.name for place in places}


def _wanted(kind: str, spec: Mapping[str, Any]) -> Iterator[str]:
    """Outputs of a graph that are read, `hidden` or `logits` first."""
    if kind == "head":
        yield "logits"
        return
    yield "hidden"
    for layer, mixer in enumerate(spec["layer_types"]):
        if mixer == "attention":
            yield from (f"kv.{layer}.{part}_new" for part in "kv")
        elif kind == "commit":
            yield from (f"delta.{layer}.{part}_new" for part in ("S", "ring"))
