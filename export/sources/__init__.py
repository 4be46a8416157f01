"""Where a checkpoint's weights come from, one module a storage form."""

from .base import FLOAT_DTYPES, Rows, Source, Stored, TensorInfo
from .opened import PREVIEW, add_preview, open_checkpoint
from .pytorch import TorchSource
from .safetensors import SafetensorsSource

__all__ = [
    "FLOAT_DTYPES",
    "PREVIEW",
    "Rows",
    "SafetensorsSource",
    "Source",
    "Stored",
    "TensorInfo",
    "TorchSource",
    "add_preview",
    "open_checkpoint",
]
