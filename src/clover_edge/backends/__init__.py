"""Who computes a model's passes: the compiled core, or a runtime that it asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Union

from ..errors import ArgumentError, ModelFormatError
from ..loader import PackedFolder, errors_of_core

if TYPE_CHECKING:
    from .._core import Model as CoreModel

BACKENDS = ("core", "onnxruntime")
Provider = Union[str, tuple[str, Mapping[str, Any]]]  # noqa: UP007 - evaluated on Python 3.10


def check_backend(
    backend: str, providers: Sequence[Provider] | None, drafter: object, mmap: bool
) -> None:
    """ArgumentError naming what does not fit together."""
    if backend not in BACKENDS:
        raise ArgumentError(f"backend: {backend!r} is none of {', '.join(map(repr, BACKENDS))}")
    if backend == "core" and providers is not None:
        raise ArgumentError(f"providers: {providers!r}: are for backend 'onnxruntime'")
    if backend != "core" and drafter is not None:
        raise ArgumentError(f"drafter: {drafter!r}: is for backend 'core'")
    if backend != "core" and not mmap:
        raise ArgumentError("mmap: False: is for backend 'core'")


def open_onnxruntime(
    folder: PackedFolder,
    *,
    providers: Sequence[Provider] | None = None,
    threads: int = 0,
    isa: str | None = None,
    kv: Literal["f32", "f16", "int8"] = "f32",
) -> tuple[CoreModel, tuple[str, ...]]:
    """The core around the sessions of an ONNX folder's graphs, and the providers in use.

    `threads` 0: as many as the process may use. Raises ArgumentError where onnxruntime is not
    installed or lacks a provider, ModelFormatError for a folder or graph that is none,
    UnsupportedModelError for what such a model cannot do.
    """
    from .. import _core

    if not folder.graphs:
        raise ModelFormatError(
            str(folder.path / "config.json"),
            "clover_edge.format",
            "is 'packed', and onnxruntime runs ONNX folders: "
            f"clover-export {folder.path} -o OUT --format onnx makes one of it",
        )
    from .onnxruntime import Graphs

    graphs = Graphs(folder, providers, threads or _core.default_threads())
    with errors_of_core(folder):
        core = _core.Model(
            dict(folder.spec), [], [], threads=threads, isa=isa, kv=kv, external=graphs
        )
    return core, graphs.providers
