"""pack_weights: weights in the order that a kernel wants, made once and not at every call.

Conv(X, W)           ->  Conv(X, packed W)          oneDNN; otherwise it reorders the weight at every call
depthwise Conv(X, W) ->  Conv(X, W as [kh, kw, C])  a loop of our own, for windows of at most 9 elements
pointwise Conv(X, W) ->  Conv(X, W in panels)       one as well, for windows of one element
Gemm(A, W, C)        ->  Gemm(A, packed W, C)       MKL; for a fixed number of rows
LSTM(X, W, R, B)     ->  LSTM(X, W, R, B by gate)   oneDNN's fused layer, with gates in torch's order

Packed weights are made when a program is bound to a module, and belong to the program: its weights do not
change any more (freeze=True), or each call looks whether they have: `watched_weights.py`. What else that
allows is in `coarse/batch_norm_folding.py` and `convolution_activations.py`. oneDNN's hardsigmoid
turns NaN into 1 and its hardswish loses digits near -3, so they stay loops. Of a call of oneDNN 30 to 40 us
go into looking its kernel up, which its interface in torch does at every call. Loops of our own stand in
`daceml/codegen/convolutions.cpp`.
"""

from __future__ import annotations

import dace
import torch

from daceml.config import config
from daceml.onnx_ops.aten.convolution import convolution
from daceml.onnx_ops.aten.packed import CONVOLUTION, DEPTHWISE, LSTM, POINTWISE, PRODUCT
from daceml.onnx_ops.aten.recurrent import layer_flops
from daceml.onnx_ops.binding import Binding, bind
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.onnx_ops.tracing.tensor import Output, Tensor
from daceml.sdfg.access import add_access
from daceml.sdfg.network import Network, Preparation
from daceml.sdfg.passes import PassRecord, Refusal
from daceml.sdfg.sizes import product, size, size_bytes
from daceml.transformations.rewriting.refusals import refused_node

_PLAIN = {
    "Conv": ("aten:convolution", ("W",)),
    "Gemm": ("aten:addmm", ("B",)),
    "LSTM": ("aten:products", ("W", "R", "B")),
}
# Packed against plain (benchmarks/crossover.py): 0.4 to 0.5 at 8 rows, 0.8 at 128, 0.9 at 512; 1.0 with one
# row, which reads every element once.
_FEWEST_ROWS = 2
_FEWEST_ELEMENTS = 16_384
# Looking at an element takes 0.24 ns (17 GB/s, from memory), twice that beside other load; packing saves 0.2
# to 0.3 ns of each at 128 rows, where vectors have 512 bits. Packed and looked at against plain, on one
# thread: 0.9 to 1.0 of its speed at 128 and at 256 rows, 0.97 to 1.0 at 512. With vectors of 256 bits packed
# takes 0.95 to 1.02 of the time of plain for 8 to 1,024 rows (13 shapes, EPYC), less than looking costs.
_FEWEST_WATCHED_ROWS = 256
# A product without a bias, into memory that is there already, takes 0.95 to 1.0 of the time of one with a
# packed weight from 1,024 x 512 x 512 on, and 0.92 at 3,136 x 256 x 512.
_MOST_ROWS = 1023
# The own loop against oneDNN's kernel, each alone and called again and again on one thread: 0.5 to 0.85 of
# its time for 3 x 3, 1.0 to 1.4 for 5 x 5. Inside a network, with other steps between, the gain is smaller.
_MOST_TAPS = 9
# A product of our own against oneDNN's packed kernel with a clip, for 28 shapes of pointwise convolutions of
# MobileNetV2 and ResNet-50, each alone, batch 2, vectors of 512 bits: 0.6 to 1.02 of its time on one thread,
# 0.46 to 0.96 on two; of those, 0.9 to 1.0 from 100 million products on. Below 1 million products 0.1 to 0.3.
# So there is no size at which oneDNN is preferred.
# oneDNN's layer orders its weights at each call and calls no product for each step: 0.5 to 0.9 of the time
# of products and gates apart from 2 million operations on (15 shapes, one and two threads), 1.1 to 1.5 below,
# and with fewer rows than these, which use an element too few times.
_FEWEST_LSTM_ROWS = 4
_FEWEST_LSTM_OPERATIONS = 2_000_000
_KERNELS = {
    "convolution": CONVOLUTION,
    "depthwise": DEPTHWISE,
    "pointwise": POINTWISE,
    "product": PRODUCT,
    "gates": LSTM,
}
_TITLES = {"depthwise": "depthwise", "pointwise": "pointwise", "gates": "fused"}


def pack_weights(network: Network, *, watched: bool = False) -> int:
    """Let vendor kernels read packed weights. Mutates the network, whose layouts are final.

    Args:
        watched: each call reads all bytes of what is packed: it must gain more than that.
    Returns:
        how many nodes read a packed weight.
    """
    refused: list[Refusal] = []
    counts: dict[str, int] = {}
    left_bytes = config().prepared_bytes if watched else None
    for node in list(network.state.nodes()):
        if not isinstance(node, ONNXNode) or node.domain or node.op_type not in _PLAIN:
            continue
        plain, connectors = _PLAIN[node.op_type]
        if node.implementation != plain:
            continue
        made = _preparations(node, connectors, network, watched)
        if not isinstance(made, str) and left_bytes is not None:
            amounts = [size_bytes(network.sdfg.arrays[p.sources[0]]) for p in made.values()]
            amount = sum(n for n in amounts if isinstance(n, int))
            if amount > left_bytes:
                made = f"{config().prepared_bytes} bytes are packed already: DACEML_PREPARED_BYTES"
            else:
                left_bytes -= amount
        if isinstance(made, str):
            refused.append(refused_node(node, made))
            continue
        for connector, preparation in made.items():
            _read_packed(node, connector, preparation, network)
        function = next(iter(made.values())).function
        node.implementation = f"aten:{_KERNELS[function]}"
        title = f"{_TITLES.get(function, 'packed')} {node.op_type}"
        counts[title] = counts.get(title, 0) + 1
    network.passes.append(
        PassRecord(level="layout", name="pack_weights", applied=counts, refused=tuple(refused))
    )
    return sum(counts.values())


def _preparations(
    node: ONNXNode, connectors: tuple[str, ...], network: Network, watched: bool
) -> dict[str, Preparation] | str:
    """How the weights of a node are packed, or why they are not."""
    found: dict[str, Preparation] = {}
    for connector in connectors:
        if not list(network.state.in_edges_by_connector(node, connector)):
            continue  # a bias that is not there
        made = _preparation(node, connector, network, watched)
        if isinstance(made, str):
            return made
        found[connector] = made
    return found


def _preparation(node: ONNXNode, connector: str, network: Network, watched: bool) -> Preparation | str:
    """How a weight of a node is packed, or why it is not."""
    if network.live:
        return "the weights are unprepared: every call reads them from the module"
    (edge,) = network.state.in_edges_by_connector(node, connector)
    weight = edge.src.data
    folded = weight in network.prepared and not network.prepared[weight].packed
    if weight not in network.weights and not folded:
        return "its weight is not a row-major parameter"
    if weight in network.mutations.values():
        return "its weight is changed by the module"
    if network.sdfg.arrays[weight].dtype != dace.float32:
        return f"weights of {network.sdfg.arrays[weight].dtype.to_string()} are not packed"
    if node.op_type == "Conv":
        return _convolution(node, weight, network)
    if node.op_type == "LSTM":
        return _lstm(node, connector, weight, network)
    if watched and not _has_long_vectors():
        return "with 256-bit vectors, packing saves less than the check of the weight costs at each call"
    return _product(node, weight, network, _FEWEST_WATCHED_ROWS if watched else _FEWEST_ROWS)


def _convolution(node: ONNXNode, weight: str, network: Network) -> Preparation | str:
    binding = bind(node, network)
    x, y = binding.inputs.get("X"), binding.outputs.get("Y")
    assert isinstance(x, Tensor)
    assert isinstance(y, Output)
    rank = x.rank - 2
    if rank != 2:
        return f"convolutions over {rank} dimensions are not packed"
    if not all(isinstance(n, int) for n in x.shape):
        return "a size of its input is symbolic, and the packed layout depends on it"
    (edge,) = network.state.in_edges_by_connector(node, "X")
    strides = network.sdfg.arrays[edge.src.data].strides
    same_memory = 1 in (x.shape[1], product(x.shape[2:]))
    if size(strides[1]) != 1 and not same_memory:
        return "its input is not channels-last, the layout of the kernel's result"
    (result,) = network.state.out_edges(node)
    channels_last = size(network.sdfg.arrays[result.dst.data].strides[1]) == 1
    # loops of our own write only so: the result of a network, which belongs to the caller, may be row-major
    own = channels_last or 1 in (y.shape[1], product(y.shape[2:]))
    if own and _is_small_depthwise(binding):
        return Preparation(function="depthwise", sources=(weight,), packed=False)

    *_, steps, pads, spread, _transposed, _extra, group = binding.call(convolution).arguments
    assert isinstance(pads, tuple)
    if own and _is_pointwise(binding, pads, group):
        return Preparation(function="pointwise", sources=(weight,))
    if not _mkldnn():
        return "this build of torch has no oneDNN"
    sizes = tuple(int(n) for n in x.shape)  # pyright: ignore[reportArgumentType]
    return Preparation(
        function="convolution", sources=(weight,), numbers=(pads, steps, spread, (group,), sizes)
    )


def _is_small_depthwise(binding: Binding) -> bool:
    x, w = binding.inputs.get("X"), binding.inputs.get("W")
    assert isinstance(x, Tensor)
    assert isinstance(w, Tensor)
    taps = product(w.shape[2:])
    own = w.shape[1] == 1 and w.shape[0] == x.shape[1] and isinstance(taps, int) and taps <= _MOST_TAPS
    return own and 1 not in (x.shape[1], product(x.shape[2:]))


def _is_pointwise(binding: Binding, pads: tuple[object, ...], group: object) -> bool:
    w = binding.inputs.get("W")
    assert isinstance(w, Tensor)
    return product(w.shape[2:]) == group == 1 and not any(pads)


def _lstm(node: ONNXNode, connector: str, weight: str, network: Network) -> Preparation | str:
    binding = bind(node, network)
    x, r = binding.inputs.get("X"), binding.inputs.get("R")
    assert isinstance(x, Tensor)
    assert isinstance(r, Tensor)
    if not _mkldnn():
        return "this build of torch has no oneDNN"
    rows, operations = product(x.shape[:2]), layer_flops(x, r)
    if isinstance(rows, int) and rows < _FEWEST_LSTM_ROWS:
        return (
            f"with {rows} rows, each element of the weight is used too few times to gain from a fused layer"
        )
    if isinstance(operations, int) and operations < _FEWEST_LSTM_OPERATIONS:
        return f"{operations} operations are too few to gain from a fused layer"
    return Preparation(
        function="gates", sources=(weight,), numbers=((8 if connector == "B" else 4,),), packed=False
    )


def _product(node: ONNXNode, weight: str, network: Network, fewest_rows: int) -> Preparation | str:
    binding = bind(node, network)
    values = binding.attributes
    a, b, c = (binding.inputs.get(name) for name in "ABC")
    assert isinstance(a, Tensor)
    assert isinstance(b, Tensor)
    plain = (values.get("alpha"), values.get("beta"), values.get("transA"), values.get("transB"))
    if plain != (1.0, 1.0, 0, 1):
        return "only A W^T + c can be packed"
    if isinstance(c, Tensor) and (c.rank != 1 or c.shape[0] != b.shape[0]):
        return "its addend is not a vector with one element per column"
    if not _mkl():
        return "this build of torch has no MKL"
    rows, elements = a.shape[0], product(b.shape)
    if not isinstance(rows, int):
        return "the number of its rows is symbolic, and the packed layout depends on it"
    if rows > _MOST_ROWS:
        return f"{rows} rows take so long that the order of the weight does not matter"
    if rows < fewest_rows:
        return f"with {rows} rows, each element of the weight is used too few times to gain from packing"
    if not isinstance(elements, int) or elements < _FEWEST_ELEMENTS:
        return f"a weight of {elements} elements fits in the cache without packing"
    return Preparation(function="product", sources=(weight,), numbers=((rows,),))


def _read_packed(node: ONNXNode, connector: str, made: Preparation, network: Network) -> None:
    """Let a node read a packed weight, which has the shape of the weight. Mutates the network."""
    sdfg, state = network.sdfg, network.state
    (edge,) = state.in_edges_by_connector(node, connector)
    (weight,) = made.sources
    like = sdfg.arrays[weight]
    if made.function == "depthwise":
        channels, _, _, columns = like.shape
        like = dace.data.Array(like.dtype, like.shape, strides=(1, 1, columns * channels, channels))
    name = network.prepare(made, f"{weight}_packed", like)
    source = next((n for n in state.data_nodes() if n.data == name), None) or add_access(state, name)
    state.remove_edge(edge)
    state.add_edge(source, None, node, connector, dace.Memlet.from_array(name, sdfg.arrays[name]))
    if state.degree(edge.src) == 0:
        state.remove_node(edge.src)


def _has_long_vectors() -> bool:
    return "AVX512" in torch.backends.cpu.get_cpu_capability()


def _mkldnn() -> bool:
    return torch.backends.mkldnn.is_available()


def _mkl() -> bool:
    return torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()
