"""A packed folder as ONNX graphs that stock onnxruntime runs (docs/onnx.md)."""

from .pipeline import OnnxPlan, export_onnx, plan_onnx, write_onnx

__all__ = ["OnnxPlan", "export_onnx", "plan_onnx", "write_onnx"]
