"""Every exception that this package raises on purpose.

The compiled core raises the same classes; it imports this module when the first one is needed.
"""

from __future__ import annotations

__all__ = [
    "ArgumentError",
    "CheckpointError",
    "CloverError",
    "ContextLengthError",
    "ExportError",
    "ModelFormatError",
    "OutOfMemoryError",
    "SavedSessionError",
    "UnsupportedDeviceError",
    "UnsupportedModelError",
]


class CloverError(Exception):
    """Root of this package's exceptions."""


class _FileFieldError(CloverError):
    """A file whose ``field`` (a tensor or a configuration key) is not what it has to be."""

    def __init__(self, path: str, field: str, reason: str) -> None:
        super().__init__(path, field, reason)  # args as given, so that it can be pickled
        self.path = path
        self.field = field
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.field}: {self.reason}"


class ModelFormatError(_FileFieldError):
    """A packed model does not say what the format promises."""


class CheckpointError(_FileFieldError):
    """A checkpoint that is to be exported is damaged or incomplete."""


class ExportError(CloverError):
    """An export could not be completed."""


class UnsupportedModelError(CloverError):
    """A well-formed model that this build does not compute."""


class SavedSessionError(_FileFieldError):
    """A saved session is damaged, or of another model."""


class UnsupportedDeviceError(CloverError):
    """Something that this processor or machine cannot run."""


class ArgumentError(CloverError, ValueError):
    """An argument is outside its domain."""


class ContextLengthError(CloverError, ValueError):
    """More tokens than the model or the state has room for."""


class OutOfMemoryError(CloverError, MemoryError):
    """Memory that the machine cannot give; ``needed`` and ``available`` are in bytes."""

    def __init__(self, needed: int, available: int, message: str | None = None) -> None:
        super().__init__(needed, available, message)
        self.needed = needed
        self.available = available
        self.message = message or f"needs {needed} bytes, {available} available"

    def __str__(self) -> str:
        return self.message
