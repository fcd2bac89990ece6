"""Static costs of everything that a network does, step by step."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import dace

from daceml.sdfg.costs import Cost, function_cost, kernel_cost, scope_cost
from daceml.sdfg.external import AtenCall, FallbackCall, FreshResult, PackedWeight, TensorView
from daceml.sdfg.network import Network
from daceml.sdfg.outline import Kernel, KernelCall, canonical_text
from daceml.sdfg.scopes import top_maps
from daceml.sdfg.sizes import Size, product, renamed, size, size_bytes
from daceml.sdfg.tensor_lists import ListCall


def call_cost(call: KernelCall) -> Cost:
    """Cost of a kernel under the network's symbols."""
    return _cost_of_call(call.kernel, tuple(call.symbols))


@lru_cache(maxsize=1024)
def _cost_of_call(kernel: Kernel, symbols: tuple[str, ...]) -> Cost:
    cost = _cost_of_kernel(kernel)
    if not symbols:
        return cost
    names = {f"s{i:02d}": dace.symbol(s) for i, s in enumerate(symbols)}
    return cost.mapped(lambda amount: renamed(amount, names))


def list_cost(call: ListCall) -> Cost:
    """Cost of a kernel over all its rows."""
    elements = call.elements
    return _cost_of_kernel(call.kernel).mapped(lambda amount: _of(amount, elements))


def _of(amount: Size, elements: int) -> Size:
    return (
        amount if isinstance(amount, int) else int(amount.subs(dict.fromkeys(amount.free_symbols, elements)))
    )


def external_cost(call: AtenCall | FallbackCall, network: Network) -> Cost:
    """Cost of an external call: each element that it reads or writes moved once, and what it computes."""
    if isinstance(call, FallbackCall):
        moved = arrays_bytes((*call.inputs, *call.outputs), network)
        return Cost(unique_bytes=moved, total_bytes=moved)
    moved = sum((_touched_bytes(call, array, network) for array in _named(call)), start=0)
    cost = Cost(unique_bytes=moved, total_bytes=moved, flops=call.flops)
    elements = product(size(n) for n in network.sdfg.arrays[call.writes].shape)
    return sum((function_cost(name, elements) for name in call.functions), start=cost)


def _named(call: AtenCall) -> dict[str, None]:
    named = [a.array for a in call.arguments if isinstance(a, FreshResult | PackedWeight | TensorView)]
    return dict.fromkeys([*named, call.writes])


def _touched_bytes(call: AtenCall, array: str, network: Network) -> Size:
    """Of an array: those in the views of a call, without the rows that a strided convolution skips."""
    desc = network.sdfg.arrays[array]
    whole = size_bytes(desc)
    views = {a: None for a in call.arguments if isinstance(a, TensorView) and a.array == array}
    if not views or array in (call.writes, *call.more):
        return whole
    elements = sum((_elements(call, view, network) for view in views), start=0)
    found = elements * desc.dtype.bytes
    return min(found, whole) if isinstance(found, int) and isinstance(whole, int) else whole


# Function -> places of the input, the weight and the first of strides, pads and dilations among its arguments
_CONVOLUTIONS = {"convolution": (0, 1, 4), "packed_convolution": (0, 1, 5), "convolution_backward": (4, 5, 7)}


def _elements(call: AtenCall, view: TensorView, network: Network) -> Size:
    sizes: list[Size] = [n if step != 0 else 1 for n, step in zip(view.sizes, view.strides, strict=True)]
    places = _CONVOLUTIONS.get(call.function)
    if places is None or call.arguments[places[0]] is not view:
        return product(sizes)
    _, of_weight, first = places
    weight, geometry = call.arguments[of_weight], call.arguments[first : first + 3]
    transposed = call.function != "packed_convolution" and call.arguments[first + 3] is not False
    if transposed or not isinstance(weight, TensorView | PackedWeight):
        return product(sizes)
    windows = network.sdfg.arrays[weight.array].shape[2:]
    strides, pads, dilations = (one if isinstance(one, tuple) else () for one in geometry)
    rows = zip(view.sizes[2:], map(size, windows), strides, pads, dilations, strict=True)
    return product([*sizes[:2], *(_rows(*row) for row in rows)])


def _rows(extent: Size, window: Size, stride: int, pad: int, dilation: int) -> Size:
    """Those that the windows of a convolution read along one dimension."""
    if stride == 1 or not isinstance(extent, int) or not isinstance(window, int):
        return extent
    windows = (extent + 2 * pad - dilation * (window - 1) - 1) // stride + 1
    read = {stride * i + dilation * k - pad for i in range(windows) for k in range(window)}
    return len(read.intersection(range(extent)))


def arrays_bytes(arrays: Iterable[str], network: Network) -> Size:
    """Bytes of whole arrays."""
    return sum((size_bytes(network.sdfg.arrays[a]) for a in arrays), start=0)


def maps_cost(network: Network) -> tuple[int, Cost]:
    """Number and cost of the top-level maps of a network as it stands."""
    total = Cost()
    maps = top_maps(network.state)
    # equal layers cost the same
    known: dict[tuple[str, tuple[str, ...]], Cost] = {}
    for entry in maps:
        text = canonical_text(network.sdfg, network.state, entry)
        if text not in known:
            known[text] = scope_cost(network.sdfg, network.state, entry)
        total += known[text]
    return len(maps), total


@lru_cache(maxsize=1024)
def _cost_of_kernel(kernel: Kernel) -> Cost:
    return kernel_cost(kernel.sdfg)
