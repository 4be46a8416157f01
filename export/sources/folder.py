"""The weight files of a checkpoint folder: one file, or shards and their index."""

from __future__ import annotations

import re
from pathlib import Path

from ...errors import CheckpointError
from ..files import read_json
from .base import Files
from .pytorch import TorchSource
from .safetensors import SafetensorsSource

_SHARD = re.compile(r".*-\d{5}-of-(\d{5})\.safetensors")


def open_files(folder: Path) -> Files:
    """The weights of a checkpoint folder as they are stored; safetensors are preferred to PyTorch
    files."""
    for single, index, kind in _LAYOUTS:
        if (folder / single).exists():
            return kind([folder / single])
        if (folder / index).exists():
            return _open_sharded(folder, folder / index, kind)
    named, loose = _loose(folder, ".safetensors"), _loose(folder, ".pt", ".pth", ".bin")
    if len(named) == 1 and (shard := _SHARD.fullmatch(named[0].name)) and int(shard[1]) > 1:
        reason = f"is one of {int(shard[1])} shards, and there is no index"
        raise CheckpointError(str(named[0]), "file", reason)
    if len(named) == 1:
        return SafetensorsSource(named)
    if len(loose) == 1 and not named:
        return TorchSource(loose)
    found = "no weights"
    if named or loose:
        found = f"{len(named) or len(loose)} {'safetensors' if named else 'PyTorch'} files"
        found += " and no index"
    raise CheckpointError(
        str(folder),
        "folder",
        f"holds {found}; looked for {', '.join(n for n, *_ in _LAYOUTS)}, *.pt",
    )


def holds_weights(folder: Path) -> bool:
    """Whether there is a weight file, or an index that promises some."""
    indices = any((folder / index).exists() for _, index, _ in _LAYOUTS)
    return indices or bool(_loose(folder, ".safetensors", ".pt", ".pth", ".bin"))


def _loose(folder: Path, *suffixes: str) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix in suffixes)


_LAYOUTS: tuple[tuple[str, str, type[SafetensorsSource] | type[TorchSource]], ...] = (
    ("model.safetensors", "model.safetensors.index.json", SafetensorsSource),
    ("pytorch_model.bin", "pytorch_model.bin.index.json", TorchSource),
)


def _open_sharded(
    folder: Path, index: Path, kind: type[SafetensorsSource] | type[TorchSource]
) -> Files:
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(str(index), "weight_map", "is missing or empty")
    for shard in weight_map.values():
        if not isinstance(shard, str) or Path(shard).name != shard:
            raise CheckpointError(str(index), "weight_map", f"{shard!r} is not a plain file name")
    shards = sorted(set(weight_map.values()))
    for shard in shards:
        if not (folder / shard).exists():
            raise CheckpointError(str(index), "weight_map", f"names {shard}, which does not exist")
    source = kind([folder / shard for shard in shards])
    for name, shard in weight_map.items():
        if name not in source.tensors or source.tensors[name].file.name != shard:
            raise CheckpointError(
                str(folder / shard), name, "is in the index, but not in this file"
            )
    for name, info in source.tensors.items():
        if name not in weight_map:
            raise CheckpointError(str(info.file), name, "is in this file, but not in the index")
    return source
