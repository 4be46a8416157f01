"""What other runtimes do on the shapes that `clover-edge bench` measures, a module for each."""

from __future__ import annotations

from collections.abc import Callable

from .llama_cpp_model import LlamaCpp
from .onnxruntime_model import OnnxRuntime
from .pytorch_model import PyTorch
from .side import Asked, Side

SIDES: dict[str, Callable[[Asked], Side]] = {
    LlamaCpp.runtime: LlamaCpp,
    OnnxRuntime.runtime: OnnxRuntime,
    PyTorch.runtime: PyTorch,
}
