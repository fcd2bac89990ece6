"""Any DaCe program in the form that is reversed: nothing nested, no library nodes but sums, no views.

Everything here mutates the program and keeps what it computes.
"""

from __future__ import annotations

import re
from typing import Any

import dace
from dace.libraries.standard.nodes.reduce import Reduce
from dace.memlet import Memlet
from dace.sdfg import nodes
from dace.sdfg.replace import replace_dict
from dace.sdfg.state import ConditionalBlock, LoopRegion
from dace.sdfg.utils import get_view_edge, inline_control_flow_regions
from dace.transformation.dataflow import MapExpansion, MapToForLoop
from dace.transformation.interstate import InlineMultistateSDFG, InlineSDFG
from dace.transformation.passes.simplification.control_flow_raising import ControlFlowRaising

from daceml.autodiff.sdfg_backward.statements import moved_elements
from daceml.errors import GradientError
from daceml.sdfg.builder import box

OWN_NAMES = re.compile(r"[pqik]\d+")
"""How the backward pass calls its indices."""
_ROUNDS = 50  # of inlining and expanding: each one opens a level of nesting


def simple_form(sdfg: dace.SDFG) -> None:
    """Expand library nodes, inline nested programs, and make views copies and jumps conditionals."""
    for _ in range(_ROUNDS):
        _inline(sdfg)
        pending = [
            (node, state)
            for state in sdfg.states()
            for node in state.nodes()
            if isinstance(node, nodes.LibraryNode)
            and not (isinstance(node, Reduce) and state.entry_node(node) is None)
        ]
        if not pending:
            break
        for node, state in pending:
            known: Any = getattr(type(node), "implementations")  # noqa: B009
            node.expand(state, "pure" if "pure" in known else None)
    _views_to_copies(sdfg)
    if any(not e.data.is_unconditional() for e in sdfg.all_interstate_edges()):
        ControlFlowRaising().apply_pass(sdfg, {})
        _inline_regions(sdfg)


def scope_to_loop(sdfg: dace.SDFG, state: dace.SDFGState, entry: nodes.MapEntry) -> None:
    """A map as loops that run one after the other: what it nests becomes part of the program.

    Loops get other variables where the backward pass calls its own indices so.
    """
    label = entry.map.label
    own = {name: sdfg.find_new_symbol(f"at_{name}") for name in entry.map.params if OWN_NAMES.fullmatch(name)}
    if own:
        replace_dict(state.scope_subgraph(entry), own)
    if len(entry.map.params) > 1:
        MapExpansion.apply_to(sdfg, map_entry=entry)
    MapToForLoop.apply_to(sdfg, map_entry=entry)
    _inline(sdfg)
    if not any(isinstance(b, LoopRegion) for b in sdfg.all_control_flow_blocks()):
        raise GradientError(
            "a scope cannot be differentiated",
            where=f"map {label} in {state.label}",
            why="it cannot be written as a loop of the program",
            fix="write it as a for loop, or take it apart",
        )


def _inline_regions(sdfg: dace.SDFG) -> None:
    """Regions that only hold blocks together, such as those of calls, become part of what they stand in."""
    kept: list[Any] = [LoopRegion, ConditionalBlock]
    while inline_control_flow_regions(sdfg, ignore_region_types=kept):
        sdfg.reset_cfg_list()


def _inline(sdfg: dace.SDFG) -> None:
    for _ in range(_ROUNDS):
        _inline_regions(sdfg)
        nested = [
            (n, s)
            for s in sdfg.states()
            for n in s.nodes()
            if isinstance(n, nodes.NestedSDFG) and s.entry_node(n) is None
        ]
        changed = sdfg.apply_transformations_repeated([InlineSDFG], validate=False)
        changed += sdfg.apply_transformations_repeated([InlineMultistateSDFG], validate=False)
        if not nested or not changed:
            break


def _views_to_copies(sdfg: dace.SDFG) -> None:
    """Every view that stands outside scopes becomes an array of its own."""
    arrays: list[tuple[str, Any]] = list(sdfg.arrays.items())
    made = {name: (desc.shape, desc.dtype) for name, desc in arrays}
    for name, desc in arrays:
        if not isinstance(desc, dace.data.View):
            continue
        shape, dtype = made[name]
        for state in sdfg.states():
            for node in [n for n in state.data_nodes() if n.data == name]:
                _unview(sdfg, state, node)
        sdfg.arrays[name] = dace.data.Array(dtype, shape, transient=True)


def _unview(sdfg: dace.SDFG, state: dace.SDFGState, node: nodes.AccessNode) -> None:
    edge: Any = get_view_edge(state, node)
    if edge is None or state.entry_node(node) is not None:
        raise GradientError(
            f"the view {node.data} cannot be differentiated",
            where=f"state {state.label}",
            why="it stands inside a scope" if edge is not None else "what it is a view of is not clear",
            fix="simplify the program first, or copy what the view shows",
        )
    if edge.dst is node:
        edge.dst_conn = None
        node.remove_in_connector("views")
        _spell_out(sdfg, state, edge)
        return
    edge.src_conn = None
    node.remove_out_connector("views")
    shape = sdfg.arrays[node.data].shape
    written: list[Any] = [e.data.get_dst_subset(e, state) for e in state.in_edges(node)]
    whole = any([str(n) for n in w.size()] == [str(n) for n in shape] for w in written)
    if not whole:
        raise GradientError(
            f"the view {node.data} cannot be differentiated",
            where=f"state {state.label}",
            why="only a part of it is written",
            fix="simplify the program first, or write to the array itself",
        )
    _spell_out(sdfg, state, edge)


def _spell_out(sdfg: dace.SDFG, state: dace.SDFGState, edge: Any) -> None:
    """A copy that changes the shape as a map: DaCe copies equal shapes only."""
    params, extents, taken, given = moved_elements(sdfg, state, edge)
    if sdfg.arrays[edge.src.data].shape == sdfg.arrays[edge.dst.data].shape:
        return
    params, extents = params or (dace.symbol("p0"),), extents or (1,)
    state.add_mapped_tasklet(
        f"copy_{edge.src.data}_{edge.dst.data}",
        {str(p): dace.subsets.Range([(0, e - 1, 1)]) for p, e in zip(params, extents, strict=True)},
        {"_in": Memlet(data=edge.src.data, subset=box([(i, i) for i in taken]))},
        "_out = _in",
        {"_out": Memlet(data=edge.dst.data, subset=box([(i, i) for i in given]))},
        external_edges=True,
        input_nodes={edge.src.data: edge.src},
        output_nodes={edge.dst.data: edge.dst},
    )
    state.remove_edge(edge)
