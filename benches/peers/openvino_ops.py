"""OpenVINO: int4 and int8 weights, activations rounded by group (dynamic quantisation)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .codes import Codes, Floats, needs

EXTRA = "bench"


class MatMul:
    """Each matrix times the same rows, one node after the other."""

    def __init__(self, layers: Sequence[Codes], threads: int) -> None:
        with needs(EXTRA):
            import openvino
        group = layers[0].group
        x = openvino.opset13.parameter([-1, layers[0].shape[1]], np.float32, name="x")
        results = [_product(x, layer) for layer in layers]
        self._compiled = openvino.Core().compile_model(
            openvino.Model(results, [x], "g"),
            "CPU",
            {
                "INFERENCE_NUM_THREADS": threads,
                "NUM_STREAMS": 1,
                "DYNAMIC_QUANTIZATION_GROUP_SIZE": group,
                "INFERENCE_PRECISION_HINT": "f32",
                "ENABLE_CPU_PINNING": False,
            },
        )
        self._request = self._compiled.create_infer_request()

    def bind(self, x: Floats) -> None:
        """Sets the rows [m, k]."""
        import openvino

        self._rows = np.ascontiguousarray(x)
        self._request.set_input_tensor(openvino.Tensor(self._rows, shared_memory=True))

    def run(self) -> None:
        self._request.start_async()
        self._request.wait()

    def result(self) -> list[Floats]:
        """[m, n] of every matrix."""
        return [
            np.array(self._request.get_output_tensor(i).data)
            for i in range(len(self._compiled.outputs))
        ]


def _product(x: object, layer: Codes) -> object:
    """The weights as OpenVINO's own exporters write them: codes, zero point, scales, reshape."""
    import openvino
    from openvino import opset13 as ops

    n, k = layer.shape
    shape = [n, k // layer.group, layer.group]
    kind = openvino.Type.u4 if layer.bits == 4 else openvino.Type.u8
    codes = openvino.Tensor(layer.pairs().reshape(-1), openvino.Shape(shape), kind)
    zero = ops.constant(np.array([[[1 << (layer.bits - 1)]]], np.uint8))
    centred = ops.subtract(
        ops.convert(ops.constant(codes, shared_memory=False), "f16"), ops.convert(zero, "f16")
    )
    scaled = ops.multiply(centred, ops.constant(layer.scales[:, :, None]))
    matrix = ops.convert(ops.reshape(scaled, np.array([n, k]), False), "f32")
    return ops.matmul(x, matrix, False, True)
