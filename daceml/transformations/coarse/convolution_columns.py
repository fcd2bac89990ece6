"""Convolution as a product of matrices: where a vendor's convolution takes longer, or none takes it.

Conv(X, W, B)   ->  Reshape(MatMul(Reshape(W), Columns(X))) + B
Conv, 1x1       ->  Reshape(MatMul(Reshape(W), Reshape(X))) + B      stride 1, no padding: no columns

The reshapes are views. MatMul gets an implementation of its own, a vendor's product or generated loops.
Columns hold the zeros around the input: where a weight is infinite or NaN, a border may be NaN that is a
number with a kernel that skips what it pads; every other element of the channel is not finite then.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import dace
import numpy as np
from dace.sdfg import nodes
from dace.sdfg.graph import MultiConnectorEdge

from daceml.errors import NoImplementationError
from daceml.onnx_ops.binding import bind
from daceml.onnx_ops.domain.columns import Columns
from daceml.onnx_ops.lowering import choose
from daceml.onnx_ops.native.windows import Windows, windows_of
from daceml.onnx_ops.registry import KINDS, Kind
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.onnx_ops.schema.nodes import node_class
from daceml.onnx_ops.tracing.tensor import Tensor
from daceml.onnx_ops.tracing.trace import Refused
from daceml.sdfg.access import add_access
from daceml.sdfg.network import Network
from daceml.sdfg.passes import PassRecord, Refusal
from daceml.sdfg.sizes import Size, product, size
from daceml.transformations.rewriting.refusals import refused_node

_OPSET = 21
_FLOATS = (dace.float32, dace.float64, dace.float16, dace.bfloat16)
# Columns and torch's product against torch's convolution, float32, no groups (benchmarks/crossover.py): 0.5
# at 5 thousand products, 0.4 to 0.8 at 0.6 million. Above this, arrays are in channels-last order, and a
# product reads row-major ones.
_MOST_VENDOR_PRODUCTS = 1_000_000
# Over one spatial dimension there is no channels-last order, and where a window is one element there are no
# columns: 0.66 to 0.8 of the time of torch's convolution at 0.2 to 0.6 thousand million products, 0.95 at
# 0.3 thousand million with 512 channels; and the product writes where its readers want it.
# Columns and generated loops for the product against loops over windows: 0.3 to 0.6 at 12 million products
# and above, 1.0 at 0.3 million; 9 with 16 rows, for which the scheduler leaves no loop to vectorise.
_FEWEST_NATIVE_PRODUCTS = 2_000_000
_FEWEST_NATIVE_ROWS = 32


def use_columns(
    network: Network, *, allowed: Sequence[Kind] = KINDS, always: bool = False, plain: bool = False
) -> int:
    """Make products of matrices of convolutions, where that is faster. Mutates the network, not lowered yet.

    Args:
        allowed: kinds of implementations that nodes will choose from.
        always: wherever it is possible, even where a vendor's convolution is faster.
        plain: only where there are no columns to write, over one spatial dimension.
    Returns:
        how many convolutions became products.
    """
    made = 0
    refused: list[Refusal] = []
    for node in list(network.state.nodes()):
        if not isinstance(node, ONNXNode) or node.op_type != "Conv" or node.domain or node.implementation:
            continue
        rewrite = _Rewrite.of(node, network)
        reason = rewrite if isinstance(rewrite, str) else None
        if not isinstance(rewrite, str) and plain and not rewrite.is_plain_line:
            reason = "it has columns, or more than one spatial dimension"
        elif not isinstance(rewrite, str):
            reason = None if always else _no_gain(node, rewrite, network, allowed)
            if reason is None:
                rewrite.apply()
                made += 1
        if reason is not None:
            refused.append(refused_node(node, reason))
    network.passes.append(
        PassRecord(
            level="coarse",
            name="use_columns",
            applied={"convolutions as products": made} if made else {},
            refused=tuple(refused),
        )
    )
    return made


def _no_gain(node: ONNXNode, rewrite: _Rewrite, network: Network, allowed: Sequence[Kind]) -> str | None:
    """Why the convolution stays, for its speed."""
    products = rewrite.products
    vendor = "aten" in allowed and rewrite.group == 1
    try:
        chosen = choose(node, network, allowed=allowed).implementation
    except NoImplementationError:
        return None
    if chosen.kind == "aten":
        if rewrite.group != 1:
            return f"{chosen.title} takes its groups together"
        if rewrite.dtype != dace.float32:
            return f"{chosen.title} takes {rewrite.dtype.to_string()}, for which nothing was measured"
        if rewrite.is_plain_line:
            return None
        if not isinstance(products, int) or products >= _MOST_VENDOR_PRODUCTS:
            return (
                f"the convolution has {products} multiplications; from {_MOST_VENDOR_PRODUCTS} on, "
                f"{chosen.title} is faster"
            )
        return None
    if rewrite.depthwise:
        return "it is depthwise: each matrix multiplication would have a single row"
    if vendor or chosen.kind == "onnxruntime":
        return None
    if isinstance(products, int) and products < _FEWEST_NATIVE_PRODUCTS:
        return (
            f"the convolution has {products} multiplications; "
            f"columns do not pay below {_FEWEST_NATIVE_PRODUCTS}"
        )
    rows = product((rewrite.x[0], rewrite.w[0]))
    if isinstance(rows, int) and rows < _FEWEST_NATIVE_ROWS:
        return f"{rows} rows are fewer than {_FEWEST_NATIVE_ROWS}: the product would not be vectorised"
    return None


class _Rewrite:
    """One convolution that can become a product, and its geometry."""

    def __init__(self, node: ONNXNode, network: Network, windows: Windows, group: int) -> None:
        self.node, self.network, self.windows, self.group = node, network, windows, group
        self.sdfg, self.state = network.sdfg, network.state
        self.x, self.w, self.y = (self._shape(connector) for connector in ("X", "W", "Y"))
        self.dtype = self.sdfg.arrays[self._result().data].dtype
        self.products = product((*self.y, *self.w[1:]))
        self.depthwise = group > 1 and self.w[0] == group
        self.extents = tuple(int(n) for n in self.y[2:])  # pyright: ignore[reportArgumentType]

    @classmethod
    def of(cls, node: ONNXNode, network: Network) -> _Rewrite | str:
        """The rewrite of a convolution, or why there is none."""
        binding = bind(node, network)
        x, w, y = binding.inputs.get("X"), binding.inputs.get("W"), binding.outputs.get("Y")
        assert isinstance(x, Tensor)
        assert isinstance(w, Tensor)
        assert isinstance(y, Tensor)
        if x.dtype not in _FLOATS:
            return f"there is no matrix multiplication for {x.dtype.to_string()}"
        if not all(isinstance(n, int) for n in (*x.shape[1:], *w.shape, *y.shape[1:])):
            return "a size other than the batch is symbolic"
        if any(n == 0 for n in (*x.shape, *w.shape, *y.shape)):
            return "an operand is empty"
        values = binding.attributes
        group = int(values.get("group") or 1)
        if w.shape[0] % group or x.shape[1] != w.shape[1] * group:
            return f"channels {x.shape[1]} and {w.shape[0]} do not form {group} groups"
        try:
            windows = windows_of(
                x.shape[2:],
                w.shape[2:],
                strides=values.get("strides"),
                dilations=values.get("dilations"),
                pads=values.get("pads"),
                auto_pad=values.get("auto_pad") or "NOTSET",
            )
        except Refused as refusal:
            return str(refusal)
        if min((*windows.before, *windows.after), default=0) < 0:
            return "negative pads"
        return cls(node, network, windows, group)

    def apply(self) -> None:
        """Write the product into the network. Mutates it."""
        inner, positions = prod(map(int, self.w[1:])), prod(self.extents)  # pyright: ignore[reportArgumentType]
        outputs = int(self.w[0]) // self.group  # pyright: ignore[reportArgumentType]
        x, w, y = self._edge("X").src, self._edge("W").src, self._result()
        batch = self.x[0]
        columns = self._columns(x, (batch, self.group, inner, positions))
        weight_shape = (outputs, inner) if self.group == 1 else (self.group, outputs, inner)
        weight = self._reshape(w, "rows", weight_shape)
        # without groups the weight is one matrix for all samples, and the columns have no dimension for them
        if self.group == 1:
            columns = self._reshape(columns, "matrices", (batch, inner, positions))
        shape = (batch, *weight_shape[:-1], positions)
        made = self._transient("product", shape)
        self._node("MatMul", "product", {"A": weight, "B": columns}, {"Y": made})
        bias = self._edges("B")
        if not bias:
            self._reshape_into(made, y)
        else:
            whole = self._transient("unbiased", self.y)
            self._reshape_into(made, whole)
            addend = self._reshape(bias[0].src, "bias", (self.w[0], *(1,) * len(self.extents)))
            self._node("Add", "bias", {"A": whole, "B": addend}, {"C": y})
        self.state.remove_node(self.node)

    def _columns(self, x: nodes.AccessNode, shape: tuple[Size, ...]) -> nodes.AccessNode:
        windows = self.windows
        pads = (*windows.before, *windows.after)
        if self.is_plain:
            return self._reshape(x, "columns", shape)
        made = self._transient("columns", shape)
        node = Columns(
            inputs=["X"],
            outputs=["Y"],
            group=self.group,
            extents=list(self.extents),
            kernel_shape=list(windows.kernel),
            strides=list(windows.strides),
            dilations=list(windows.dilations),
            pads=list(pads),
            **self._origin("columns"),
        )
        self._connect(node, {"X": x}, {"Y": made})
        return made

    @property
    def is_plain(self) -> bool:
        """Whether each result is of one position of the operand: there are no columns to write."""
        windows = self.windows
        plain = (1,) * len(self.extents)
        return (
            windows.kernel == plain
            and windows.strides == plain
            and not any((*windows.before, *windows.after))
        )

    @property
    def is_plain_line(self) -> bool:
        """The same over one spatial dimension."""
        return self.is_plain and len(self.extents) == 1 and self.group == 1

    # ---- nodes and arrays

    def _origin(self, what: str) -> dict[str, Any]:
        node = self.node
        return {
            "position": node.position,
            "onnx_name": f"{node.onnx_name}/{what}",
            "module_path": node.module_path,
            "source": node.source,
        }

    def _node(
        self,
        op_type: str,
        what: str,
        reads: dict[str, nodes.AccessNode],
        writes: dict[str, nodes.AccessNode],
    ) -> None:
        made = node_class(op_type, version=_OPSET)(
            inputs=list(reads), outputs=list(writes), **self._origin(what)
        )
        self._connect(made, reads, writes)

    def _connect(
        self, node: ONNXNode, reads: dict[str, nodes.AccessNode], writes: dict[str, nodes.AccessNode]
    ) -> None:
        self.state.add_node(node)
        for connector, source in reads.items():
            self.state.add_edge(source, None, node, connector, self._whole(source.data))
        for connector, target in writes.items():
            self.state.add_edge(node, connector, target, None, self._whole(target.data))

    def _reshape(self, source: nodes.AccessNode, what: str, shape: tuple[Size, ...]) -> nodes.AccessNode:
        made = self._transient(what, shape, source.data)
        self._reshape_into(source, made)
        return made

    def _reshape_into(self, source: nodes.AccessNode, target: nodes.AccessNode) -> None:
        shape = [size(n) for n in self.sdfg.arrays[target.data].shape]
        name, _ = self.sdfg.add_array(
            f"{target.data}_shape", [len(shape)], dace.int64, transient=False, find_new_name=True
        )
        # 0 stands for the operand's own size: only the batch may be symbolic, and it comes first
        texts = [n if isinstance(n, int) else 0 for n in shape]
        self.network.constants[name] = np.array(texts, dtype=np.int64)
        reads = {"data": source, "shape": add_access(self.state, name)}
        self._node("Reshape", target.data, reads, {"reshaped": target})

    def _transient(self, what: str, shape: tuple[Size, ...], like: str = "") -> nodes.AccessNode:
        dtype = self.sdfg.arrays[like].dtype if like else self.dtype
        stem = f"{self._result().data}_{what}"
        name, _ = self.sdfg.add_transient(stem, shape, dtype, find_new_name=True)
        return add_access(self.state, name)

    def _whole(self, array: str) -> dace.Memlet:
        return dace.Memlet.from_array(array, self.sdfg.arrays[array])

    def _edges(self, connector: str) -> list[MultiConnectorEdge[dace.Memlet]]:
        return list(self.state.in_edges_by_connector(self.node, connector))

    def _edge(self, connector: str) -> MultiConnectorEdge[dace.Memlet]:
        (edge,) = self._edges(connector)
        return edge

    def _result(self) -> nodes.AccessNode:
        (edge,) = self.state.out_edges(self.node)
        return edge.dst

    def _shape(self, connector: str) -> tuple[Size, ...]:
        node = self._result() if connector == "Y" else self._edge(connector).src
        return tuple(size(n) for n in self.sdfg.arrays[node.data].shape)
