"""onnxruntime: MatMulNBits and QMoE with int8 activations (accuracy_level 4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .codes import Codes, Floats, needs

EXTRA = "bench"
_OPSET, _CONTRIB = 21, "com.microsoft"


class _Session:
    """A graph of float32 inputs, bound once to buffers that stay."""

    def __init__(self, nodes: list[Any], weights: list[Any], names: tuple[str, ...], outputs: int):
        with needs(EXTRA):
            from onnx import TensorProto, helper
        self._names = names
        made = [
            helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, None) for i in range(outputs)
        ]
        given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names]
        graph = helper.make_graph(nodes, "g", given, made, weights)
        opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid(_CONTRIB, 1)]
        self._model = helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def open(self, threads: int) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(
            self._model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        del self._model
        self._binding = self._session.io_binding()

    def bind(self, *inputs: Floats) -> None:
        for name, value in zip(self._names, inputs, strict=True):
            self._binding.bind_cpu_input(name, np.ascontiguousarray(value))
        for output in self._session.get_outputs():
            self._binding.bind_output(output.name, "cpu")

    def run(self) -> None:
        self._session.run_with_iobinding(self._binding)

    def result(self) -> list[Floats]:
        return self._binding.copy_outputs_to_cpu()


class MatMul:
    """Each matrix times the same rows, one node after the other."""

    def __init__(self, layers: Sequence[Codes], threads: int) -> None:
        with needs(EXTRA):
            import onnxruntime  # noqa: F401
            from onnx import helper, numpy_helper
        nodes, weights = [], []
        for i, layer in enumerate(layers):
            n, k = layer.shape
            codes = layer.pairs().reshape(n, k // layer.group, -1)
            weights.append(numpy_helper.from_array(codes, f"b{i}"))
            scales = layer.scales.astype(np.float32).reshape(-1)
            weights.append(numpy_helper.from_array(scales, f"s{i}"))
            attributes = {"K": k, "N": n, "bits": layer.bits, "block_size": layer.group}
            nodes.append(
                helper.make_node(
                    "MatMulNBits",
                    ["x", f"b{i}", f"s{i}"],
                    [f"y{i}"],
                    domain=_CONTRIB,
                    accuracy_level=4,
                    **attributes,
                )
            )
        self._session = _Session(nodes, weights, ("x",), len(layers))
        self._session.open(threads)

    def bind(self, x: Floats) -> None:
        """Sets the rows [m, k]."""
        self._session.bind(x)

    def run(self) -> None:
        self._session.run()

    def result(self) -> list[Floats]:
        """[m, n] of every matrix."""
        return self._session.result()


class MoE:
    """Router, top-k and SwiGLU experts: rows [m, hidden] to [m, hidden].

    `router` [experts, hidden]; `gate_up` [experts * 2 inner, hidden], rows of gate and up in turn;
    `down` [experts * hidden, inner].
    """

    def __init__(self, router: Floats, gate_up: Codes, down: Codes, top_k: int, threads: int):
        with needs(EXTRA):
            import onnxruntime  # noqa: F401
            from onnx import helper, numpy_helper
        experts = router.shape[0]
        weights = [numpy_helper.from_array(np.ascontiguousarray(router.T), "router")]
        inputs = []
        for name, matrix in (("gate_up", gate_up), ("down", down)):
            codes = matrix.pairs().reshape(experts, matrix.shape[0] // experts, -1)
            scales = matrix.scales.astype(np.float32).reshape(*codes.shape[:2], -1)
            weights.append(numpy_helper.from_array(codes, name))
            weights.append(numpy_helper.from_array(scales, f"{name}_scales"))
            inputs += [name, f"{name}_scales", ""]
        nodes = [
            helper.make_node("MatMul", ["x", "router"], ["logits"]),
            helper.make_node(
                "QMoE",
                ["x", "logits", *inputs[:-1]],
                ["y0"],
                domain=_CONTRIB,
                k=top_k,
                activation_type="swiglu",
                activation_alpha=1.0,
                activation_beta=0.0,
                swiglu_fusion=1,
                normalize_routing_weights=1,
                expert_weight_bits=gate_up.bits,
                block_size=gate_up.group,
                accuracy_level=4,
                weights_prepacked=0,
            ),
        ]
        self._session = _Session(nodes, weights, ("x",), 1)
        self._session.open(threads)

    def bind(self, x: Floats) -> None:
        """Sets the rows [m, hidden]."""
        self._session.bind(x)

    def run(self) -> None:
        self._session.run()

    def result(self) -> Floats:
        """[m, hidden]."""
        return self._session.result()[0]
