"""A graph under construction: every method adds nodes and returns the name of what they put out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import ExportError
from .weights import DATA_NAME, Initializer, Matrix, Weights

OPSET, IR_VERSION = 21, 10
CONTRIB = "com.microsoft"
ACTIVATIONS = ("float", "int8", "core")
_SMALLEST_BLOCK = 1e-36  # csrc/kernels/layout.h: smaller values count as zero

Dims = Sequence[int | str | None]  # a name: a size that is known when the graph runs; None: any


def import_onnx() -> Any:
    """Raises ExportError naming the extra."""
    try:
        import onnx
    except ImportError as problem:
        raise ExportError(
            "writing ONNX graphs needs onnx, which is not installed: "
            "pip install 'clover-edge[onnx]'"
        ) from problem
    return onnx


class Graph:
    """One graph over the shared weights; `activations`: what products with quantised weights read,
    one of ACTIVATIONS."""

    def __init__(self, name: str, weights: Weights, activations: str) -> None:
        self._onnx = import_onnx()
        self.name, self.weights = name, weights
        self.rounds = activations == "core"
        self.accuracy_level = 4 if activations == "int8" else 0
        self._rounded: dict[str, str] = {}
        self._scope = ""
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []
        self._nodes: list[Any] = []
        self._declared: list[Any] = []
        self._constants: dict[tuple[Any, ...], Any] = {}
        self._stored: dict[str, Initializer] = {}

    # ---- edges -----------------------------------------------------------------------------------

    def input(self, name: str, kind: str, dims: Dims) -> str:
        self._inputs.append(self._info(name, kind, dims))
        return name

    def output(self, name: str, value: str, dims: Dims, kind: str = "FLOAT") -> None:
        self._nodes.append(self._onnx.helper.make_node("Identity", [value], [name], name=name))
        self._outputs.append(self._info(name, kind, dims))

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Nodes that are added within have the name in front of theirs."""
        before, self._scope = self._scope, f"{self._scope}{name}/"
        yield
        self._scope = before

    # ---- nodes -----------------------------------------------------------------------------------

    def ops(
        self, kind: str, *inputs: str, outputs: int, domain: str = "", **keys: Any
    ) -> list[str]:
        name = f"{self._scope}{kind}_{len(self._nodes)}"
        made = [f"{name}.{i}" if i else name for i in range(outputs)]
        self._nodes.append(
            self._onnx.helper.make_node(kind, list(inputs), made, name=name, domain=domain, **keys)
        )
        return made

    def op(self, kind: str, *inputs: str, **keys: Any) -> str:
        return self.ops(kind, *inputs, outputs=1, **keys)[0]

    def contrib(self, kind: str, *inputs: str, dims: Sequence[Dims], **keys: Any) -> list[str]:
        """An operator of onnxruntime's own; its outputs' dims are declared, since ONNX cannot infer
        them."""
        made = self.ops(kind, *inputs, outputs=len(dims), domain=CONTRIB, **keys)
        self._declared += [
            self._info(name, "FLOAT", each) for name, each in zip(made, dims, strict=True)
        ]
        return made

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        """A small constant inside the graph."""
        array: NDArray[Any] = np.asarray(value, dtype)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            name = f"constant_{len(self._constants)}"
            self._constants[key] = self._onnx.numpy_helper.from_array(array, name)
        return str(self._constants[key].name)

    def ints(self, *values: int) -> str:
        return self.constant(values, np.int64)

    def stored(self, name: str) -> str:
        """An initializer of the data file."""
        self._stored[name] = self.weights[name]
        return name

    def vector(self, name: str, *, offset: float = 0.0, transposed: bool = False) -> str:
        return self.stored(self.weights.vector(name, offset=offset, transposed=transposed))

    # ---- small steps that many others take -------------------------------------------------------

    def reshape(self, x: str, *dims: int) -> str:
        """0 keeps a dimension."""
        return self.op("Reshape", x, self.ints(*dims))

    def transpose(self, x: str, *order: int) -> str:
        return self.op("Transpose", x, perm=order)

    def unsqueeze(self, x: str, *axes: int) -> str:
        return self.op("Unsqueeze", x, self.ints(*axes))

    def split(self, x: str, sizes: Sequence[int], axis: int = -1) -> list[str]:
        if len(sizes) == 1:
            return [x]
        return self.ops("Split", x, self.ints(*sizes), outputs=len(sizes), axis=axis)

    def rows(self, x: str, start: int, end: int) -> str:
        """x[start:end] along the first axis, counted as in Python."""
        return self.op("Slice", x, self.ints(start), self.ints(end), self.ints(0))

    def cast(self, x: str, kind: str) -> str:
        return self.op("Cast", x, to=getattr(self._onnx.TensorProto, kind))

    def filled(self, dims: str, value: float) -> str:
        """float32 of the size that the value of `dims` says."""
        one = self._onnx.helper.make_tensor("value", self._onnx.TensorProto.FLOAT, [1], [value])
        return self.op("ConstantOfShape", dims, value=one)

    def norm(self, x: str, weight: str, eps: float) -> str:
        """x / rms(x) * weight along the last axis."""
        squares = self.op("Pow", x, self.constant(2))
        mean = self.op("ReduceMean", squares, self.ints(-1), keepdims=1)
        size = self.op("Sqrt", self.op("Add", mean, self.constant(eps)))
        return self.op("Mul", self.op("Div", x, size), weight)

    def silu(self, x: str) -> str:
        return self.op("Mul", x, self.op("Sigmoid", x))

    def product(self, x: str, matrix: Matrix) -> str:
        """[n, columns] to [n, rows]."""
        values = self.stored(matrix.values)
        if not matrix.bits:
            values = values if matrix.kind == "FLOAT" else self.cast(values, "FLOAT")
            return self.op("Gemm", x, values, transB=1)
        return self.contrib(
            "MatMulNBits",
            self.rounded(x, matrix.columns) if self.rounds else x,
            values,
            self.stored(matrix.scales),
            dims=[[None, matrix.rows]],
            K=matrix.columns,
            N=matrix.rows,
            bits=matrix.bits,
            block_size=matrix.block,
            accuracy_level=self.accuracy_level,
        )[0]

    def rounded(self, x: str, columns: int) -> str:
        """x [..., columns] as the core's kernels read it (csrc/kernels/reference.cc, quantize):
        blocks of 128 columns, or 64 or 32 where those alone divide them, in steps of max|x| / 127.
        """
        if x not in self._rounded:
            block = next(b for b in (128, 64, 32) if columns % b == 0)
            parts = self.op("Reshape", x, self._blocks(x, columns, block))
            most = self.op("ReduceMax", self.op("Abs", parts), self.ints(-1), keepdims=1)
            most = self.op("Max", most, self.constant(_SMALLEST_BLOCK))
            steps = self.constant(127)
            codes = self.op("Round", self.op("Mul", parts, self.op("Div", steps, most)))
            values = self.op("Mul", codes, self.op("Div", most, steps))
            self._rounded[x] = self.op("Reshape", values, self.op("Shape", x))
        return self._rounded[x]

    def _blocks(self, x: str, columns: int, block: int) -> str:
        """The dims of x, its columns in blocks; of no rows, too."""
        rows = self.op("Shape", x, end=-1)
        return self.op("Concat", rows, self.ints(columns // block, block), axis=0)

    # ---- the whole -------------------------------------------------------------------------------

    def model(self) -> Any:
        """The ModelProto; its weights are places in the data file."""
        helper = self._onnx.helper
        initializers = [*self._constants.values(), *map(self._external, self._stored.values())]
        graph = helper.make_graph(
            self._nodes,
            self.name,
            self._inputs,
            self._outputs,
            initializers,
            value_info=self._declared,
        )
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(CONTRIB, 1)]
        return helper.make_model(
            graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="clover-edge"
        )

    def save(self, path: Path) -> None:
        """Checked, every value's type and what is known of its shape beside it."""
        infer = self._onnx.shape_inference.infer_shapes
        whole = infer(self.model(), check_type=True, strict_mode=True, data_prop=True)
        path.write_bytes(whole.SerializeToString())

    def _external(self, item: Initializer) -> Any:
        proto = self._onnx.TensorProto()
        proto.name = item.name
        proto.data_type = getattr(self._onnx.TensorProto, item.kind)
        proto.dims.extend(item.shape)
        proto.data_location = self._onnx.TensorProto.EXTERNAL
        place = {"location": DATA_NAME, "offset": item.offset, "length": item.nbytes}
        for key, value in place.items():
            proto.external_data.add(key=key, value=str(value))
        return proto

    def _info(self, name: str, kind: str, dims: Any) -> Any:
        element = getattr(self._onnx.TensorProto, kind)
        return self._onnx.helper.make_tensor_value_info(name, element, list(dims))
