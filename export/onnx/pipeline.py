"""Packed folder to ONNX folder: graphs first, which say what they multiply by, then the weights as
a stream. Whatever happens, the target is complete or untouched."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ... import __version__
from ...errors import ArgumentError, ExportError
from ...loader import FORMAT_VERSION, PackedFolder, open_core, read_folder
from ..checkpoint import Checkpoint
from ..families import read_model
from ..files import read_json
from ..partial import Partial, identity
from ..pipeline import COPIED, check_target, export_checkpoint
from ..weights import Progress
from .body import body, head_alone
from .graph import ACTIVATIONS, Graph, import_onnx
from .packed import PackedTensors
from .spec import Spec, read_spec
from .weights import Weights

_SLACK = 16 << 20  # graphs and side files
_SUFFIX = ".onnx"
_BUILDERS: Mapping[str, Callable[[Graph, Spec], None]] = {
    "preview": partial(body, commit=False),
    "commit": partial(body, commit=True),
    "head": head_alone,
}


@dataclass(frozen=True)
class OnnxPlan:
    """Graphs by the name of their file, the file of each role, and the weights that they share."""

    folder: PackedFolder
    graphs: Mapping[str, Graph]
    files: Mapping[str, str]
    weights: Weights
    activations: str

    @property
    def nbytes(self) -> int:
        """Of the data file."""
        return self.weights.nbytes

    def as_dict(self) -> dict[str, Any]:
        """What there will be, for `--json`."""
        files = dict(self.files)
        return {"graphs": files, "activations": self.activations, "data_bytes": self.nbytes}


def plan_onnx(packed: str | Path, *, activations: str = "int8") -> OnnxPlan:
    """The graphs of a packed folder; reads its description and its small tensors.

    ``activations``: what products with quantised weights read. ``"int8"``: onnxruntime's kernels
    may round them to 8 bits, in blocks of their own. ``"float"``: float32, where there is such a
    kernel. ``"core"``: rounded by nodes of the graph just as the core does, for comparison with it.

    Raises ModelFormatError, UnsupportedModelError naming the spec's field, ArgumentError, or
    ExportError where the package onnx is missing.
    """
    if activations not in ACTIVATIONS:
        raise ArgumentError(f"activations must be {', '.join(ACTIVATIONS)}, not {activations!r}")
    folder = read_folder(packed)
    spec = read_spec(folder.spec)
    open_core(folder, threads=1)  # refuses what is missing, surplus or of the wrong shape
    weights = Weights(PackedTensors(folder))
    graphs, files = {}, _files(spec)
    for file in dict.fromkeys(files.values()):
        role = file.removesuffix(_SUFFIX)
        graphs[file] = Graph(role, weights, activations)
        _BUILDERS[role](graphs[file], spec)
    return OnnxPlan(folder, graphs, files, weights, activations)


def write_onnx(plan: OnnxPlan, out: str | Path, *, progress: Progress | None = None) -> None:
    """Write the folder, which must be absent or empty. ``progress(done, total, name)``: bytes.

    Raises ExportError.
    """
    target = check_target(Path(out))
    free = shutil.disk_usage(target.parent).free
    if (needed := plan.nbytes + _SLACK) > free:
        raise ExportError(f"{target.parent}: the export needs {needed:,} bytes, {free:,} are free")
    made_of = identity(__version__, FORMAT_VERSION, str(plan.folder.path), plan.activations)
    try:
        with Partial(target, made_of, resume=False) as growing:
            for file, graph in plan.graphs.items():
                graph.save(growing.folder / file)
            plan.weights.write(growing.folder, progress)
            for file in plan.graphs:
                import_onnx().checker.check_model(str(growing.folder / file))
            _write_side_files(plan, growing.folder)
            growing.finish()
    except OSError as problem:
        place = problem.filename or target
        raise ExportError(f"{place}: {problem.strerror or problem}") from problem


def export_onnx(
    source: str | Path,
    out: str | Path,
    *,
    activations: str = "int8",
    progress: Progress | None = None,
    **packing: Any,
) -> None:
    """Write a checkpoint, or a packed folder as it is, as ONNX graphs into ``out``, which must be
    absent or empty. ``packing``: of a checkpoint, what ``export_checkpoint`` takes. ``progress``
    counts a checkpoint's parameters while it is packed, then bytes.

    Raises what ``export_checkpoint`` and ``plan_onnx`` do, and ArgumentError for ``packing`` that
    is given for a packed folder.
    """
    check_target(Path(out))
    import_onnx()
    if is_packed(source):
        refuse_packing(source, packing)
        write_onnx(plan_onnx(source, activations=activations), out, progress=progress)
        return
    with Checkpoint(source) as checkpoint:
        read_spec(read_model(checkpoint).spec)
    with packing_place(out) as packed:
        export_checkpoint(source, packed, progress=progress, **packing)
        write_onnx(plan_onnx(packed, activations=activations), out, progress=progress)


def is_packed(source: str | Path) -> bool:
    """Whether the folder is packed already, and no checkpoint; ArgumentError where it holds ONNX
    graphs."""
    config = Path(source) / "config.json"
    ours = read_json(config).get("clover_edge") if config.is_file() else None
    if isinstance(ours, dict) and ours.get("format") == "onnx":
        raise ArgumentError(f"{source}: is an ONNX folder already")
    return ours is not None


def refuse_packing(source: str | Path, names: Any) -> None:
    """ArgumentError where a packed folder is to be packed in some way."""
    if listed := ", ".join(names):
        raise ArgumentError(f"{source}: is packed already: {listed} does not apply to it")


@contextmanager
def packing_place(out: str | Path) -> Iterator[Path]:
    """Beside ``out``, for as long as it takes: where a checkpoint is packed on the way."""
    target = Path(out).resolve()
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.packed.", dir=target.parent) as place:
        yield Path(place) / "packed"


def _files(spec: Spec) -> dict[str, str]:
    """The file of each role; one for both passes where the same rows come out of either."""
    names = {role: role + _SUFFIX for role in _BUILDERS}
    if not spec.preview:
        del names["preview"]
    elif "deltanet" not in spec.layer_types and not any(spec.windows):
        names["preview"] = names["commit"]
    return names


def _write_side_files(plan: OnnxPlan, folder: Path) -> None:
    packed = plan.folder.path
    for name in COPIED:
        if (packed / name).is_file():
            shutil.copyfile(packed / name, folder / name)
    config = read_json(packed / "config.json")
    ours = {k: v for k, v in config["clover_edge"].items() if k != "tensors"}
    ours |= {"format": "onnx", "graphs": dict(plan.files), "activations": plan.activations}
    text = json.dumps({**config, "clover_edge": ours}, indent=2)
    (folder / "config.json").write_text(text + "\n")
