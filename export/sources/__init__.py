"""Where a checkpoint's weights come from, one module a storage form."""

from .base import FLOAT_DTYPES, Rows, Source, Stored, TensorInfo
from .opened import PREVIEW, Opened, add_preview, open_checkpoint
from .pytorch import TorchSource
from .safetensors import SafetensorsSource
from .with_tensor import WithTensor

__all__ = [
    "FLOAT_DTYPES",
    "PREVIEW",
    "Opened",
    "Rows",
    "SafetensorsSource",
    "Source",
    "Stored",
    "TensorInfo",
    "TorchSource",
    "WithTensor",
    "add_preview",
    "open_checkpoint",
]
