"""Opening of a checkpoint, whatever it is: its configuration, its tensors, its side files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import CheckpointError
from ..fields import Fields
from ..files import parse_json, read_bytes, read_json
from .base import Rows, Source, Stored
from .folder import holds_weights, open_files
from .gguf_file import GgufFiles, gguf_files
from .gguf_model import GgufModel
from .gguf_tokenizer import GgufTokenizer
from .quantised import decode, quantisation
from .safetensors import SafetensorsSource

PREVIEW = (
    "conv_right_weight",
    "bd_softmax_logit_scale",
    "bd_softmax_history_bias",
    "bd_softmax_history_c",
)
# What a release's configuration says of previews, and a GGUF file does not.
_PREVIEW_KEYS = (
    "mask_token_id",
    "block_size",
    "coreset_size",
    "history_q_scale",
    "preview_value_beta",
    "history_ref_rows",
)
_PREVIEW_NAME = re.compile(rf"(?:.*\.)?(layers\.\d+\.linear_attn\.(?:{'|'.join(PREVIEW)}))")
_OLD_SETTINGS = ("quantize_config.json", "quant_config.json")  # of GPTQ and AWQ, before config.json


@dataclass
class Opened:
    """``config_path`` is named in errors; ``side`` reads a file beside the configuration."""

    config_path: Path
    config: dict[str, Any]
    config_bytes: bytes
    source: Source
    side: Callable[[str], bytes | None]


def open_checkpoint(path: Path) -> Opened:
    """A Hugging Face folder, or a GGUF file or a folder that holds one and no other weights."""
    if path.is_file() and path.suffix == ".gguf":
        return _open_gguf(gguf_files(path))
    if not path.is_dir():
        reason = "is a file, neither a folder nor GGUF" if path.exists() else "does not exist"
        raise CheckpointError(str(path), "folder", reason)
    if not holds_weights(path) and (parts := gguf_files(path)):
        return _open_gguf(parts)
    config_path = path / "config.json"
    config_bytes = read_bytes(config_path)
    config = parse_json(config_bytes, config_path)
    if "clover_edge" in config:
        reason = "is there already: this folder is packed; export its source instead"
        raise CheckpointError(str(config_path), "clover_edge", reason)
    settings = quantisation(config, config_path)
    for name in _OLD_SETTINGS:
        if settings is None and (path / name).exists():
            settings = _old_settings(path / name)
    files = open_files(path)
    try:
        source = decode(files, settings)
    except BaseException:
        files.close()
        raise

    def side(name: str) -> bytes | None:
        return read_bytes(path / name) if (path / name).is_file() else None

    return Opened(config_path, config, config_bytes, source, side)


def _old_settings(path: Path) -> Fields:
    values = read_json(path)
    method = "gptq" if path.name == _OLD_SETTINGS[0] else "awq"
    return Fields(path, {"quant_method": method, **values})


def _open_gguf(paths: list[Path]) -> Opened:
    files = GgufFiles(paths)
    try:
        model = GgufModel(files)
        tokenizer = GgufTokenizer(model.metadata)
        side = tokenizer.files()
    except BaseException:
        files.close()
        raise
    config = dict(model.config)
    if tokenizer.mask_token_id is not None:
        config["mask_token_id"] = tokenizer.mask_token_id
    text = (json.dumps(config, indent=2) + "\n").encode()
    return Opened(paths[0], config, text, model.source(), side.get)


def add_preview(opened: Opened, folder: Path) -> Opened:
    """The checkpoint with the preview tensors of another folder (or safetensors file), and what
    that folder's ``config.json`` and ``generation_config.json`` say of previews."""
    files = [folder] if folder.is_file() else sorted(folder.glob("*.safetensors"))
    if not files:
        raise CheckpointError(str(folder), "folder", "holds no safetensors file")
    extra = SafetensorsSource(files)
    embed = "embed_tokens.weight"
    prefix = next((n.removesuffix(embed) for n in opened.source.tensors if n.endswith(embed)), "")
    found = {
        prefix + match[1]: name
        for name in extra.tensors
        if (match := _PREVIEW_NAME.fullmatch(name)) is not None
    }
    if not found:
        raise CheckpointError(str(folder), ", ".join(PREVIEW), "are in none of its files")
    config = {**opened.config, "preview": True}
    side = opened.side
    if folder.is_dir() and (folder / "config.json").exists():
        theirs = read_json(folder / "config.json")
        text = theirs.get("text_config")
        theirs = {**theirs, **(text if isinstance(text, dict) else {})}
        config |= {key: theirs[key] for key in _PREVIEW_KEYS if theirs.get(key) is not None}
    if folder.is_dir() and (folder / "generation_config.json").exists():
        controls = read_bytes(folder / "generation_config.json")
        side = _with("generation_config.json", controls, side)
    source = _Joined(opened.source, extra, found)
    text_bytes = (json.dumps(config, indent=2) + "\n").encode()
    return Opened(opened.config_path, config, text_bytes, source, side)


def _with(
    name: str, data: bytes, side: Callable[[str], bytes | None]
) -> Callable[[str], bytes | None]:
    return lambda asked: data if asked == name else side(asked)


class _Joined(Source):
    """A source, and tensors of another one: presented name to its own."""

    def __init__(self, first: Source, second: Source, names: dict[str, str]) -> None:
        self._first, self._second, self._names = first, second, names
        extra = {ours: second.tensors[theirs] for ours, theirs in names.items()}
        self.tensors = {**first.tensors, **extra}

    def row_dtype(self, name: str) -> np.dtype[Any]:
        if name in self._names:
            return self._second.row_dtype(self._names[name])
        return self._first.row_dtype(name)

    def read_rows(self, name: str, start: int, out: Rows) -> None:
        if name in self._names:
            self._second.read_rows(self._names[name], start, out)
        else:
            self._first.read_rows(name, start, out)

    def stored(self, name: str) -> Stored | None:
        return None if name in self._names else self._first.stored(name)

    def close(self) -> None:
        self._first.close()
        self._second.close()
