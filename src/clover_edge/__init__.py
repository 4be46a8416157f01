"""clover-edge: an on-device runtime for quantised block-diffusion language models.

    import clover_edge
    model = clover_edge.load("packed-folder")
    print(model.generate("Once upon a time", max_new_tokens=64).text)

Importing does no work: no network, no change of the environment, no thread. The compiled core
and the tokenizer are loaded when a model is.
"""

from __future__ import annotations

from collections.abc import Generator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from .errors import (
    ArgumentError,
    CheckpointError,
    CloverError,
    ContextLengthError,
    ExportError,
    ModelFormatError,
    OutOfMemoryError,
    UnsupportedDeviceError,
    UnsupportedModelError,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .chat import (
        ChatDoneEvent,
        ChatEvent,
        ChatResult,
        RefusedCall,
        ThinkingEvent,
        ToolCall,
        ToolCallEvent,
    )
    from .evaluation import Evaluation, evaluate
    from .generation import GenerationConfig, GenerationOptions
    from .model import Model, Prompt, load
    from .results import (
        Counters,
        DoneEvent,
        DraftEvent,
        Event,
        GenerationResult,
        PrefillEvent,
        TextEvent,
        TokenLogprob,
    )

__all__ = [
    "ArgumentError",
    "ChatDoneEvent",
    "ChatEvent",
    "ChatResult",
    "CheckpointError",
    "CloverError",
    "ContextLengthError",
    "Counters",
    "DoneEvent",
    "DraftEvent",
    "Evaluation",
    "ExportError",
    "GenerationConfig",
    "GenerationResult",
    "Model",
    "ModelFormatError",
    "OutOfMemoryError",
    "PrefillEvent",
    "RefusedCall",
    "TextEvent",
    "ThinkingEvent",
    "TokenLogprob",
    "ToolCall",
    "ToolCallEvent",
    "UnsupportedDeviceError",
    "UnsupportedModelError",
    "__version__",
    "evaluate",
    "generate",
    "load",
    "stream",
]

_LAZY = {
    "Model": "model",
    "load": "model",
    "ChatDoneEvent": "chat",
    "ChatEvent": "chat",
    "ChatResult": "chat",
    "Counters": "results",
    "DoneEvent": "results",
    "DraftEvent": "results",
    "GenerationConfig": "generation",
    "GenerationResult": "results",
    "PrefillEvent": "results",
    "RefusedCall": "chat",
    "TextEvent": "results",
    "ThinkingEvent": "chat",
    "ToolCall": "chat",
    "ToolCallEvent": "chat",
    "TokenLogprob": "results",
    "Evaluation": "evaluation",
    "evaluate": "evaluation",
}
_ModelArgument = Union["Model", str, Path, None]


def generate(
    prompt: Prompt, *, model: _ModelArgument = None, **options: Unpack[GenerationOptions]
) -> GenerationResult:
    """Text for `prompt`: a string (taken as it is), token ids, or chat messages.

    `model`: a Model, or the path of a packed folder, which is opened for this call; left out, the
    folder that the environment's CLOVER_MODEL names, else the bundled demo model (with a line on
    stderr when it is packed). Options and errors: Model.generate.
    """
    from .default_model import opened

    with opened(model) as ready:
        return ready.generate(prompt, **options)


def stream(
    prompt: Prompt, *, model: _ModelArgument = None, **options: Unpack[GenerationOptions]
) -> Generator[Event, None, None]:
    """The same generation as events: TextEvent (final text), DraftEvent, then DoneEvent.

    Closing or dropping the iterator cancels it. Options and errors: Model.stream.
    """
    from .default_model import opened

    with opened(model) as ready:
        events = ready.stream(prompt, **options)  # checks the arguments now, not at the first event
    return events


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("clover-edge")
    if name in _LAZY:
        return getattr(import_module(f".{_LAZY[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
