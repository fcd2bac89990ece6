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
from daceml.sdfg.sizes import Size, product, size, size_bytes
from daceml.sdfg.tensor_lists import ListCall


def call_cost(call: KernelCall) -> Cost:
    """Cost of a kernel under the network's symbols."""
    cost = _cost_of_kernel(call.kernel)
    if not call.symbols:
        return cost
    names = {f"s{i:02d}": dace.symbol(s) for i, s in enumerate(call.symbols)}

    def renamed(amount: Size) -> Size:
        if isinstance(amount, int):
            return amount
        return size(amount.subs({s: names[str(s)] for s in amount.free_symbols}))

    return cost.mapped(renamed)


def list_cost(call: ListCall) -> Cost:
    """Cost of a kernel over all its rows."""
    elements = call.elements
    return _cost_of_kernel(call.kernel).mapped(lambda amount: _of(amount, elements))


def _of(amount: Size, elements: int) -> Size:
    return (
        amount if isinstance(amount, int) else int(amount.subs(dict.fromkeys(amount.free_symbols, elements)))
    )


def external_cost(call: AtenCall | FallbackCall, network: Network) -> Cost:
    """Cost of an external call: each operand moved once, and what it computes."""
    if isinstance(call, FallbackCall):
        moved = arrays_bytes((*call.inputs, *call.outputs), network)
        return Cost(unique_bytes=moved, total_bytes=moved)
    named = [a.array for a in call.arguments if isinstance(a, FreshResult | PackedWeight | TensorView)]
    arrays = dict.fromkeys([*named, call.writes])
    moved = arrays_bytes(arrays, network)
    cost = Cost(unique_bytes=moved, total_bytes=moved, flops=call.flops)
    elements = product(size(n) for n in network.sdfg.arrays[call.writes].shape)
    return sum((function_cost(name, elements) for name in call.functions), start=cost)


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


@lru_cache(maxsize=4096)
def _cost_of_kernel(kernel: Kernel) -> Cost:
    return kernel_cost(kernel.sdfg)
