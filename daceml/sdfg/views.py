"""Views: an array that is another array under another shape, without a copy."""

from __future__ import annotations

import dace
from dace.memlet import Memlet
from dace.sdfg import nodes

from daceml.sdfg.sizes import row_major, size


def view_problem(sdfg: dace.SDFG, source: str, result: str) -> str | None:
    """Why `result` cannot be a view of `source`; None where it can."""
    for array in (source, result):
        desc = sdfg.arrays[array]
        if tuple(map(str, desc.strides)) != tuple(map(str, row_major(size(s) for s in desc.shape))):
            return f"{array} is not contiguous"
    if not sdfg.arrays[result].transient:
        return "the result belongs to the caller"
    if sdfg.arrays[source].dtype != sdfg.arrays[result].dtype:
        return "the element types differ"
    return None


def make_view(
    sdfg: dace.SDFG, state: dace.SDFGState, source: nodes.AccessNode, result: nodes.AccessNode
) -> None:
    """Turn the array of `result` into a view of that of `source`. Mutates the SDFG."""
    desc = sdfg.arrays[result.data]
    shape, dtype, storage = desc.shape, desc.dtype, desc.storage
    sdfg.remove_data(result.data, validate=False)
    sdfg.add_view(result.data, shape, dtype, storage=storage)
    result.add_in_connector("views", force=True)
    state.add_edge(source, None, result, "views", Memlet.from_array(source.data, sdfg.arrays[source.data]))
