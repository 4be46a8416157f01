"""From the text that a calibrated method is given to passages of the checkpoint's tokens."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ...chat import ChatTemplate, checked_messages, read_template
from ...errors import ArgumentError, ExportError, ModelFormatError, UnsupportedModelError
from ...quant import CALIBRATED, DATA_FREE
from ...text import TextCodec, special_tokens
from ..checkpoint import Checkpoint
from .passages import Passage, make_passages
from .texts import read_texts

_BLOCK = 32  # tokens of a commit, for models that have no blocks


def calibration_passages(
    checkpoint: Checkpoint,
    spec: Mapping[str, Any],
    method: str,
    calib: str | Path | None,
    tokens: int,
) -> list[Passage]:
    """What ``method`` will run through the checkpoint; nothing for those that use no data.

    ``calib``: a file, or None for the built-in set. Raises ArgumentError for text that the method
    has no use for, UnsupportedModelError for a model whose previews see no masks, ExportError for a
    file that cannot be read or a checkpoint whose tokenizer or template cannot.
    """
    if method in DATA_FREE:
        if calib is not None:
            raise ArgumentError(
                f"calibration text is given, but method {method} uses none; "
                f"{' and '.join(CALIBRATED)} do"
            )
        return []
    if spec.get("noise", "mask") != "mask":
        raise UnsupportedModelError(
            f"{checkpoint.config_path}: method {method} is not supported of models whose blocks "
            f"start as random ids ({', '.join(DATA_FREE)} are)"
        )
    if spec.get("drafts_for_layers"):
        raise UnsupportedModelError(
            f"{checkpoint.config_path}: method {method} is not supported of drafters, which read "
            f"another model's layers ({', '.join(DATA_FREE)} are)"
        )
    codec, template = _tokenizer(checkpoint)
    texts = read_texts(
        None if calib is None else Path(calib), lambda messages: _render(messages, template)
    )
    return make_passages(
        texts,
        codec.encode,
        block_size=spec.get("block_size", _BLOCK),
        most_tokens=tokens,
        forbidden=spec.get("mask_token_id", -1),
    )


def _tokenizer(checkpoint: Checkpoint) -> tuple[TextCodec, ChatTemplate | None]:
    with TemporaryDirectory(prefix="clover-export-") as name:
        folder = Path(name)
        for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            if (data := checkpoint.side_file(file)) is not None:
                (folder / file).write_bytes(data)
        try:
            codec = TextCodec(folder / "tokenizer.json")
            return codec, read_template(folder, special_tokens(folder))
        except ModelFormatError as problem:
            reason = f"{problem.field}: {problem.reason}"
            raise ExportError(
                f"{checkpoint.path}: calibration needs its tokenizer: {reason}"
            ) from problem


def _render(messages: list[Any], template: ChatTemplate | None) -> str:
    if template is not None:
        return template.render(messages, add_generation_prompt=False)
    return "\n".join(message["content"] for message in checked_messages(messages))
