"""merge_short_rows: rows that fill no vectors are one with the dimensions outside them in memory.

for n, c, h, w: Y[n, c, h, w] = f(X[n, c, h, w], b[c])   ->   for n, c, e: w = e - W (e / W), h = e / W

A row of 14 or 30 elements ends in iterations that vector instructions do not do; an image or a volume ends
in as few of them as a row. The place of an element in memory is counted from e alone: the quotients cancel.
"""

from __future__ import annotations

import math
from typing import Any

from dace import symbolic
from dace.sdfg import nodes
from dace.subsets import Range

from daceml.sdfg.network import Network
from daceml.sdfg.passes import PassRecord
from daceml.sdfg.row_merging import quotients
from daceml.sdfg.scopes import top_maps
from daceml.sdfg.sizes import size
from daceml.transformations.hardware.gpu_flattening import dimensions_of

# Elements of the widest vectors, of four bytes each: rows of a multiple have no rest
_VECTOR = 16
_ELEMENT = "daceml_element"


def merge_short_rows(network: Network) -> int:
    """Merge dimensions of elementwise loops whose rows do not fill vectors. Mutates the SDFG.

    Returns:
        how many loops were changed.
    """
    merged = sum(_merge(network, entry) for entry in top_maps(network.state))
    network.passes.append(
        PassRecord(
            level="hardware", name="merge_short_rows", applied={"merged loops": merged} if merged else {}
        )
    )
    return merged


def _merge(network: Network, entry: nodes.MapEntry) -> bool:
    loops: nodes.Map = entry.map
    extents = [size(extent) for extent in loops.range.size()]
    if len(extents) < 2 or not isinstance(extents[-1], int) or extents[-1] % _VECTOR == 0:
        return False
    found = dimensions_of(network.sdfg, network.state, entry)
    if found is None:
        return False
    row = found.groups[-1]
    while not all(isinstance(extents[d], int) for d in row):
        row = row[1:]
    if len(row) < 2:
        return False
    first = row[0]
    lengths = [int(extents[d]) for d in row]  # pyright: ignore[reportArgumentType]
    element: Any = symbolic.symbol(_ELEMENT)
    places = quotients(element, lengths)
    names = {symbolic.symbol(loops.params[d]): place for d, place in zip(row, places, strict=True)}
    last: Any = symbolic.symbol(loops.params[-1])
    for subset in {id(edge.data): edge.data.subset for edge in found.edges}.values():
        subset.replace(names)
        subset.replace({element: last})
    loops.params = [*loops.params[:first], str(last)]
    loops.range = Range([*loops.range.ranges[:first], (0, math.prod(lengths) - 1, 1)])
    return True
