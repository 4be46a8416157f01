"""Packed folder -> checked spec and tensor table -> `_core.Model`.

Here the files are checked against what config.json says of them; spec, shapes and offsets are
checked by the core, which trusts no caller.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from .errors import ArgumentError, ModelFormatError, UnsupportedModelError
from .export.files import read_json
from .export.safetensors_header import Header, read_header
from .quant.schemes import LAYOUT, Scheme

if TYPE_CHECKING:
    from ._core import Model as CoreModel

T = TypeVar("T")

FORMAT_VERSION = 1
INDEX_NAME = "model.safetensors.index.json"
ONNX_DATA = "model.onnx.data"  # the tensors of all graphs
# Defaults of generation that only the core's own passes have; without them decoding is exact.
OF_CORE = ("cache", "coreset_size", "coreset_share", "skip_rows", "refresh")
PAD_PREFIX = "__pad__."
PARTS = ("gate", "up", "down")
ALIGNMENT = 64


@dataclass(frozen=True)
class PackedFolder:
    """What a packed folder says of itself, checked against its files' headers."""

    path: Path
    family: str
    recipe: str
    group_size: int
    spec: Mapping[str, Any]
    generation: Mapping[str, Any]  # of an ONNX folder without the options in OF_CORE
    files: tuple[Path, ...] = ()  # of weights, or graphs and their data
    # config.json's "tensors", stored bytes of each, and the core's rows of them; of an ONNX folder
    # there are none
    entries: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    table: tuple[Mapping[str, Any], ...] = ()
    # Of an ONNX folder: file names of its graphs, "preview" (absent where the model is
    # autoregressive), "commit" and "head"
    graphs: Mapping[str, str] = field(default_factory=dict)


def read_folder(path: str | Path) -> PackedFolder:
    """Reads what a packed or ONNX folder says of itself, and its files' headers; no weight is read.

    Raises ModelFormatError naming file, field and reason, UnsupportedModelError for a format
    version or model that this version does not serve.
    """
    folder = Path(path)
    if not folder.is_dir():
        reason = "is a file, not a folder" if folder.exists() else "does not exist"
        raise ModelFormatError(str(folder), "folder", reason)
    config_path = folder / "config.json"
    ours = _own_section(config_path)
    where = str(config_path)
    spec = _object(where, "clover_edge.spec", ours.get("spec"))
    generation = _object(where, "clover_edge.generation", ours.get("generation"))
    described = PackedFolder(
        path=folder,
        family=_field(where, ours, "family", str),
        recipe=_field(where, ours, "recipe", str),
        group_size=_field(where, ours, "group_size", int),
        spec=spec,
        generation=generation,
    )
    form = ours.get("format", "packed")
    if form == "onnx":
        graphs = _graphs(folder, where, ours, bool(spec.get("preview", True)))
        paths = [folder / name for name in dict.fromkeys(graphs.values())]
        return replace(
            described,
            generation={k: v for k, v in generation.items() if k not in OF_CORE},
            files=(*paths, folder / ONNX_DATA),
            graphs=graphs,
        )
    if form != "packed":
        raise ModelFormatError(where, "clover_edge.format", f"{form!r} is neither packed nor onnx")
    entries = _object(where, "clover_edge.tensors", ours.get("tensors"))
    files, placed = _headers(folder)
    _same_names(where, set(entries), {name for name in placed if not name.startswith(PAD_PREFIX)})
    table: list[dict[str, Any]] = []
    for name, entry in entries.items():
        number, header = placed[name]
        table.extend(_rows(str(files[number]), name, entry, number, header))
    return replace(
        described,
        entries=entries,
        sizes={name: placed[name][1].nbytes for name in entries},
        files=tuple(files),
        table=tuple(table),
    )


def open_core(
    folder: PackedFolder,
    *,
    threads: int = 0,
    isa: str | None = None,
    mmap: bool = True,
    kv: Literal["f32", "f16", "int8"] = "f32",
    read_ahead: bool | None = None,
) -> CoreModel:
    """Opens the weights; the core checks spec, shapes and offsets.

    `threads` 0: as many as the process may use. `mmap`, `kv`: as for `load`.
    `read_ahead`: experts are asked from disk whenever they are chosen, not just the first time;
    None: where memory cannot hold all.
    """
    from . import _core

    if folder.graphs:
        raise ModelFormatError(
            str(folder.path / "config.json"),
            "clover_edge.format",
            "is 'onnx', and the core reads packed folders: load(…, backend='onnxruntime') and "
            "--backend onnxruntime run this one",
        )
    with errors_of_core(folder):
        return _core.Model(
            dict(folder.spec),
            [str(file) for file in folder.files],
            [dict(row) for row in folder.table],
            threads=threads,
            isa=isa,
            mmap=mmap,
            kv=kv,
            read_ahead=read_ahead,
        )


@contextmanager
def errors_of_core(folder: PackedFolder) -> Iterator[None]:
    """Names config.json in what the core, which knows no file of ours, says of spec and table."""
    where = str(folder.path / "config.json")
    try:
        yield
    except ModelFormatError as error:
        if error.path in ("spec", "table"):
            raise ModelFormatError(where, f"{error.path}.{error.field}", error.reason) from None
        raise
    except UnsupportedModelError as error:
        raise UnsupportedModelError(f"{where}: {error}") from None


def _own_section(path: Path) -> dict[str, Any]:
    config = read_json(path, ModelFormatError)
    if "clover_edge" not in config:
        raise ModelFormatError(
            str(path),
            "clover_edge",
            "is missing: this is a checkpoint, not a packed folder "
            "(clover-export CHECKPOINT -o OUT --int4 makes one)",
        )
    ours = _object(str(path), "clover_edge", config["clover_edge"])
    version = ours.get("format_version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ModelFormatError(
            str(path), "clover_edge.format_version", f"{version!r} is no version"
        )
    if version != FORMAT_VERSION:
        raise UnsupportedModelError(
            f"{path}: clover_edge.format_version: {version} is not supported "
            f"(this version of clover-edge reads {FORMAT_VERSION}); export the checkpoint again"
        )
    return ours


def _object(path: str, field: str, value: Any) -> dict[str, Any]:
    """`value`, if it is one; a missing one is refused as missing."""
    if not isinstance(value, dict):
        raise ModelFormatError(path, field, "is missing" if value is None else "is not an object")
    return value


def _field(path: str, ours: Mapping[str, Any], name: str, kind: type[T]) -> T:
    value = ours.get(name)
    if type(value) is not kind:
        raise ModelFormatError(path, f"clover_edge.{name}", f"{value!r} is no {kind.__name__}")
    return value


def _graphs(folder: Path, where: str, ours: Mapping[str, Any], preview: bool) -> dict[str, str]:
    """The graphs' file names, which exist, and so does their data."""
    graphs = _object(where, "clover_edge.graphs", ours.get("graphs"))
    wanted = {"commit", "head", *(("preview",) if preview else ())}
    if set(graphs) != wanted:
        reason = f"are {', '.join(sorted(graphs)) or 'none'}, not {', '.join(sorted(wanted))}"
        raise ModelFormatError(where, "clover_edge.graphs", reason)
    for kind, name in (*graphs.items(), ("data", ONNX_DATA)):
        if not isinstance(name, str) or not name or Path(name).name != name:
            raise ModelFormatError(
                where, f"clover_edge.graphs.{kind}", f"{name!r} is no plain file name"
            )
        if not (folder / name).is_file():
            raise ModelFormatError(str(folder / name), "file", "does not exist")
    return graphs


def _same_names(path: str, described: set[str], stored: set[str]) -> None:
    for name in sorted(described ^ stored):
        reason = "is in no file" if name in described else "is in a file, but not described here"
        raise ModelFormatError(path, f"clover_edge.tensors.{name}", reason)


def _headers(folder: Path) -> tuple[list[Path], dict[str, tuple[int, Header]]]:
    """The files of the index, and each stored tensor's file number and header entry."""
    index_path = folder / INDEX_NAME
    index = read_json(index_path, ModelFormatError)
    weight_map = _object(str(index_path), "weight_map", index.get("weight_map"))
    names = sorted({str(name) for name in weight_map.values()})
    if not names:
        raise ModelFormatError(str(index_path), "weight_map", "names no tensor")
    placed: dict[str, tuple[int, Header]] = {}
    for number, name in enumerate(names):
        if not name or Path(name).name != name:
            raise ModelFormatError(str(index_path), "weight_map", f"{name!r} is no plain file name")
        for tensor, header in read_header(folder / name).items():
            if weight_map.get(tensor, name if tensor.startswith(PAD_PREFIX) else None) != name:
                raise ModelFormatError(
                    str(folder / name), tensor, "is in this file, but not so in the index"
                )
            placed[tensor] = (number, header)
    for tensor in weight_map:
        if tensor not in placed:
            raise ModelFormatError(
                str(folder / str(weight_map[tensor])), tensor, "is in the index, not in the file"
            )
    return [folder / name for name in names], placed


def _rows(path: str, name: str, entry: Any, number: int, header: Header) -> list[dict[str, Any]]:
    """The core's rows of one entry: one, or gate, up and down of an expert stack."""
    entry = _object(path, name, entry)
    if entry.get("layout") != LAYOUT:
        raise ModelFormatError(path, name, f"layout {entry.get('layout')!r} is not {LAYOUT}")
    if header.offset % ALIGNMENT:
        raise ModelFormatError(path, name, f"offset {header.offset} is no multiple of {ALIGNMENT}")
    if entry.get("scheme") == "experts":
        return _expert_rows(path, name, entry, number, header)
    row = _row(path, name, entry)
    if header.nbytes != row["bytes"]:
        raise ModelFormatError(
            path,
            name,
            f"holds {header.nbytes} bytes; its scheme and shape take {row['bytes']}",
        )
    return [{**row, "file": number, "offset": header.offset, "stride": 0}]


def _expert_rows(
    path: str, name: str, entry: Mapping[str, Any], number: int, header: Header
) -> list[dict[str, Any]]:
    shape, record = _shape(path, name, entry), entry.get("record_bytes")
    if len(shape) != 1:
        raise ModelFormatError(path, name, f"shape {shape} is no number of experts")
    if type(record) is not int or record < 1 or record % ALIGNMENT:
        raise ModelFormatError(path, name, f"record_bytes {record!r} is no multiple of {ALIGNMENT}")
    if header.nbytes != shape[0] * record:
        raise ModelFormatError(
            path,
            name,
            f"holds {header.nbytes} bytes; {shape[0]} records of {record} take {shape[0] * record}",
        )
    parts = _object(path, f"{name}.parts", entry.get("parts"))
    if set(parts) != set(PARTS):
        raise ModelFormatError(path, f"{name}.parts", f"are {sorted(parts)}, not gate, up, down")
    rows = []
    for part in PARTS:
        where = f"{name}.{part}"
        row = _row(path, where, _object(path, where, parts[part]))
        nbytes, offset = parts[part].get("bytes"), parts[part].get("offset")
        if nbytes != row["bytes"]:
            reason = (
                f"{nbytes!r} bytes; {row['scheme']} of shape {row['shape']} takes {row['bytes']}"
            )
            raise ModelFormatError(path, where, reason)
        if type(offset) is not int or offset % ALIGNMENT or not 0 <= offset <= record - nbytes:
            raise ModelFormatError(path, where, f"offset {offset!r} lies outside the record")
        place = {"file": number, "offset": header.offset + offset, "stride": record}
        rows.append({**row, "shape": [*shape, *row["shape"]], **place})
    return rows


def _row(path: str, name: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Name, scheme, shape, group, bytes and, where it has one, codebook of a vector or matrix."""
    shape, scheme = _shape(path, name, entry), entry.get("scheme")
    group, codebook = entry.get("group", 0), entry.get("codebook", ())
    try:
        nbytes = Scheme(scheme, group, codebook).nbytes(tuple(shape))  # type: ignore[arg-type]
    except (ArgumentError, TypeError) as error:
        raise ModelFormatError(path, name, str(error)) from error
    row = {"name": name, "scheme": scheme, "shape": shape, "group": group, "bytes": nbytes}
    return {**row, "codebook": list(codebook)} if codebook else row


def _shape(path: str, name: str, entry: Mapping[str, Any]) -> list[int]:
    shape = entry.get("shape")
    valid = isinstance(shape, list) and all(type(n) is int and 0 < n < 2**31 for n in shape)
    if not valid or not isinstance(shape, list) or len(shape) not in (1, 2):
        raise ModelFormatError(path, name, f"shape {shape!r} is not valid")
    return list(shape)
