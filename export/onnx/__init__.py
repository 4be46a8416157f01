"""A packed folder as ONNX graphs that stock onnxruntime runs (docs/onnx.md)."""

from .graph import ACTIVATIONS, import_onnx
from .pipeline import (
    OnnxPlan,
    export_onnx,
    is_packed,
    packing_place,
    plan_onnx,
    refuse_packing,
    write_onnx,
)
from .spec import read_spec

__all__ = [
    "ACTIVATIONS",
    "OnnxPlan",
    "export_onnx",
    "import_onnx",
    "is_packed",
    "packing_place",
    "plan_onnx",
    "read_spec",
    "refuse_packing",
    "write_onnx",
]
